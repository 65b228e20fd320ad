"""A kill switch blocks every way to reach a foreign system, and no other way exists."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import appliance
from appliance.connectors.contract import Rejected
from appliance.core.database import db
from appliance.core.errors import PolicyDenied
from appliance.governance import kill_switches
from appliance.governance.executor.polling import PollRequest
from appliance.governance.executor.requests import ActionFailed
from appliance.governance.subjects import Subject
from appliance.monitor import Deliverer, Webhooks, WebhookSpec, emit
from appliance.processes.engine import Claim
from appliance.processes.host import no_models
from tests.governance.ruling import ASK_FOR_WRITES, put_rules
from tests.governance.test_governor import expect_approval_needed, obtain_approval
from tests.integrations.world import Ledger, World

EGRESS_MODULES = {
    "integrations/calls.py": "calls, polls, tests and discoveries of integrations, all behind the governed executor",
    "integrations/connections.py": "the connections that these are made on",
    "llm/service.py": "requests to models, behind the segment of an agent run and the model access of a step",
    "monitor/deliveries.py": "webhooks, which are held while the tenant is off",
    "connectors/testing.py": "tests of plugins",
    "tenants/directories/client.py": "the appliance itself: people who sign in with their directory",
    "tenants/sign_in/breached_passwords.py": "the appliance itself: whether a new password is known from breaches",
    "tenants/oidc/discovery.py": "the appliance itself: people who sign in at their provider",
    "webapps/domains/probing.py": "the appliance itself: who a host name belongs to",
}
"""The modules that open a connection to an outside address, and what for."""

Attempt = Callable[[], Any]
QUEUED_BEFORE = ("what was queued before", "what was retried before")
CLERK = Subject("key:test", "agent", agent="clerk", run_id="run_1")
ALL = {"id": "all", "effect": "allow", "reason": "in this test"}


def failed_call(world: World, monkeypatch: pytest.MonkeyPatch) -> str:
    def refuse(*_: Any) -> Any:
        raise Rejected("no")

    with monkeypatch.context() as broken:
        broken.setattr(Ledger, "call", refuse)
        with pytest.raises(ActionFailed) as caught:
            world.executor.execute(world.one, world.request())
    return caught.value.call_id


def build_attempts(world: World, monkeypatch: pytest.MonkeyPatch) -> dict[str, Attempt]:
    """Every way a foreign system is called; what they depend on is created while everything is on."""
    executor = world.executor
    put_rules(world.one, ASK_FOR_WRITES)
    approval_id = obtain_approval(world, expect_approval_needed(world))
    put_rules(world.one, ALL)
    failed = failed_call(world, monkeypatch)
    queued, retried = executor.enqueue(world.one, world.request()), executor.retry(world.one, "books", failed)
    second_failure = failed_call(world, monkeypatch)
    payload = {"amount": 7, "note": "for the roof"}
    return {
        "a read": lambda: executor.execute(world.one, world.request("look")),
        "a write": lambda: executor.execute(world.one, world.request()),
        "an agent's call": lambda: executor.execute(world.one, world.request(subject=CLERK)),
        "what was approved before": lambda: executor.execute(world.one, world.request(input=payload, approval_id=approval_id)),
        "a preview": lambda: executor.execute(world.one, world.request(mode="preview")),
        "queueing": lambda: executor.enqueue(world.one, world.request()),
        "what was queued before": lambda: executor.run_queued(world.one, queued),
        "a retry": lambda: executor.retry(world.one, "books", second_failure),
        "what was retried before": lambda: executor.run_queued(world.one, retried),
        "a call that a process repeats": lambda: executor.execute(world.one, world.request(idempotency_key="exe_1.0")),
        "a poll": lambda: executor.poll(world.one, PollRequest("books", "entries", {})),
        "describing for an approval": lambda: executor.describe_action(world.one, world.request()),
        "a test": lambda: executor.test_integration(world.one, "books"),
    }


@pytest.mark.parametrize(
    ("kind", "name"), [("tenant", ""), ("integration", "books"), ("tool", "execute_tenant_integration")]
)
def test_every_attempt_to_use_something_switched_off_is_refused(
    world: World, monkeypatch: pytest.MonkeyPatch, kind: kill_switches.Kind, name: str
) -> None:
    world.ledger()
    attempts = build_attempts(world, monkeypatch)
    calls: list[str] = []
    for verb in ("call", "poll", "check"):
        monkeypatch.setattr(Ledger, verb, lambda *_, verb=verb: calls.append(verb))
    kill_switches.switch_off(world.one, kind, name, "an incident")
    for description, attempt in attempts.items():
        if description in QUEUED_BEFORE:
            attempt()  # the failure is in its record
            continue
        with pytest.raises(PolicyDenied, match="an incident"):
            attempt()
    assert calls == []
    statuses = db.rows("SELECT status FROM integration_call WHERE tenant_id = 'one' AND status NOT IN ('failed', 'succeeded')")
    assert statuses == []


def test_webhooks_of_a_switched_off_tenant_wait(world: World) -> None:
    egress = world.integrations.calls._connections.egress
    Webhooks(world.sealer, egress).create_webhook(world.one, WebhookSpec("http://127.0.0.1:9/", ("approval.requested",)))
    db.write(lambda: emit(world.one, "approval.requested", lambda: {"id": "x"}))
    deliverer = Deliverer(egress, world.sealer, kill_switches.switched_off_tenants)
    kill_switches.switch_off(world.one, "tenant", "", "an incident")
    assert deliverer.begin_due() == []
    kill_switches.switch_on(world.one, "tenant", "")
    deliveries = deliverer.begin_due()
    assert len(deliveries) == 1
    deliveries[0].result(30)


def test_a_step_asks_no_model_while_the_tenant_is_off(world: World) -> None:
    claim = Claim(world.one.with_actor("execution:exe_1"), "exe_1", "p", 1, 1, {}, None, 0, 0, 0, False, "", 0)
    kill_switches.switch_off(world.one, "tenant", "", "an incident")
    with pytest.raises(PolicyDenied, match="an incident"):
        no_models(world.sealer).ask(claim, {"profile": "default", "prompt": "Hello"}, "ask", 1e12)


def test_no_other_module_opens_outside_connections() -> None:
    root = Path(appliance.__file__).parent
    actual = {
        str(path.relative_to(root)) for path in root.rglob("*.py") if re.search(r"(?<!class )EgressClient\(", path.read_text())
    }
    assert actual == set(EGRESS_MODULES)
