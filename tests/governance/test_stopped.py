"""What is switched off sends nothing by any road: every way to an effect is tried, and no other way exists."""

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
from tests.governance.test_governor import approved, needed
from tests.integrations.world import Ledger, World

ROADS = {
    "integrations/calls.py": "calls, polls, tests and discoveries of integrations, all behind the governed executor",
    "integrations/connections.py": "the connections that these are made on",
    "llm/service.py": "questions to models, behind the stretch of a run and ModelReach of a step",
    "monitor/deliveries.py": "webhooks, which are held while the tenant is off",
    "connectors/testing.py": "tests of plugins",
    "webapps/access/oidc.py": "the appliance itself: people who sign in at their provider",
    "webapps/domains/probing.py": "the appliance itself: who a host name belongs to",
}
"""The modules that open a connection to an outside address, and what for."""

Way = Callable[[], Any]
BY_TIME = ("what was queued before", "what was retried before")
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


def ways(world: World, monkeypatch: pytest.MonkeyPatch) -> dict[str, Way]:
    """Every way by which somebody, or time, has a foreign system called; what they rest on is made while all is on."""
    do = world.executor
    put_rules(world.one, ASK_FOR_WRITES)
    permitted = approved(world, needed(world))
    put_rules(world.one, ALL)
    failed = failed_call(world, monkeypatch)
    queued, retried = do.enqueue(world.one, world.request()), do.retry(world.one, "books", failed)
    again = failed_call(world, monkeypatch)
    given = {"amount": 7, "note": "for the roof"}
    return {
        "a read": lambda: do.execute(world.one, world.request("look")),
        "a write": lambda: do.execute(world.one, world.request()),
        "an agent's call": lambda: do.execute(world.one, world.request(subject=CLERK)),
        "what was approved before": lambda: do.execute(world.one, world.request(input=given, approval_id=permitted)),
        "a preview": lambda: do.execute(world.one, world.request(mode="preview")),
        "queueing": lambda: do.enqueue(world.one, world.request()),
        "what was queued before": lambda: do.run_queued(world.one, queued),
        "a retry": lambda: do.retry(world.one, "books", again),
        "what was retried before": lambda: do.run_queued(world.one, retried),
        "a call that a process repeats": lambda: do.execute(world.one, world.request(idempotency_key="exe_1.0")),
        "a poll": lambda: do.poll(world.one, PollRequest("books", "entries", {})),
        "describing for an approval": lambda: do.describe_action(world.one, world.request()),
        "a test": lambda: do.test_integration(world.one, "books"),
    }


@pytest.mark.parametrize(
    ("kind", "name"), [("tenant", ""), ("integration", "books"), ("tool", "execute_tenant_integration")]
)
def test_no_way_leads_to_what_is_switched_off(
    world: World, monkeypatch: pytest.MonkeyPatch, kind: kill_switches.Kind, name: str
) -> None:
    world.ledger()
    tried = ways(world, monkeypatch)
    reached: list[str] = []
    for verb in ("call", "poll", "check"):
        monkeypatch.setattr(Ledger, verb, lambda *_, verb=verb: reached.append(verb))
    kill_switches.switch_off(world.one, kind, name, "an incident")
    for what, way in tried.items():
        if what in BY_TIME:
            way()  # why it fails is in its record
            continue
        with pytest.raises(PolicyDenied, match="an incident"):
            way()
    assert reached == []
    statuses = db.rows("SELECT status FROM integration_call WHERE tenant_id = 'one' AND status NOT IN ('failed', 'succeeded')")
    assert statuses == []


def test_webhooks_of_a_tenant_that_is_off_wait_until_it_is_on(world: World) -> None:
    egress = world.integrations.calls._connections.egress
    Webhooks(world.sealer, egress).create_webhook(world.one, WebhookSpec("http://127.0.0.1:9/", ("approval.requested",)))
    db.write(lambda: emit(world.one, "approval.requested", lambda: {"id": "x"}))
    deliverer = Deliverer(egress, world.sealer)
    kill_switches.switch_off(world.one, "tenant", "", "an incident")
    assert deliverer.begin_due() == []
    kill_switches.switch_on(world.one, "tenant", "")
    begun = deliverer.begin_due()
    assert len(begun) == 1
    begun[0].result(30)


def test_a_step_asks_no_model_while_the_tenant_is_off(world: World) -> None:
    claim = Claim(world.one.with_actor("execution:exe_1"), "exe_1", "p", 1, 1, {}, None, 0, 0, 0, False, "", 0)
    kill_switches.switch_off(world.one, "tenant", "", "an incident")
    with pytest.raises(PolicyDenied, match="an incident"):
        no_models(world.sealer).ask(claim, {"profile": "default", "prompt": "Hello"}, "ask", 1e12)


def test_there_is_no_other_road() -> None:
    root = Path(appliance.__file__).parent
    made = {str(path.relative_to(root)) for path in root.rglob("*.py") if re.search(r"(?<!class )EgressClient\(", path.read_text())}
    assert made == set(ROADS)
