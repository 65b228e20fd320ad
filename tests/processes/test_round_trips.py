"""How often an execution asks a server, which on another machine takes most of its time."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from appliance.core.database import db
from appliance.core.database.changes import read_state
from appliance.core.database.notices import notices
from appliance.core.scheduling import Scheduler
from appliance.processes import Waiter
from appliance.processes.executions.starting import StartRequest
from appliance.sandbox import Pool
from tests.processes.world import World, code, make_world, open_database, rule
from tests.store.cluster import Cluster


@pytest.fixture
def world(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory, sandbox: Pool) -> Iterator[World]:
    """A started flow on a server."""
    with open_database(tmp_path_factory.mktemp("executions"), cluster.emptied()):
        world = make_world(tmp_path_factory.mktemp("flow"), sandbox)
        world.flow.start(Scheduler(read_state))
        yield world
        world.flow.stop(5)
        world.presence.close()


class Carrier:
    """Keeps the notices for other processes."""

    def __init__(self) -> None:
        self.sent: list[str] = []

    def start(self) -> None:
        """Needs no connection."""

    def send(self, notice: str) -> None:
        self.sent.append(notice)

    def stop(self) -> None:
        """Has nothing left."""


@pytest.fixture
def carrier(monkeypatch: pytest.MonkeyPatch) -> Carrier:
    carrier = Carrier()
    monkeypatch.setattr(notices, "_carrier", carrier)
    return carrier


@contextmanager
def round_trips() -> Iterator[list[str]]:
    """What this thread and the writers send."""
    sent: list[str] = []
    this = threading.current_thread()

    def note(event: Any) -> None:
        if threading.current_thread() is this or threading.current_thread().name == "db-writer":
            sent.append(event.sql)

    db.database.obj.query_hooks.append(note)
    try:
        yield sent
    finally:
        db.database.obj.query_hooks.remove(note)


def run(world: World, process: str) -> list[str]:
    """What is sent for an execution."""

    def start() -> str:
        waiter = Waiter(on_run=lambda _: None)
        return str(world.flow.start_execution(world.scope, process, StartRequest({"n": 1}), waiter=waiter).status)

    assert start() == "succeeded"  # records what the version is granted, and reads what is cached
    with round_trips() as sent:
        assert start() == "succeeded"
    return sent


@pytest.mark.writes_once(reason="counts round trips")
def test_an_execution_without_effects_writes_in_two_round_trips(world: World, carrier: Carrier) -> None:
    which_version, look, write = run(world, world.publish([rule("twice", "= input.n * 2"), code("more", "return input.n + 1;")]))
    assert "published_version" in which_version
    assert [name for name in ("BEGIN", "webhook", "trigger_source", "EXISTS") if name not in look] == []
    assert write.endswith("COMMIT")
    assert carrier.sent == []  # nobody has heard of it yet


@pytest.mark.writes_once(reason="counts round trips")
def test_an_execution_that_writes_needs_no_more_round_trips_than_counted(world: World, carrier: Carrier) -> None:
    mark = {"id": "mark", "datapool": {"collection": "marks", "create": {"values": {"what": "a mark"}}}}
    sent = run(world, world.publish([code("first", "return 1;"), mark, rule("last", "= input.n + 1")]))
    assert len(sent) == 13, "\n".join(each[:300] for each in sent)
    assert [notice.partition(":")[0] for notice in carrier.sent if notice.startswith("execution:")] == ["execution"] * 2
