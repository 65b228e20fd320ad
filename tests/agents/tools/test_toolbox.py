"""The one way to call a tool: scope, arguments, policy, approval, verb, answer."""

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from appliance.agents.tools.entities import entity_tools
from appliance.agents.tools.tool import APPROVAL_ID, Caller, PendingResult, Tool
from appliance.agents.tools.toolbox import Toolbox
from appliance.core.database import db
from appliance.core.errors import (
    ApprovalRequired,
    Conflict,
    NotFound,
    PayloadTooLarge,
    PolicyDenied,
    ScopeMissing,
    ValidationFailed,
)
from appliance.core.scope import TenantScope
from appliance.governance import Subject, UsedApproval
from appliance.governance.policies import ToolAction, Verdict

COUNT = {"type": "object", "required": ["count"], "properties": {"count": {"type": "integer"}}, "additionalProperties": False}
CALLER = Caller(TenantScope("acme", "key:1", frozenset({"entities.read", "entities.write"})), Subject("key:1", "mcp"))


@dataclass
class Counter:
    """A toolbox whose policy says what the test wants, with one tool that counts."""

    verdict: Verdict = "allow"
    calls: list[Mapping[str, Any]] = field(default_factory=list)
    actions: list[ToolAction] = field(default_factory=list)
    consumed: list[str | None] = field(default_factory=list)

    def permit(
        self,
        scope: TenantScope,
        subject: Subject,
        action: ToolAction,
        approval_id: str | None = None,
        used_approval: UsedApproval | None = None,
    ) -> "Permission":
        self.actions.append(action)
        if self.verdict == "deny":
            raise PolicyDenied("the test says so")
        if self.verdict == "require_approval" and approval_id is None:
            raise ApprovalRequired("somebody must agree")
        return Permission(self, action, approval_id)

    def recall(self, scope: TenantScope, subject: Subject, action: ToolAction) -> "Permission":
        return self.permit(scope, subject, action, "apr_before")

    def approved_input(self, scope: TenantScope, approval_id: str) -> Mapping[str, Any]:
        return {}

    def call(self, _: Caller, arguments: Mapping[str, Any]) -> dict[str, Any]:
        self.calls.append(arguments)
        return {"count": len(self.calls)}


@dataclass
class Permission:
    counter: Counter
    action: ToolAction
    approval_id: str | None

    @property
    def resumable_approval(self) -> UsedApproval | None:
        return UsedApproval(self.approval_id, "digest") if self.approval_id else None

    @property
    def needs_write(self) -> bool:
        return self.approval_id is not None

    def consume(self, by: str) -> ToolAction:
        db.after_commit(lambda: self.counter.consumed.append(self.approval_id))
        if self.approval_id == "apr_used":
            raise Conflict("this approval was used")
        return self.action

    def redact(self, result: Any) -> Any:
        return result | {"step": "hidden"} if "step" in result else result


@pytest.fixture
def counter() -> Counter:
    return Counter()


@pytest.fixture
def database(store_url: str) -> Iterator[None]:
    db.open_database(store_url)
    yield
    db.close_database()


def tool_of(call: Callable[[Caller, Mapping[str, Any]], dict[str, Any] | PendingResult], **more: Any) -> Tool:
    schema = {"type": "object", "properties": {"step": {"type": "integer"}}, "additionalProperties": False}
    tool = Tool("count", "Count", "Counts its calls.", schema, COUNT, "write", frozenset({"entities.write"}), call)
    return replace(tool, **more)


def box_of(counter: Counter, tool: Tool | None = None) -> Toolbox:
    box = Toolbox(counter)
    box.add(tool or tool_of(counter.call))
    return box


@pytest.mark.writes_once(reason="counts calls")
def test_an_allowed_call_runs_and_is_evaluated_with_its_arguments(counter: Counter, database: None) -> None:
    assert box_of(counter).call(CALLER, "count", {"step": 2}) == {"count": 1}
    assert counter.calls == [{"step": 2}]
    assert counter.actions == [ToolAction("count", "write", {"step": 2})]


def test_a_denied_call_does_not_run_and_says_why(counter: Counter) -> None:
    counter.verdict = "deny"
    with pytest.raises(PolicyDenied, match="the test says so"):
        box_of(counter).call(CALLER, "count", {"step": 2})
    assert counter.calls == []


@pytest.mark.writes_once(reason="counts calls")
def test_an_approval_is_required_and_consumed_in_the_write_that_calls(counter: Counter, database: None) -> None:
    counter.verdict = "require_approval"
    box = box_of(counter)
    with pytest.raises(ApprovalRequired, match="somebody must agree"):
        box.call(CALLER, "count", {"step": 2})
    with pytest.raises(Conflict):
        box.call(CALLER, "count", {"step": 2, APPROVAL_ID: "apr_used"})
    assert counter.calls == []
    assert box.call(CALLER, "count", {"step": 2, APPROVAL_ID: "apr_1"}) == {"count": 1}
    assert counter.consumed == ["apr_1"]
    assert counter.calls == [{"step": 2}]
    assert {APPROVAL_ID in action.input for action in counter.actions} == {False}


def test_a_reading_tool_that_needs_an_approval_runs_once_approved(counter: Counter, database: None) -> None:
    counter.verdict = "require_approval"
    query = replace(entity_tools()[0], call=lambda c, a: counter.call(c, a) and {"items": []})
    box = box_of(counter, query)
    assert APPROVAL_ID in box.get("query_entities").input_schema["properties"]
    assert box.call(CALLER, "query_entities", {"collection": "orders", APPROVAL_ID: "apr_1"}) == {"items": []}
    assert (counter.consumed, counter.calls) == (["apr_1"], [{"collection": "orders"}])
    with pytest.raises(ValidationFailed) as refused:
        box.call(CALLER, "query_entities", {"collection": "orders", APPROVAL_ID: 7})
    assert [detail.pointer for detail in refused.value.details] == ["/approval_id"]


def test_a_tool_that_consumes_by_itself_does_so_in_its_own_write(counter: Counter, database: None) -> None:
    counter.verdict = "require_approval"
    seen: list[list[str | None]] = []

    def call(caller: Caller, arguments: Mapping[str, Any]) -> dict[str, Any]:
        seen.append(counter.consumed.copy())
        db.write(caller.consume)
        seen.append(counter.consumed.copy())
        return {"count": 1}

    box = box_of(counter, tool_of(call, consumes=True))
    assert box.call(CALLER, "count", {APPROVAL_ID: "apr_1"}) == {"count": 1}
    assert seen == [[], ["apr_1"]]


def test_fields_hidden_by_rules_are_redacted(counter: Counter) -> None:
    box = box_of(counter, tool_of(lambda c, a: {"step": 7}, output_schema={"type": "object"}, effect="read"))
    assert box.call(CALLER, "count", {}) == {"step": "hidden"}


def test_a_caller_without_the_scope_is_refused_before_policies_are_evaluated(counter: Counter) -> None:
    poor = Caller(replace(CALLER.scope, scopes=frozenset({"entities.read"})), CALLER.subject)
    box = box_of(counter)
    with pytest.raises(ScopeMissing, match=r"entities\.write"):
        box.call(poor, "count", {})
    assert (counter.actions, counter.calls) == ([], [])
    assert ([tool.name for tool in box.list_offered(poor.scope)], [tool.name for tool in box.list_offered(CALLER.scope)]) == (
        [],
        ["count"],
    )


def test_arguments_that_do_not_fit_are_refused_with_a_pointer(counter: Counter) -> None:
    with pytest.raises(ValidationFailed) as refused:
        box_of(counter).call(CALLER, "count", {"step": "two", "more": 1})
    assert sorted(detail.pointer for detail in refused.value.details) == ["/more", "/step"]
    assert counter.calls == []


def test_an_unknown_tool_is_not_found_and_two_of_one_name_are_refused(counter: Counter) -> None:
    box = box_of(counter)
    with pytest.raises(NotFound):
        box.call(CALLER, "other", {})
    with pytest.raises(ValueError, match="the tool count is already registered"):
        box.add(tool_of(counter.call))


def test_an_answer_that_does_not_match_the_tools_schema_is_a_bug(counter: Counter) -> None:
    box = box_of(counter, tool_of(lambda caller, arguments: {"count": "one"}, effect="read"))
    with pytest.raises(RuntimeError, match="output schema"):
        box.call(CALLER, "count", {})


def test_a_tool_that_governs_itself_gets_the_approval_and_is_not_evaluated_twice(counter: Counter) -> None:
    counter.verdict = "deny"
    box = box_of(counter, tool_of(counter.call, describe=lambda c, a: ToolAction("count", "write", a, host="there")))
    assert box.call(CALLER, "count", {APPROVAL_ID: "apr_1"}) == {"count": 1}
    assert (counter.actions, counter.calls) == ([], [{APPROVAL_ID: "apr_1"}])
    described = box.action_of(CALLER, "count", {"step": 1, APPROVAL_ID: "apr_1"})
    assert described == ToolAction("count", "write", {"step": 1}, host="there")


def test_a_result_that_comes_later_is_waited_for(counter: Counter) -> None:
    over: Future[None] = Future()
    looks: list[bool] = []

    def look(last: bool) -> dict[str, Any] | None:
        looks.append(last)
        if len(looks) == 1:
            over.set_result(None)
            return None
        return {"count": 7}

    assert box_of(counter, tool_of(lambda c, a: PendingResult(look, 60, over), effect="read")).call(CALLER, "count", {}) == {
        "count": 7
    }
    assert looks == [False, False]


def test_a_finished_result_that_is_not_visible_yet_is_polled(counter: Counter) -> None:
    over: Future[None] = Future()
    over.set_result(None)
    looks: list[bool] = []

    def look(last: bool) -> dict[str, Any] | None:
        looks.append(last)
        return {"count": 7} if last else None

    assert box_of(counter, tool_of(lambda c, a: PendingResult(look, 0.3, over), effect="read")).call(CALLER, "count", {}) == {
        "count": 7
    }
    assert len(looks) <= 3  # a look at the start, one after POLL_SECONDS, the last one


def test_on_timeout_the_current_result_is_returned(counter: Counter) -> None:
    box = box_of(counter, tool_of(lambda c, a: PendingResult(lambda last: {"count": 0} if last else None, 0.01), effect="read"))
    assert box.call(CALLER, "count", {}) == {"count": 0}


LONG = {
    "type": "object", "properties": {name: {} for name in ("items", "text", "output", "truncated")}, "additionalProperties": False,
}  # fmt: skip


@pytest.mark.parametrize(
    ("result", "check"),
    [
        ({"items": ["x" * 1000] * 400}, lambda answer: 200 < len(answer["items"]) < 262),
        ({"text": "ä" * 200_000}, lambda answer: 100_000 < len(answer["text"]) < 132_000 and set(answer["text"]) == {"ä"}),
        ({"output": {"rows": ["x" * 1000] * 400}}, lambda answer: "output" not in answer),
    ],
)
def test_a_result_that_is_too_long_is_truncated_and_marked(counter: Counter, result: Any, check: Callable[[Any], bool]) -> None:
    tool = tool_of(lambda c, a: result, effect="read", output_schema=LONG, long=tuple(result))
    answer = box_of(counter, tool).call(CALLER, "count", {})
    assert answer["truncated"] == list(result)
    assert check(answer)


def test_a_page_that_has_a_next_one_is_not_cut(counter: Counter) -> None:
    rows = [{"text": "x" * 1000}] * 400
    query = replace(entity_tools()[0], call=lambda c, a: {"items": rows, "next_cursor": "behind the 400th"})
    with pytest.raises(PayloadTooLarge, match="smaller limit"):
        box_of(counter, query).call(CALLER, "query_entities", {"collection": "orders"})


def test_a_result_that_cannot_be_cut_is_refused(counter: Counter) -> None:
    box = box_of(counter, tool_of(lambda c, a: {"text": "x" * 300_000}, effect="read", output_schema=LONG))
    with pytest.raises(PayloadTooLarge, match="256 KiB"):
        box.call(CALLER, "count", {})
