"""Where rules hide a part of what an integration says, nothing else of the call says it either."""

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
from tests.governance.test_governor import refused, rows
from tests.integrations.world import Ledger, World

HIDE = {"id": "hide", "effect": "allow", "reason": "private", "obligations": {"redact": ["/deep/iban"]}}
QUOTES: dict[str, tuple[Callable[[], Exception], str]] = {
    "refusal": (lambda: Rejected("iban DE89 is locked", details={"status": 409, "excerpt": "DE89"}), "rejected (409)"),
    "outage": (lambda: TransientError("no answer about DE89", outcome="not_done"), "transient_error"),
    "bug": (lambda: KeyError("DE89"), "system_error"),
}


def everything(world: World) -> str:
    """All that is kept of calls, their lines, circuits and the audit trail."""
    told = []
    for table in ("integration_call", "log_line", "integration_circuit", "audit_entry", "webhook_delivery"):
        told += db.rows(f"SELECT * FROM {table} WHERE tenant_id = ?", ("one",))  # noqa: S608 - our own names
    return str(told)


@pytest.mark.parametrize("how", QUOTES)
def test_a_failure_says_nothing_of_the_foreign_system(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    world.ledger()
    make, told = QUOTES[how]

    def call(ledger: Ledger, action: str, given: Any, ctx: Context) -> dict[str, Any]:
        ctx.log("warn", "about DE89", {"iban": "DE89"})
        raise make()

    monkeypatch.setattr(Ledger, "call", call)
    put_rules(world.one, HIDE)
    for number in range(FAILURES + 1):  # the last meets an open circuit, which remembers the failure before
        action = ("look", "book")[number % 2]
        error = refused(world, world.request(action), ActionFailed)
        assert "DE89" not in error.message + json.dumps(error.extra) + str(error.details)
    assert "DE89" not in everything(world)
    assert "DE89" not in caplog.text
    assert rows(world)[0].error["message"].startswith(f"look of books failed: {told}")


def test_without_such_a_rule_a_failure_speaks(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.ledger()
    make, _ = QUOTES["refusal"]

    def call(*_: Any) -> dict[str, Any]:
        raise make()

    monkeypatch.setattr(Ledger, "call", call)
    assert "DE89" in refused(world, world.request(), ActionFailed).message
    assert "DE89" in everything(world)


def test_hosts_that_only_the_foreign_system_named_are_hidden() -> None:
    told = {"hosts": ["erp.example:8080", "ERP.example", "de89.example"], "requests": 3}
    assert redact_hosts(told, "erp.example, other.example") == {"hosts": ["erp.example:8080", "ERP.example"], "requests": 3}
    assert redact_hosts(None, "erp.example") is None


def test_whom_a_call_would_reach_is_told_whole_or_not_at_all(world: World) -> None:
    for slug, host in (("short", ".".join(["long"] * 200)), ("endless", ".".join(["longer"] * 2000))):
        world.integrations.create_integration(world.one, slug, IntegrationSpec("ledger", {"token": "tok-4711", "host": host}))
    whole = build_tool_action(world.integrations.ready(world.one, "short"), "look", "read", {})
    assert whole.host == ".".join(["long"] * 200)
    assert build_tool_action(world.integrations.ready(world.one, "endless"), "look", "read", {}).host == ""
