"""The governed executor: every call is checked against policies, recorded, and never sent twice in doubt."""

from typing import Any

import pytest

from appliance.connectors import Preview
from appliance.connectors.testing import Answer, LoopbackServer
from appliance.core.database import db
from appliance.core.errors import (
    AddressNotAllowed,
    ApplianceError,
    ConnectorFailed,
    NotFound,
    PolicyDenied,
    ValidationFailed,
    http_status,
)
from appliance.core.pages import PageRequest
from appliance.governance.approvals.action_approvals import ActionApprovals
from appliance.governance.executor.executor import GovernedExecutor, Instance
from appliance.governance.executor.polling import PollRequest
from appliance.governance.executor.requests import ActionFailed, ActionRequest
from appliance.governance.governor import Governor
from appliance.integrations import CallFilter, CallRecord, IntegrationSpec, Origin, history
from appliance.monitor import logs
from tests.governance.ruling import DENY_WRITES, FailingPolicies, put_rules
from tests.integrations.world import Ledger, World

ORIGIN = Origin("exe_1", "push", "0", 1, 3)


def calls(world: World, **filters: Any) -> list[CallRecord]:
    return list(history.list_calls(world.one, "books", CallFilter(**filters), PageRequest()).items)


def class_of(record: CallRecord) -> str:
    assert record.error is not None
    return str(record.error["class"])


def failure(world: World, **options: Any) -> ApplianceError:
    with pytest.raises(ApplianceError) as caught:
        world.executor.execute(world.one, world.request(**options))
    return caught.value


def test_an_action_is_performed_and_recorded(world: World) -> None:
    world.ledger()
    result = world.executor.execute(world.one, world.request(input={"amount": 5}, idempotency_key="k", origin=ORIGIN))
    assert (result.status, result.effect, result.output) == ("executed", "write", {"n": 1})
    [row] = calls(world)
    assert (row.id, row.status, row.outcome, row.effect, row.connector) == (
        result.call_id, "succeeded", "done", "write", "ledger 1.0",
    )  # fmt: skip
    assert (row.input, row.output, row.key, row.sent_key) == ({"amount": 5}, {"n": 1}, "k", "k")
    assert row.origin == ORIGIN
    assert (row.actor, row.tries) == ("key:test", 1)
    assert row.finished_at is not None
    assert row.finished_at >= row.created_at


def test_a_read_is_recorded_without_a_key(world: World) -> None:
    world.ledger()
    for _ in range(2):
        world.executor.execute(world.one, world.request("look", idempotency_key="k"))
    assert [(row.effect, row.key, row.status) for row in calls(world)] == [("read", None, "succeeded")] * 2
    assert failure(world, action="look", input={"do": "Rejected"}).status == 502
    assert class_of(calls(world)[0]) == "rejected"


def test_a_preview_judges_and_sends_nothing(world: World) -> None:
    world.ledger()
    payload = {"amount": 5, "note": "tok-4711-secret"}
    result = world.executor.execute(world.one, world.request(mode="preview", input=payload))
    assert (result.status, result.effect, result.call_id) == ("previewed", "write", None)
    assert result.preview == Preview("book", {"amount": 5, "note": "[redacted]"}, ())
    with pytest.raises(ValidationFailed):
        world.executor.execute(world.one, world.request(mode="preview", input={"amount": "x"}))
    assert Ledger.booked == []
    assert calls(world) == []


@pytest.mark.parametrize(
    ("options", "error", "pointer"),
    [
        ({"action": "steal"}, ValidationFailed, "/action"),
        ({"input": {"amount": "x"}}, ValidationFailed, "/input/amount"),
        ({"input": {"y": 1}}, ValidationFailed, "/input/y"),
        ({"input": {"note": "\ud800"}}, ValidationFailed, "/input"),
        ({"input": {"amount": float("nan")}}, ValidationFailed, "/input"),
        ({"seconds": 0}, ValidationFailed, "/seconds"),
        ({"seconds": 901}, ValidationFailed, "/seconds"),
    ],
)
def test_an_invalid_request_is_refused_before_anything_is_sent(
    world: World, options: dict[str, Any], error: type[ApplianceError], pointer: str
) -> None:
    world.ledger()
    actual = failure(world, **options)
    assert isinstance(actual, error)
    assert actual.details[0].pointer == pointer
    assert (Ledger.booked, calls(world)) == ([], [])


def test_an_unknown_integration_is_not_found(world: World) -> None:
    assert isinstance(failure(world), NotFound)


# Failures of the foreign system


@pytest.mark.parametrize(
    ("do", "error_class", "retryable", "status", "row_status"),
    [
        ("AuthError", "auth_error", False, 502, "failed"),
        ("Rejected", "rejected", False, 422, "failed"),
        ("RateLimited", "rate_limited", True, 502, "failed"),
        ("TransientError not_done", "transient_error", True, 502, "failed"),
        ("TransientError unknown", "transient_error", False, 502, "waiting"),
        ("SystemFailure unknown", "system_error", False, 502, "waiting"),
        ("crash", "system_error", False, 502, "waiting"),
        ("nan", "system_error", False, 502, "waiting"),
        ("none", "system_error", False, 502, "waiting"),
    ],
)
def test_a_failure_has_a_code_and_class_and_is_recorded(
    world: World, do: str, error_class: str, retryable: bool, status: int, row_status: str
) -> None:
    world.ledger()
    error = failure(world, input={"do": do})
    assert isinstance(error, ActionFailed)
    assert isinstance(error, ConnectorFailed)
    assert (error.error_class, error.retryable, http_status(error)) == (error_class, retryable, status)
    assert error.extra["retryable"] is retryable
    assert "tok-4711" not in error.message
    [row] = calls(world)
    assert (row.status, row.id, class_of(row)) == (row_status, error.call_id, error_class)
    if do == "RateLimited":
        assert row.error is not None
        assert error.extra["retry_after"] == row.error["retry_after"] == 7.0


@pytest.mark.parametrize(
    ("do", "pointer"), [("lie", "/n"), ("lie deeply", "/deep/[redacted]")]
)  # fmt: skip
def test_an_answer_that_violates_its_schema_fails_without_quoting_the_value(
    world: World, do: str, pointer: str
) -> None:
    world.ledger(token="tok/4711~secret")
    error = failure(world, action="look", input={"do": do})
    assert isinstance(error, ActionFailed)
    assert (error.error_class, error.outcome, error.retryable) == ("system_error", "unknown", False)
    assert f"returned an answer that violates its connector's schema: the action look, at {pointer}: " in error.message
    assert error.extra["foreign"] == {"pointer": pointer, "rule": "type"}
    assert "4711" not in str(error.extra) + error.message
    [row] = calls(world)
    assert (row.status, row.output) == ("failed", None)
    assert world.integrations.health(world.one, "books").failures == 1


def test_an_item_that_violates_its_triggers_schema_fails(world: World) -> None:
    world.ledger()
    assert world.executor.poll(world.one, PollRequest("books", "entries", {})).items[0].data == {"n": 1}
    with pytest.raises(ActionFailed, match="an item of the trigger entries, at /n: ") as caught:
        world.executor.poll(world.one, PollRequest("books", "entries", {"do": "lie"}))
    assert caught.value.error_class == "system_error"
    assert "4711" not in caught.value.message


def test_a_write_with_an_invalid_answer_is_not_sent_again(world: World) -> None:
    world.ledger()
    failure(world, input={"do": "lie"}, idempotency_key="k")
    failure(world, input={"do": "lie"}, idempotency_key="k")
    assert len(Ledger.booked) == 1
    assert [row.status for row in calls(world)] == ["waiting"]


def test_an_idempotent_call_of_unknown_outcome_may_be_sent_again(world: World) -> None:
    world.ledger()
    error = failure(world, action="set", input={"do": "TransientError unknown"}, idempotency_key="k")
    assert isinstance(error, ActionFailed)
    assert error.retryable
    assert failure(world, action="set", input={"do": "TransientError unknown"}, idempotency_key="k").extra["retryable"]
    [row] = calls(world)
    assert (row.tries, row.status) == (2, "failed")


def test_a_forbidden_address_has_its_own_code(world: World) -> None:
    world.ledger()
    error = failure(world, input={"do": "AddressNotAllowed"})
    assert isinstance(error, AddressNotAllowed)
    assert error.status == 403


# Policies


def test_a_policy_denies_before_anything_is_sent(world: World) -> None:
    world.ledger()
    put_rules(world.one, DENY_WRITES)
    denied = failure(world)
    assert isinstance(denied, PolicyDenied)
    assert (denied.extra["rules"], denied.extra["verdict"]) == (["gate/no-writes"], "deny")
    assert "writes are off" in denied.message
    assert isinstance(failure(world, mode="preview"), PolicyDenied)
    world.executor.execute(world.one, world.request("look"))
    assert [each[0] for each in Ledger.booked] == ["look"]


def test_a_policy_that_fails_denies(world: World) -> None:
    world.ledger()

    broken = GovernedExecutor(
        world.integrations, Governor(FailingPolicies(), ActionApprovals(world.sealer)), Instance("instance-1", lambda *_: None)
    )
    with pytest.raises(PolicyDenied, match="could not be evaluated"):
        broken.execute(world.one, world.request())
    broken.stop()
    assert Ledger.booked == []


# Secrets


def test_secrets_are_redacted_in_the_output(world: World) -> None:
    world.ledger()
    result = world.executor.execute(world.one, world.request(input={"do": "echo", "note": "fine"}))
    assert result.output == {"said": "Bearer [redacted]", "[redacted]": ["fine"]}


def test_connector_messages_and_failures_are_logged_for_the_tenant(world: World) -> None:
    world.ledger()
    world.executor.execute(world.one, world.request("look", input={"do": "log"}, origin=ORIGIN))
    error = failure(world, input={"do": "Rejected"}, origin=ORIGIN)
    failed, logged = logs.list_lines(world.one, logs.LineFilter(), PageRequest()).items
    assert (logged.level, logged.source, logged.message, logged.fields) == (
        "info", "integration", "token [redacted]", {"token": "[redacted]"},
    )  # fmt: skip
    assert (logged.execution_id, logged.step) == ("exe_1", "push")
    assert (failed.level, failed.message) == ("error", "book of books failed: no, [redacted]")
    assert failed.fields == {"call_id": error.extra["call_id"], "class": "rejected", "outcome": "not_done"}
    assert logs.list_lines(world.two, logs.LineFilter(), PageRequest()).items == []


def test_calls_are_counted(world: World) -> None:
    world.ledger()
    world.executor.execute(world.one, world.request())
    failure(world, action="look", input={"do": "Rejected"})
    tallies = db.rows("SELECT tenant_id, kind, name, outcome, count FROM tally ORDER BY outcome")
    assert tallies == [("one", "integration", "books", "failed", 1), ("one", "integration", "books", "succeeded", 1)]


# The real connector


def test_the_http_connector_works_through_the_executor(world: World) -> None:
    server = LoopbackServer()
    try:
        server.answers["/orders"] = lambda received: Answer(201, {"Content-Type": "application/json"}, received.body)
        settings = {"base_url": server.url, "auth": {"kind": "bearer", "token": "tok-123456"}}
        world.integrations.create_integration(world.one, "erp", IntegrationSpec("http", settings))
        payload = {"url": "/orders", "json": {"number": "1"}}
        request = ActionRequest("erp", "post", payload, idempotency_key="exe_1.push", origin=ORIGIN)
        assert world.executor.execute(world.one, request).output["body"] == {"number": "1"}
        assert world.executor.execute(world.one, request).status == "recorded"
        [received] = server.received
        assert received.headers["authorization"] == "Bearer tok-123456"
        assert received.headers["idempotency-key"] == "exe_1.push"
    finally:
        server.close()


def test_an_answer_that_is_not_valid_utf8_is_cleaned_and_stored(world: World) -> None:
    server = LoopbackServer()
    try:
        server.answer("/ok", body=b'{"a\\udfff": "\\ud800", "zero": "\\u0000"}', Content_Type="application/json")
        server.answer("/bad", 400, b"\xff\x00")
        world.integrations.create_integration(world.one, "erp", IntegrationSpec("http", {"base_url": server.url}))
        result = world.executor.execute(world.one, ActionRequest("erp", "post", {"url": "/ok"}, idempotency_key="k"))
        assert result.output["body"] == {"a?": "?", "zero": "\0"}
        repeated = world.executor.execute(world.one, ActionRequest("erp", "post", {"url": "/ok"}, idempotency_key="k"))
        assert (repeated.status, repeated.output) == ("recorded", result.output)
        with pytest.raises(ActionFailed):
            world.executor.execute(world.one, ActionRequest("erp", "post", {"url": "/bad"}))
    finally:
        server.close()


def test_an_integration_that_is_down_is_a_coded_retryable_failure(world: World) -> None:
    settings = {"base_url": "http://127.0.0.1:1", "retries": {"attempts": 2, "wait_s": 0}}
    world.integrations.create_integration(world.one, "erp", IntegrationSpec("http", settings))
    with pytest.raises(ActionFailed, match="does not accept connections") as caught:
        world.executor.execute(world.one, ActionRequest("erp", "post", {"url": "/x"}, idempotency_key="k"))
    assert (caught.value.outcome, caught.value.retryable) == ("not_done", True)
