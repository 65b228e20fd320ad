"""Two changes of agents, their runs and skills end as if one had followed the other."""

import itertools
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from appliance.agents import runs, versions
from appliance.agents.definition import parse_definition
from appliance.agents.runs import RunRequest
from appliance.agents.skills import trust
from appliance.agents.skills.service import HOLDERS, Skills
from appliance.blobs import Blobs, LocalPlaces
from appliance.core.database import db
from appliance.core.scope import TenantScope
from appliance.tenants import scopes_of_role
from tests.agents.skills.conftest import member
from tests.agents.skills.sample_skills import ABOUT
from tests.agents.world import AGENT, ALLOW, TAINTED, World, mark, open_world, says
from tests.agents.world import calls as turn_of
from tests.governance.ruling import put_rules
from tests.store.cluster import Cluster
from tests.store.interleaving import Pair, check_pair, without_exclusive_writes

numbers = itertools.count(1)


@pytest.fixture(scope="module")
def world(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with open_world(tmp_path_factory.mktemp("agents"), cluster.emptied()) as world:
        put_rules(world.scope, ALLOW, TAINTED)
        world.skills = Skills(Blobs(LocalPlaces(tmp_path_factory.mktemp("blobs")), HOLDERS))  # type: ignore[attr-defined]
        world.approver = member(world.scope, "eve@one.test", "owner", approver=True)  # type: ignore[attr-defined]
        yield world


def save(of: World, agent: str, text: str = "Keep the books.", **options: Any) -> Any:
    return versions.save_agent(of.scope, parse_definition(agent, {**AGENT, "instructions": text}), **options)


def add(of: World) -> str:
    agent = f"a{next(numbers)}"
    save(of, agent)
    return agent


def read(of: World, agent: str) -> Any:
    tables = ("agent_version", "agent_run")
    counts = [db.rows(f"SELECT count(*) FROM {table} WHERE agent_id = ?", (agent,)) for table in tables]  # noqa: S608  our names
    rows = db.rows("SELECT version FROM agent WHERE id = ?", (agent,))
    return rows, counts, db.rows("SELECT status FROM agent_run WHERE agent_id = ? ORDER BY 1", (agent,))


def start(of: World, agent: str, **request: Any) -> str:
    return of.runs.start_run(of.scope, agent, RunRequest("Do it.", **request)).id


def two_agents_of_one_name(of: World) -> Pair:
    agent = f"a{next(numbers)}"
    return Pair.of((partial(save, of, agent, create_only=True),) * 2, partial(read, of, agent))


def two_versions_of_an_agent(of: World) -> Pair:
    agent = add(of)
    return Pair.of((partial(save, of, agent, text) for text in "bc"), partial(read, of, agent))


def a_run_is_started_and_the_agent_deleted(of: World) -> Pair:
    agent = add(of)
    return Pair(lambda: start(of, agent), lambda: versions.delete_agent(of.scope, agent), partial(read, of, agent))


def a_run_is_started_twice_with_a_token(of: World) -> Pair:
    agent = add(of)
    return Pair.of((partial(start, of, agent, token=f"t-{agent}"),) * 2, partial(read, of, agent))


def of_clerk(of: World, *turns: Any) -> str:
    """A queued run of a clerk with this script."""
    of.forget()
    of.make(*turns)
    return of.start()


def read_run(of: World, run: str) -> Any:
    ends = [entry.data["status"] for entry in of.journal(run) if entry.kind == "ended"]
    return of.get(run).status, ends, of.marks()


def a_run_is_cancelled_twice(of: World) -> Pair:
    run = of_clerk(of, says("done"))
    return Pair.of((partial(runs.cancel_run, of.scope, "clerk", run),) * 2, partial(read_run, of, run))


def a_run_is_driven_twice(of: World) -> Pair:
    """Only one of two workers has it."""
    run = of_clerk(of, turn_of(mark("once")), says("done"))
    return Pair.of((lambda: of.runs.runner.drive("one", run),) * 2, partial(read_run, of, run))


def a_run_is_driven_and_its_time_is_over(of: World) -> Pair:
    run = of_clerk(of, says("done"))
    return Pair(lambda: of.runs.runner.drive("one", run), lambda: runs.purge(1), partial(read_run, of, run))


def files(name: str, description: str = "Keeps books") -> dict[str, bytes]:
    return {"SKILL.md": ABOUT.format(name=name, description=description, more="").encode()}


def scope_of(of: World) -> TenantScope:
    return TenantScope("one", "key:test", frozenset({"skills.read", "skills.write"}))


def put(of: World, name: str, description: str = "Keeps books", **options: Any) -> Any:
    skills: Skills = of.skills  # type: ignore[attr-defined]
    return skills.put_skill(scope_of(of), name, files(name, description), **options)


def read_skill(name: str) -> Any:
    count = db.rows("SELECT count(*) FROM skill_version WHERE name = ?", (name,))
    return db.rows("SELECT approved_digest = digest, approved_digest IS NULL FROM skill WHERE name = ?", (name,)), count


def a_skill_is_put_twice(of: World) -> Pair:
    name = f"s{next(numbers)}"
    return Pair.of((partial(put, of, name, text) for text in ("One", "Two")), partial(read_skill, name))


def a_skill_is_put_and_deleted(of: World) -> Pair:
    name = f"s{next(numbers)}"
    put(of, name)
    skills: Skills = of.skills  # type: ignore[attr-defined]
    return Pair(lambda: put(of, name, "Two"), lambda: skills.delete_skill(scope_of(of), name), partial(read_skill, name))


def a_skill_is_approved_and_changed(of: World) -> Pair:
    name = f"s{next(numbers)}"
    digest = put(of, name)[0].version_digest
    skills, person = of.skills, of.approver  # type: ignore[attr-defined]
    own = TenantScope("one", f"user:{person.user_id}", scopes_of_role("owner"))
    return Pair(
        lambda: trust.approve_skill(own, skills, person, name, digest), lambda: put(of, name, "Two"), partial(read_skill, name)
    )


def a_skill_is_approved_and_revoked(of: World) -> Pair:
    name = f"s{next(numbers)}"
    digest = put(of, name)[0].version_digest
    skills, person = of.skills, of.approver  # type: ignore[attr-defined]
    own = TenantScope("one", f"user:{person.user_id}", scopes_of_role("owner"))
    return Pair(
        lambda: trust.approve_skill(own, skills, person, name, digest),
        lambda: trust.revoke_skill(own, skills, person, name),
        partial(read_skill, name),
    )


PAIRS: dict[str, Callable[[World], Pair]] = {
    each.__name__: each
    for each in (
        two_agents_of_one_name, two_versions_of_an_agent, a_run_is_started_and_the_agent_deleted,
        a_run_is_started_twice_with_a_token, a_run_is_cancelled_twice, a_run_is_driven_twice, a_run_is_driven_and_its_time_is_over,
        a_skill_is_put_twice, a_skill_is_put_and_deleted, a_skill_is_approved_and_changed, a_skill_is_approved_and_revoked,
    )
}  # fmt: skip


@pytest.mark.parametrize("pair", PAIRS)
def test_both_orders(world: World, pair: str, request: pytest.FixtureRequest) -> None:
    assert check_pair(lambda: PAIRS[pair](world), reads=request.config.option.all) >= 4


def test_without_exclusive_writes_a_run_is_lost_with_its_agent(world: World) -> None:
    with without_exclusive_writes(), pytest.raises(AssertionError, match="was halted before"):
        check_pair(lambda: a_run_is_started_and_the_agent_deleted(world))
