"""What a redact rule hides appears nowhere else: not in errors, logs, circuits or the audit trail."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from appliance.connectors.contract import Context, Rejected, TransientError
from appliance.core.database import db
from appliance.governance.executor.redaction import redact_hosts
from appliance.governance.executor.requests import ActionFailed
from appliance.governance.executor.tool_actions import build_tool_action
from appliance.integrations import FAILURES, IntegrationSpec
from tests.governance.ruling import put_rules
from tests.governance.test_governor import expect_refusal, rows
from tests.integrations.world import Ledger, World

HIDE = {"id": "hide", "effect": "allow", "reason": "private", "obligations": {"redact": ["/deep/iban"]}}
QUOTES: dict[str, tuple[Callable[[], Exception], str]] = {
    "refusal": (lambda: Rejected("iban DE89 is locked", details={"status": 409, "excerpt": "DE89"}), "rejected (409)"),
    "outage": (lambda: TransientError("no answer about DE89", outcome="not_done"), "transient_error"),
    "bug": (lambda: KeyError("DE89"), "system_error"),
}


def stored_text(world: World) -> str:
    """Everything stored about calls, their log lines, circuits and the audit trail."""
    rows = []
    for table in ("integration_call", "log_line", "integration_circuit", "audit_entry", "webhook_delivery"):
        rows += db.rows(f"SELECT * FROM {table} WHERE tenant_id = ?", ("one",))  # noqa: S608 - our own names
    return str(rows)


@pytest.mark.parametrize("failure", QUOTES)
def test_with_a_redact_rule_a_failure_does_not_quote_the_foreign_system(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, failure: str
) -> None:
    world.ledger()
    make_error, summary = QUOTES[failure]

    def call(ledger: Ledger, action: str, payload: Any, ctx: Context) -> dict[str, Any]:
        ctx.log("warn", "about DE89", {"iban": "DE89"})
        raise make_error()

    monkeypatch.setattr(Ledger, "call", call)
    put_rules(world.one, HIDE)
    for number in range(FAILURES + 1):  # the last meets an open circuit, which remembers the failure before
        action = ("look", "book")[number % 2]
        error = expect_refusal(world, world.request(action), ActionFailed)
        assert "DE89" not in error.message + json.dumps(error.extra) + str(error.details)
    assert "DE89" not in stored_text(world)
    assert "DE89" not in caplog.text
    assert rows(world)[0].error["message"].startswith(f"look of books failed: {summary}")


def test_without_a_redact_rule_a_failure_quotes_the_foreign_system(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.ledger()
    make_error, _ = QUOTES["refusal"]

    def call(*_: Any) -> dict[str, Any]:
        raise make_error()

    monkeypatch.setattr(Ledger, "call", call)
    assert "DE89" in expect_refusal(world, world.request(), ActionFailed).message
    assert "DE89" in stored_text(world)


def test_hosts_named_only_by_the_foreign_system_are_hidden() -> None:
    traffic = {"hosts": ["erp.example:8080", "ERP.example", "de89.example"], "requests": 3}
    assert redact_hosts(traffic, "erp.example, other.example") == {"hosts": ["erp.example:8080", "ERP.example"], "requests": 3}
    assert redact_hosts(None, "erp.example") is None


def test_the_host_of_a_call_is_given_in_full_or_left_empty(world: World) -> None:
    for slug, host in (("short", ".".join(["long"] * 200)), ("endless", ".".join(["longer"] * 2000))):
        world.integrations.create_integration(world.one, slug, IntegrationSpec("ledger", {"token": "tok-4711", "host": host}))
    action = build_tool_action(world.integrations.ready(world.one, "short"), "look", "read", {})
    assert action.host == ".".join(["long"] * 200)
    assert build_tool_action(world.integrations.ready(world.one, "endless"), "look", "read", {}).host == ""
