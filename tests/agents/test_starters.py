"""A run continues only as long as its starter still has the scopes it uses."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from appliance.agents.runs import RunRequest
from appliance.core.database import db
from appliance.core.pages import PageRequest
from appliance.core.scope import TenantScope
from appliance.monitor import AuditFilter, audit
from appliance.tenants import ApiKey, people, scopes_of_role
from appliance.tenants.keys import keys
from tests.agents.world import ALLOW, ASK, World, book, calls, open_world, put_key, says


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with open_world(tmp_path) as opened:
        yield opened


def key_changes(**columns: int) -> Callable[[World], object]:
    return lambda world: db.write(ApiKey.update(**columns).where(ApiKey.id == "ci").execute)


def login(world: World) -> str:
    return world.town.people["olga"].login


KEY_GOES: dict[str, Callable[[World], object]] = {
    "was revoked": lambda world: keys.revoke_key(world.scope, "ci"),
    "has expired": key_changes(expires_at=1),
    "expired": key_changes(grace_until=1),
    "does not exist in this tenant": lambda world: db.write(ApiKey.delete().where(ApiKey.id == "ci").execute),
}
PERSON_GOES: dict[str, Callable[[World], object]] = {
    "no longer a member": lambda world: people.remove_member(world.scope, world.town.people["olga"].user_id),
    "no longer has the scope": lambda world: people.add_member(world.scope, login(world), "viewer"),
}


def check_ended_for_its_starter(world: World, run_id: str, why: str) -> None:
    run = world.drive(run_id)
    error = run.error or {}
    assert (run.status, error["code"], error["reason"]) == ("failed", "policy_denied", "starter_departed")
    assert why in error["message"]
    assert world.booked() == []
    (entry,) = audit.list_entries(world.scope, AuditFilter(action="agent.end"), PageRequest()).items
    assert (entry.actor, entry.subject) == (f"run:{run_id}", "clerk")
    fields = json.loads(entry.fields)
    assert (fields["run"], fields["status"], fields["code"]) == (run_id, "failed", "policy_denied")
    assert fields["reason"] == "starter_departed"


def waiting_run(world: World, starter: TenantScope) -> str:
    world.make(calls(book(amount=7)), says("done"), rules=[ASK, ALLOW])
    run_id = world.runs.start_run(starter, "clerk", RunRequest("Do it.")).id
    assert world.drive(run_id).status == "waiting"
    return run_id


@pytest.mark.parametrize("why", KEY_GOES)
def test_a_run_whose_key_ends_while_it_waits_makes_no_approved_call(world: World, why: str) -> None:
    run_id = waiting_run(world, TenantScope("one", put_key("ci"), world.scope.scopes))
    world.decide()
    KEY_GOES[why](world)
    check_ended_for_its_starter(world, run_id, why)


@pytest.mark.parametrize("why", PERSON_GOES)
def test_a_run_whose_starter_leaves_or_loses_scopes_makes_no_approved_call(world: World, why: str) -> None:
    olga = world.town.person("olga", "operator").scope
    assert olga is not None
    run_id = waiting_run(world, olga)
    world.decide()
    PERSON_GOES[why](world)
    check_ended_for_its_starter(world, run_id, why)


def test_a_key_revoked_during_a_turn_makes_no_call(world: World) -> None:
    world.make(calls(book(amount=7)), says("done"))
    run_id = world.runs.start_run(TenantScope("one", put_key("ci"), world.scope.scopes), "clerk", RunRequest("Do it.")).id

    def revoke(number: int) -> None:
        keys.revoke_key(world.scope, "ci")

    world.script.before = revoke
    check_ended_for_its_starter(world, run_id, "was revoked")


def test_a_member_who_gains_scopes_keeps_their_run(world: World) -> None:
    olga = world.town.person("olga", "operator").scope
    assert olga is not None
    run_id = waiting_run(world, olga)
    people.add_member(world.scope.with_actor("system"), login(world), "builder")
    world.decide()
    assert scopes_of_role("builder") >= olga.scopes
    assert world.drive(run_id).status == "succeeded"
    assert len(world.booked()) == 1
