"""Kill switches: off means that nothing is sent, by no road, in this tenant only."""

import pytest

from appliance.core.errors import PolicyDenied
from appliance.core.pages import PageRequest
from appliance.governance import kill_switches
from appliance.governance.executor.polling import PollRequest
from appliance.governance.policies.decision import ToolAction
from appliance.governance.subjects import Subject
from appliance.integrations import IntegrationSpec, history
from appliance.monitor import audit
from tests.governance.ruling import put_rules
from tests.integrations.world import Ledger, World


def test_a_switched_off_integration_is_not_called(world: World) -> None:
    world.ledger()
    world.ledger(world.two)
    call_id = world.executor.enqueue(world.one, world.request())
    kill_switches.switch_off(world.one, "integration", "books", "it books twice")
    for action in ("look", "book"):
        with pytest.raises(PolicyDenied, match=r"books is switched off \(it books twice\)"):
            world.executor.execute(world.one, world.request(action))
    world.executor.run_queued(world.one, call_id)
    assert history.get_call(world.one, "books", call_id).status == "failed"
    assert Ledger.booked == []
    world.executor.execute(world.two, world.request())
    switches = [(each.kind, each.name, each.set_by) for each in kill_switches.list_switches(world.one)]
    assert switches == [("integration", "books", "key:test")]
    assert kill_switches.list_switches(world.two) == []
    kill_switches.switch_on(world.one, "integration", "books")
    assert world.executor.execute(world.one, world.request()).status == "executed"
    actions = [each.action for each in audit.list_entries(world.one, audit.AuditFilter(subject="books"), PageRequest()).items]
    assert sorted(actions) == ["integration.create", "integration.switch_off", "integration.switch_on"]


def test_a_poll_is_refused_too(world: World) -> None:
    world.integrations.create_integration(world.one, "books", IntegrationSpec("http", {"base_url": "http://127.0.0.1:1"}))
    kill_switches.switch_off(world.one, "integration", "books", "noise")
    with pytest.raises(PolicyDenied, match="switched off"):
        world.executor.poll(world.one, PollRequest("books", "new_items", {"url": "/", "cursor_field": "id"}))


def test_an_integration_recreated_under_its_name_stays_off(world: World) -> None:
    world.ledger()
    kill_switches.switch_off(world.one, "integration", "books", "x")
    world.integrations.delete_integration(world.one, "books")
    world.ledger()
    with pytest.raises(PolicyDenied):
        world.executor.execute(world.one, world.request())


@pytest.mark.parametrize(("kind", "name"), [("tenant", ""), ("agent", "triage"), ("tool", "execute_tenant_integration")])
def test_a_tenant_an_agent_and_a_tool_are_switched_off_too(world: World, kind: kill_switches.Kind, name: str) -> None:
    world.ledger()
    put_rules(world.one, {"id": "all", "effect": "allow", "reason": "trusted"})
    agent = Subject("key:test", "agent", agent="triage", run_id="run_1")
    other = Subject("key:test", "agent", agent="billing", run_id="run_2")
    kill_switches.switch_off(world.one, kind, name, "it runs wild")
    for action in ("look", "book"):
        with pytest.raises(PolicyDenied, match="it runs wild") as caught:
            world.executor.execute(world.one, world.request(action, subject=agent))
        assert caught.value.extra["rules"] == [f"kill-switches/{kind}"]
    is_off = kind != "agent"
    assert (kill_switches.find_switch(world.one, other, world_action()) is not None) == is_off
    assert (kill_switches.find_switch(world.one, agent) is not None) == (kind != "tool")
    denials = audit.list_entries(world.one, audit.AuditFilter(action="policy.deny"), PageRequest()).items
    assert len(denials) == 2
    assert "it runs wild" in denials[0].fields
    assert Ledger.booked == []
    kill_switches.switch_on(world.one, kind, name)
    kill_switches.check_not_switched_off(world.one, agent, world_action())
    world.executor.execute(world.one, world.request(subject=agent))


def test_a_switch_applies_to_one_kind_only(world: World) -> None:
    kill_switches.switch_off(world.one, "agent", "books", "x")
    world.ledger()
    world.executor.execute(world.one, world.request())
    with pytest.raises(PolicyDenied, match="the agent books is switched off"):
        kill_switches.check_not_switched_off(world.one, Subject("key:test", "agent", agent="books"))
    kill_switches.check_not_switched_off(world.two, Subject("key:test", "agent", agent="books"))


def world_action() -> ToolAction:
    return ToolAction("execute_tenant_integration", "write", {}, "books", "book")
