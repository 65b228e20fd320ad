"""What a draft would have changed: recorded calls are evaluated again, and marked undecidable where the record lacks data."""

from typing import Any

import pytest

from appliance.core import clock
from appliance.core.database import db
from appliance.core.errors import InvalidCursor, ValidationFailed
from appliance.core.pages import encode_cursor
from appliance.governance.policies import replay as module
from appliance.governance.policies.language import parse_policy
from appliance.governance.policies.replay import ReplayReport, ReplayRequest, replay
from appliance.governance.policies.service import PolicyService
from appliance.integrations import recorded_calls
from appliance.integrations.models import CallRow
from tests.governance.policies.facts import policy, rule
from tests.integrations.world import World

FAR_FUTURE = 1 << 45


def run_replay(world: World, *rules: dict[str, Any], **options: Any) -> ReplayReport:
    request = ReplayRequest(options.pop("since", 0), options.pop("until", FAR_FUTURE), **options)
    return replay(world.one, parse_policy(policy(*rules, mode="observe"), "draft"), request)


def book_calls(world: World, *amounts: int) -> None:
    world.ledger()
    for amount in amounts:
        world.executor.execute(world.one, world.request(input={"amount": amount}))


def update_records(world: World, **changes: Any) -> None:
    """Change the stored call records."""
    db.write(lambda: world.one.update(CallRow, **changes).execute())


def test_calls_are_judged_without_the_draft_and_with_it(world: World) -> None:
    book_calls(world, 5, 50, 500)
    report = run_replay(world, rule("deny", operations=["book"], when={"input": {"amount": {"_gte": 50}}}))
    assert (report.scanned, dict(report.before), dict(report.after)) == (3, {"allow": 3}, {"allow": 1, "deny": 2})
    changes = [(each.result, each.before, each.after, each.rules, each.call.action, each.call.input) for each in report.changed]
    assert changes == [("changed", "allow", "deny", ("draft/deny",), "book", None)] * 2
    assert (report.undecidable_count, report.next_cursor) == (0, None)
    assert replay(world.two, parse_policy(policy(rule("deny")), "draft"), ReplayRequest(0, FAR_FUTURE)).scanned == 0


def test_a_draft_replaces_the_active_policy_of_its_name(world: World) -> None:
    book_calls(world, 5)
    policies = PolicyService()
    for name, document in (("draft", policy(rule("require_approval"))), ("other", policy(rule(id="fine")))):
        policies.save_draft(world.one, name, document)
        policies.activate(world.one, name)
    report = run_replay(world, rule(id="open"))
    assert (dict(report.before), dict(report.after)) == ({"require_approval": 1}, {"allow": 1})
    assert set(report.changed[0].rules) == {"draft/open", "other/fine"}
    assert policies.get_policy(world.one, "draft").active_version == 1


def test_the_caller_is_read_from_the_recorded_decision(world: World) -> None:
    book_calls(world, 5)
    agent = {"verdict": "allow", "actor": "key:k", "via": "agent", "agent": "clerk", "run": "run_1", "tainted_by": ["mail:x"]}
    update_records(world, decision=agent)
    report = run_replay(world, rule(subject={"agents": ["clerk"], "tainted": True}))
    assert (dict(report.before), dict(report.after)) == ({"deny": 1}, {"allow": 1})
    assert dict(run_replay(world, rule()).after) == {"require_approval": 1}
    update_records(world, decision=None)
    assert dict(run_replay(world, rule("deny", subject={"via": ["rest"]})).after) == {"deny": 1}


@pytest.mark.parametrize(
    ("changes", "test", "reason"),
    [
        ({"input": None}, {"when": {"input": {"amount": {"_gt": 1}}}}, "was not stored, or was redacted"),
        ({"input": {"note": "to [redacted]"}}, {"when": {"input": {"note": {"_contains": "x"}}}}, "redacted"),
        ({"input": {"a [redacted]": {"b": 1}}}, {"when": {"input": {"amount": {"_null": True}}}}, "redacted"),
        ({}, {"when": {"action": {"credential": "books@1"}}}, "was not stored"),
        ({"traffic": None}, {"hosts": ["ledger.example.com"]}, "the host was not recorded"),
        ({"traffic": None}, {"when": {"action": {"host": "x"}}}, "was not stored"),
    ],
)  # fmt: skip
def test_calls_that_cannot_be_evaluated_are_counted_separately(world: World, changes: Any, test: Any, reason: str) -> None:
    book_calls(world, 5)
    update_records(world, traffic={"hosts": ["ledger.example.com"]})
    if changes:
        update_records(world, **changes)
    report = run_replay(world, rule("deny", **test))
    assert (report.scanned, report.changed, report.undecidable_count) == (1, [], 1)
    assert (dict(report.before), dict(report.after)) == ({"allow": 1}, {"undecidable": 1})
    [unknown] = report.undecidable[0].unknown
    assert unknown.startswith("draft/deny: ")
    assert reason in unknown
    assert run_replay(world, rule("deny", **test), rule("deny", id="all")).changed[0].after == "deny"
    assert run_replay(world, {**rule("deny", **test), "operations": ["look"]}).undecidable_count == 0


def test_trust_in_skills_is_not_recorded(world: World) -> None:
    book_calls(world, 5)
    update_records(world, decision={"actor": "key:k", "via": "agent", "agent": "clerk", "skills": [["orders", "sha256:aa"]]})
    assert run_replay(world, rule(subject={"skills": ["orders"]})).undecidable_count == 1
    assert dict(run_replay(world, rule(subject={"skills": ["sha256:aa"]})).after) == {"allow": 1}
    assert dict(run_replay(world, rule("deny", subject={"skills": ["orders"]})).after) == {"deny": 1}


def test_a_call_undecidable_on_both_sides_is_unchanged(world: World) -> None:
    book_calls(world, 5)
    update_records(world, input=None)
    policies = PolicyService()
    policies.save_draft(world.one, "other", policy(rule("deny", when={"input": {"amount": 5}})))
    policies.activate(world.one, "other")
    report = run_replay(world, rule("deny", operations=["look"]))
    assert (dict(report.before), report.changed, report.undecidable_count) == ({"undecidable": 1}, [], 0)


def test_an_evaluation_error_denies_in_a_replay(world: World) -> None:
    book_calls(world, 5)
    report = run_replay(world, rule(when={"input": {"amount": {"_starts_with": "x"}}}))
    assert [each.after for each in report.changed] == ["deny"]


def test_pages_add_up_and_stay_within_bounds(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    book_calls(world, *range(7))
    monkeypatch.setattr(recorded_calls, "_FEW", 2)
    test = rule("deny", when={"input": {"amount": {"_lt": 5}}})
    pages: list[ReplayReport] = []
    cursor: str | None = None
    while not pages or cursor:
        pages.append(run_replay(world, test, limit=2, cursor=cursor))
        cursor = pages[-1].next_cursor
    assert [len(page.changed) for page in pages] == [2, 2, 1]
    assert sum(page.scanned for page in pages) == 7
    assert len({each.call.id for page in pages for each in page.changed}) == 5
    monkeypatch.setattr(module, "MAX_SCANNED", 3)
    partial = run_replay(world, test)
    assert (partial.scanned, bool(partial.next_cursor)) == (3, True)
    monkeypatch.setattr(module, "MAX_SECONDS", -1.0)
    assert run_replay(world, test).scanned == 1
    newest = clock.now_ms() + 1
    assert run_replay(world, test, since=newest, until=newest + 1).scanned == 0


def test_a_request_that_makes_no_sense_is_refused(world: World) -> None:
    for bad in ({"limit": 0}, {"limit": 501}, {"since": 5, "until": 5}):
        with pytest.raises(ValidationFailed):
            run_replay(world, rule(), **bad)
    for cursor in ("x", encode_cursor(["x", "y"], "replay"), encode_cursor([1, 2], "replay"), encode_cursor([1, "a"], "other")):
        with pytest.raises(InvalidCursor):
            run_replay(world, rule(), cursor=cursor)
