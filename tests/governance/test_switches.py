"""Kill switches: off means that nothing is sent, by no road, in this tenant only."""

import pytest

from appliance.core.errors import NotFound, PolicyDenied
from appliance.core.pages import PageRequest
from appliance.governance import switches
from appliance.governance.polling import PollRequest
from appliance.integrations import history
from appliance.integrations.service import Spec
from appliance.monitor import audit
from tests.integrations.world import Ledger, World


def test_what_is_switched_off_is_not_called_until_it_is_on(world: World) -> None:
    world.ledger()
    world.ledger(world.two)
    call_id = world.executor.enqueue(world.one, world.request())
    switches.switch_off(world.one, world.integrations, "books", "it books twice")
    for action in ("look", "book"):
        with pytest.raises(PolicyDenied, match=r"books is switched off \(it books twice\)"):
            world.executor.execute(world.one, world.request(action))
    world.executor.run_queued(world.one, call_id)
    assert history.get_call(world.one, "books", call_id).status == "failed"
    assert Ledger.booked == []
    world.executor.execute(world.two, world.request())
    assert [(each.integration, each.set_by) for each in switches.list_switches(world.one)] == [("books", "key:test")]
    assert switches.list_switches(world.two) == []
    switches.switch_on(world.one, "books")
    assert world.executor.execute(world.one, world.request()).status == "executed"
    actions = [each.action for each in audit.list_entries(world.one, audit.AuditFilter(subject="books"), PageRequest()).items]
    assert sorted(actions) == ["integration.switch_off", "integration.switch_on"]


def test_a_poll_is_refused_too(world: World) -> None:
    world.integrations.create_integration(world.one, "books", Spec("http", {"base_url": "http://127.0.0.1:1"}))
    switches.switch_off(world.one, world.integrations, "books", "noise")
    with pytest.raises(PolicyDenied, match="switched off"):
        world.executor.poll(world.one, PollRequest("books", "new_items", {"url": "/", "cursor_field": "id"}))


def test_what_is_not_there_cannot_be_switched_off(world: World) -> None:
    world.ledger(world.two)
    with pytest.raises(NotFound):
        switches.switch_off(world.one, world.integrations, "books", "x")


def test_one_that_is_made_again_under_its_name_stays_off(world: World) -> None:
    world.ledger()
    switches.switch_off(world.one, world.integrations, "books", "x")
    world.integrations.delete_integration(world.one, "books")
    world.ledger()
    with pytest.raises(PolicyDenied):
        world.executor.execute(world.one, world.request())
