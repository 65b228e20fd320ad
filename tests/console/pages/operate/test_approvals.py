"""The inbox and the pages on which people decide."""

import re
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from appliance.console.frame.json_blocks import describe, leaves
from appliance.console.pages.operate.waits import Wait, list_waits
from appliance.core import clock
from appliance.core.database import db
from appliance.core.pages import PageRequest
from appliance.governance import SkillUsed, Subject
from appliance.governance.approvals import TOOL_LABELS, ActionApprovals, Approval, ApprovalFilter, RequestOptions, approvals
from appliance.governance.policies import Decision as PolicyDecision
from appliance.governance.policies import Obligations, ToolAction
from appliance.processes import Execution
from appliance.testing.running import Running
from tests.api.resources import Resources, fresh
from tests.console.browser import Browser

SignedIn = Callable[[str], Browser]
ADDRESS = {
    "type": "object",
    "required": ["street", "floor"],
    "additionalProperties": False,
    "properties": {
        "street": {"type": "string", "title": "Street", "default": "Main & High"},
        "floor": {"type": "integer", "title": "Floor", "minimum": 0},
        "lift": {"type": "boolean", "title": "Lift"},
        "kind": {"enum": ["pallet", "parcel"], "title": "Kind"},
        "when": {"type": "string", "format": "date", "title": "When"},
        "contact": {"type": "object", "title": "Contact", "properties": {"name": {"type": "string", "title": "Name"}}},
        "codes": {"type": "array", "items": {"type": "string"}, "title": "Codes"},
    },
}


@pytest.fixture(scope="session")
def acme_things(staff: Running, acme: httpx.Client) -> Resources:
    return Resources(staff, "acme", acme)


Ask = Callable[..., str]


@pytest.fixture
def ask(acme_things: Resources) -> Ask:
    """Create a request as an execution does, open for 48 hours; returns its id."""

    def create(kind: str = "approval", **options: Any) -> str:
        approval_id = acme_things.approval(kind, **options)
        soon = clock.now_ms() + 48 * 3_600_000
        db.write(lambda: db.execute("UPDATE approval SET expires_at = ? WHERE id = ?", (soon, approval_id)))
        return approval_id

    return create


def show(browser: Browser, approval_id: str) -> str:
    page = browser.get(browser.at("acme", f"/console/approvals/{approval_id}"))
    assert page.status_code == 200
    return page.text


def send(browser: Browser, approval_id: str, status: int = 200, **form: str) -> str:
    page = browser.post(browser.at("acme", f"/console/approvals/{approval_id}"), {k.replace("__", "/"): v for k, v in form.items()})
    assert page.status_code == status
    return page.text


def get_approval(acme_things: Resources, approval_id: str) -> Approval:
    return approvals.get_approval(acme_things.scope, approval_id)


def test_a_request_is_shown_completely_and_escaped(owner: Browser, ask: Ask) -> None:
    approval_id = ask(
        title="Ship <b>this</b>?", reason="two\nlines", approvers=["role:operator", "user:ann@acme.test"],
        details={"order_total": "12 <i>", "lines": [{"sku": "a", "n": 1}, {"sku": "b"}], "urgent": True, "deep": [[1]]},
    )  # fmt: skip
    page = show(owner, approval_id)
    for part in (
        "Ship &lt;b&gt;this&lt;/b&gt;?", "two\nlines", "Order total", "12 &lt;i&gt;", "<td>b</td>", "yes", "Approve", "Reject",
        "a member with the role operator or higher, ann@acme.test", "API key test", 'href="/console/executions/exe_', "in 2 d",
    ):  # fmt: skip
        assert part in page
    assert "<b>this" not in page


def test_the_inbox_separates_own_requests_from_those_of_others(signed_in: SignedIn, ask: Ask, acme_things: Resources) -> None:
    mine, others = ask("choice", title="For an operator", choices=["a"]), ask(title="For an approver")
    operator = signed_in("operator@acme.test")
    page = operator.get(operator.at("acme", "/console/approvals?limit=500")).text
    pending = len(approvals.list_approvals(acme_things.scope, ApprovalFilter("pending"), PageRequest(100)).items)
    badge = re.search(r'<span class="count"[^>]*>(\d+)', page)
    assert badge is not None
    assert 1 <= int(badge[1]) < pending, "requests of others are not counted"
    above, _, below = page.partition("Waiting on others or expired")
    assert mine in above
    assert others in below
    everything = operator.get(operator.at("acme", "/console/approvals?state=all")).text
    assert everything.index(others) < everything.index(mine)
    assert operator.get(operator.at("acme", "/console/approvals?state=odd")).status_code == 400


@pytest.mark.parametrize(("decision", "status"), [("approve", "approved"), ("reject", "rejected")])
def test_an_owner_decides_once(owner: Browser, ask: Ask, acme_things: Resources, decision: str, status: str) -> None:
    approval_id = ask()
    page = send(owner, approval_id, verdict=decision, comment="so\r\nbe it <!>")
    assert owner.url.endswith(approval_id)
    assert f"<strong>owner@acme.test</strong> {status} this." in page
    assert "so\nbe it &lt;!&gt;" in page
    approval = get_approval(acme_things, approval_id)
    assert (approval.status, approval.comment) == (status, "so\nbe it <!>")
    assert "has already decided this" in send(owner, approval_id, 409, verdict="approve")
    assert "<form" not in show(owner, approval_id).partition('id="content"')[2].partition("</main>")[0]


def test_a_choice_is_a_button(signed_in: SignedIn, ask: Ask, acme_things: Resources) -> None:
    operator, approval_id = signed_in("operator@acme.test"), ask("choice", choices=["red & blue", "green"])
    assert '<button class="button" name="choice" value="red &amp; blue">' in show(operator, approval_id)
    assert "the answer must be one of" in send(operator, approval_id, 422, choice="black").lower()
    send(operator, approval_id, choice="red & blue")
    assert get_approval(acme_things, approval_id).answer == "red & blue"


def test_an_answer_is_entered_in_the_fields_of_its_schema(owner: Browser, ask: Ask, acme_things: Resources) -> None:
    approval_id = ask("input", schema=ADDRESS)
    page = show(owner, approval_id)
    for part in ('name="in/answer/street"', 'value="Main &amp; High"', 'type="date"', "<legend>Contact", 'name="in/answer/codes"'):
        assert part in page
    refused = send(owner, approval_id, 422, in__answer__street="High 1", in__answer__floor="x", comment="keep me")
    for part in ('id="in/answer/floor-error"', "Enter a whole number.", 'value="High 1"', "keep me"):
        assert part in refused
    refused = send(owner, approval_id, 422, in__answer__street="", in__answer__floor="-1")
    for part in ('id="in/answer/street-error"', "This member is required.", 'id="in/answer/floor-error"'):
        assert part in refused
    assert get_approval(acme_things, approval_id).status == "pending"
    form = {
        "street": "High 1", "floor": "2", "lift": "false", "kind": '"parcel"', "when": "2026-12-24", "contact__name": "Ann",
        "codes": '["1", "2"]',
    }  # fmt: skip
    send(owner, approval_id, 200, **{f"in__answer__{name}": value for name, value in form.items()})
    assert get_approval(acme_things, approval_id).answer == {
        "street": "High 1", "floor": 2, "lift": False, "kind": "parcel", "when": "2026-12-24", "contact": {"name": "Ann"},
        "codes": ["1", "2"],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("schema", "marks", "text", "answer"),
    [
        (None, 'id="in/answer" name="in/answer" data-testid="field" rows="4" class="prose">', "two\r\nlines", "two\nlines"),
        ({"type": "boolean"}, '<option value="false">no</option>', "false", False),
        ({"type": "number", "title": "How much"}, ">How much</label>", "1.5", 1.5),
        ({"enum": [1, "one"]}, '<option value="1">1</option>', '"one"', "one"),
        ({"type": "array"}, '<textarea id="in/answer"', "[1]", [1]),
        ({"type": "object"}, '<textarea id="in/answer"', '{"a": 1}', {"a": 1}),
    ],
)
def test_an_answer_may_be_one_value(
    owner: Browser, ask: Ask, acme_things: Resources, schema: Any, marks: str, text: str, answer: Any
) -> None:
    approval_id = ask("input", schema=schema)
    assert marks in show(owner, approval_id)
    assert 'id="in/answer-error">This is needed.' in send(owner, approval_id, 422, in__answer="")
    send(owner, approval_id, in__answer=text)
    assert get_approval(acme_things, approval_id).answer == answer


def test_a_member_who_cannot_decide_sees_why_and_no_form(signed_in: SignedIn, ask: Ask, acme_things: Resources) -> None:
    operator, approval_id = signed_in("operator@acme.test"), ask()
    page = show(operator, approval_id)
    assert "You cannot decide this request" in page
    assert "Only an approver can decide" in page
    assert "<form" not in page.partition('id="content"')[2].partition("</main>")[0]
    assert "only an approver can decide" in send(operator, approval_id, 403, verdict="approve").lower()
    assert get_approval(acme_things, approval_id).status == "pending"


ORDER = ToolAction(
    "execute_tenant_integration", "write", {"sku": "A\u202eB", "lines": [{"n": 1}], "note": "<b>"}, "erp", "create_order",
    "http 1.2", "erp.example:443", "erp@3",
)  # fmt: skip


@pytest.fixture
def ask_action(acme_things: Resources, staff: Running) -> Ask:
    """Request the approval of an order as a run of an agent does; returns the request's id."""

    def create(needed: int = 1, **options: Any) -> str:
        skills = (SkillUsed("orders", "d" * 64, is_trusted=True), SkillUsed("mail", "e" * 64))
        subject = Subject("key:none", "agent", "clerk", fresh("run"), skills, ("mailbox of sales",))
        obligations = Obligations(needed=needed)
        decision = PolicyDecision("require_approval", ("orders are approved",), "v7", ("orders/write",), obligations)
        service = ActionApprovals(staff.services.sealer)
        return service.request_action(acme_things.scope, subject, ORDER, decision, RequestOptions(**options)).id

    return create


def test_an_action_is_described_by_the_appliance(owner: Browser, ask_action: Ask, acme_things: Resources) -> None:
    approval_id = ask_action(title="Just a greeting", reason="trust me")
    page = show(owner, approval_id)
    digest = get_approval(acme_things, approval_id).about.digest
    assert digest is not None
    for part in (
        "<h1>Call create_order of erp</h1>", "An agent run requests approval to perform this action once.",
        "erp.example:443", "http 1.2", "erp@3", "A\\u202eB", "&lt;b&gt;", "orders are approved",
        "<code>orders/write</code>", "mailbox of sales",
        "Requester's message", "Just a greeting", "trust me", digest, "v7",
        "&#34;operation&#34;:&#34;create_order&#34;",
        "<dd>clerk</dd>", "untrusted",
    ):  # fmt: skip
        assert part in page, part
    assert page.index("create_order") < page.index("Just a greeting")
    assert "\u202e" not in page
    inbox = owner.get(owner.at("acme", "/console/approvals?limit=500")).text
    assert "create_order of erp" in inbox
    assert "agent clerk" in inbox
    for part in ("<dt>Sku</dt><dd>A\\u202eB</dd>", "<dt>Lines · N</dt><dd>1</dd>", "<dd>&lt;b&gt;</dd>", "Full input"):
        assert part in inbox, part
    assert "which writes" not in inbox


def test_decisions_are_listed_and_each_person_decides_once(signed_in: SignedIn, owner: Browser, ask_action: Ask) -> None:
    approval_id = ask_action(2)
    assert "0 of 2 people have approved" in show(owner, approval_id)
    page = send(owner, approval_id, verdict="approve", comment="one of us")
    for part in (
        "1 of 2 people have approved",
        "<strong>owner@acme.test</strong> approved",
        "one of us",
        "You have already decided",
    ):
        assert part in page, part
    assert "already decided" in send(owner, approval_id, 409, verdict="approve")


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ("status = 'used', used_at = 1, used_by = 'call:call_1'", "call:call_1"),
        ("status = 'expired'", "it expired before it was used"),
        ("status = 'cancelled'", "it was withdrawn before it was used"),
    ],
)
def test_an_approved_action_shows_its_result(owner: Browser, ask_action: Ask, change: str, text: str) -> None:
    approval_id = ask_action()
    assert "The action has not run yet" in send(owner, approval_id, verdict="approve")
    db.write(lambda: db.execute(f"UPDATE approval SET {change} WHERE id = ?", (approval_id,)))  # noqa: S608  our own words
    page = show(owner, approval_id)
    assert text in page
    assert "<form" not in page.partition('id="content"')[2].partition("</main>")[0]


def test_several_are_decided_from_the_list(owner: Browser, ask: Ask, ask_action: Ask, acme_things: Resources) -> None:
    first, second, over, left = ask(title="First <i>"), ask_action(), ask(title="Over"), ask(title="Left")
    db.write(lambda: db.execute("UPDATE approval SET status = 'cancelled', closed_at = created_at WHERE id = ?", (over,)))
    inbox = owner.get(owner.at("acme", "/console/approvals?limit=500")).text
    assert f'type="checkbox" name="approval" value="{first}"' in inbox
    form = {"approval": [first, second, over], "verdict": ["reject"], "comment": ["not now"]}
    page = owner.post(owner.at("acme", "/console/approvals"), form)
    assert page.status_code == 200
    for part in ("2 requests were decided, 1 was not.", "First &lt;i&gt;", "cancelled this request", "create_order of erp"):
        assert part in page.text, part
    statuses = [get_approval(acme_things, each).status for each in (first, second, over, left)]
    assert statuses == ["rejected", "rejected", "cancelled", "pending"]
    assert get_approval(acme_things, second).comment == "not now"
    nothing = owner.post(owner.at("acme", "/console/approvals"), {"verdict": "approve"})
    assert (nothing.status_code, "Select 1 to 100 requests" in nothing.text) == (422, True)


def test_a_request_of_another_tenant_is_not_found(signed_in: SignedIn, ask: Ask, acme_things: Resources) -> None:
    stranger, approval_id = signed_in("owner@globex.test"), ask(title="Secret of acme")
    for path in (approval_id, "apr_unknown"):
        assert stranger.get(stranger.at("globex", f"/console/approvals/{path}")).status_code == 404
        assert stranger.post(stranger.at("globex", f"/console/approvals/{path}"), {"verdict": "approve"}).status_code == 404
    assert "Secret of acme" not in stranger.get(stranger.at("globex", "/console/approvals?state=all")).text
    assert get_approval(acme_things, approval_id).status == "pending"


def test_expired_and_cancelled_requests_say_so(owner: Browser, ask: Ask) -> None:
    late, ended = ask(), ask()
    db.write(lambda: db.execute("UPDATE approval SET expires_at = 1 WHERE id = ?", (late,)))
    db.write(lambda: db.execute("UPDATE approval SET status = 'cancelled', closed_at = created_at WHERE id = ?", (ended,)))
    for approval_id, text in ((late, "No one decided in time"), (ended, "The execution that requested this has ended")):
        page = show(owner, approval_id)
        assert text in page
        assert "<form" not in page.partition('id="content"')[2].partition("</main>")[0]
        assert send(owner, approval_id, 409, verdict="approve")


def test_an_execution_says_what_it_waits_for(owner: Browser, acme_things: Resources) -> None:
    approval_id = acme_things.approval(title="Ship it?")
    execution = get_approval(acme_things, approval_id).origin.execution_id
    waits = [
        {"kind": "human", "step": "approve", "call": 1, "approval_id": approval_id, "title": "Ship it?",
         "until": "2031-01-01T00:00:00Z"},
        {"kind": "event", "step": "pay", "call": 2, "name": "paid"},
    ]  # fmt: skip
    waiting_for = db.dump_json({"step": "approve", "waits": waits})
    # A new fence, because the runner may still be about to write the same state.
    sql = "UPDATE execution SET status = 'waiting', wait_reason = 'approval', waiting_for = ?, fence = fence + 9 WHERE id = ?"
    db.write(lambda: db.execute(sql, (waiting_for, execution)))
    page = owner.get(owner.at("acme", f"/console/executions/{execution}")).text
    for part in (f'<a href="/console/approvals/{approval_id}">Ship it?</a>', "for the event:", " paid", "Step approve."):
        assert part in page
    assert "more" not in page.partition("Details")[0].partition("for the event")[2]
    waiting_for = db.dump_json({"waits": waits[1:] * 23})
    db.write(lambda: db.execute(sql, (waiting_for, execution)))
    assert "And 3 more." in owner.get(owner.at("acme", f"/console/executions/{execution}")).text


def test_every_kind_of_wait_is_described() -> None:
    row = Execution(wait_reason="timer", waiting_for={"step": "pause", "until": "x"}, next_run_at=5)
    assert list_waits(row) == [Wait("Waiting for a set time", step="pause", until=5)]
    row.waiting_for = {
        "waits": [
            {"kind": "timer", "step": "a", "until": "1970-01-01T00:00:01Z"},
            {"kind": "child", "execution_id": "exe_2", "process_id": "send-invoice"},
            {"kind": "child"},
            {"kind": "retry"},
            {"kind": "human"},
            {"kind": "llm_profile", "profile": "default", "approval_id": "apr_1", "step": "ask"},
            {"kind": "moon"},
        ]
    }
    assert list_waits(row) == [
        Wait("Waiting for a decision", "the request", next="It continues once someone who may decide has decided."),
        Wait("Waiting for a set time", step="a", until=1000),
        Wait("Waiting for an execution of", "send-invoice", "/console/executions/exe_2"),
        Wait("Waiting for another execution"),
        Wait("Waiting for the next attempt", next="The last attempt failed. See the step below for the error."),
        Wait(
            "Waiting for the LLM profile", "default", "/console/approvals/apr_1", "ask",
            next="It continues when the profile is available or someone answers in its place.",
        ),
        Wait("Waiting"),
    ]


def test_details_are_described_completely() -> None:
    top = describe({"a_b": 1, "c": {"d": {"e": {"f": 2}}}, "g": [{"h": None}, {"i": "x"}], "j": [], "k": ["l", False]})
    pairs = dict(top.pairs)
    assert (pairs["A b"].text, pairs["J"].text, pairs["K"].rows) == ("1", "[]", [["l"], ["no"]])
    assert (pairs["G"].columns, pairs["G"].rows) == (["H", "I"], [["\N{EN DASH}", ""], ["", "x"]])
    deepest = dict(dict(pairs["C"].pairs)["D"].pairs)["E"]
    assert [(name, block.text) for name, block in deepest.pairs] == [("F", "2")]
    mixed = describe([{"op": "create", "values": {"text": "Tea"}}, 3])
    assert [block.kind for block in mixed.items] == ["pairs", "text"]
    assert dict(dict(mixed.items[0].pairs)["Values"].pairs)["Text"].text == "Tea"
    endless: Any = "x"
    for _ in range(9):
        endless = {"a": endless}
    block = describe(endless)
    while block.kind == "pairs":
        block = block.pairs[0][1]
    assert (block.kind, block.text.count("a")) == ("json", 4)
    wide = describe([{str(n): n for n in range(9)}])
    assert (wide.kind, len(wide.items[0].pairs)) == ("items", 9)


def test_every_value_of_an_input_has_a_name_in_the_inbox() -> None:
    operations = [{"op": "create", "values": {"text": "Tea", "tags": ["a", 1]}}]
    details = {"operations": operations, "dry_run": False, "lines": [{"n": 1}, {"n": 2}]}
    assert list(leaves(details)) == [
        ("Operations · Op", "create"), ("Operations · Values · Text", "Tea"), ("Operations · Values · Tags", "a, 1"),
        ("Dry run", "no"), ("Lines 1 · N", "1"), ("Lines 2 · N", "2"),
    ]  # fmt: skip


def test_a_long_text_is_folded_and_whole() -> None:
    long = describe("word " * 200)
    assert (long.is_long, long.beginning.startswith("word word"), len(long.beginning)) == (True, True, 121)
    assert not describe("short").is_long


def test_every_tool_that_may_need_an_approval_is_called_in_words(staff: Running) -> None:
    of_their_own = {"request_human_input", "get_human_input", "execute_tenant_integration"}
    assert set(staff.services.agents.tools.names()) - of_their_own == set(TOOL_LABELS)
