"""A process killed while waiting for a foreign system: a sent write is not repeated automatically."""

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from appliance.connectors.testing import Answer, LoopbackServer, Received
from appliance.governance.executor.requests import ActionRequest
from appliance.integrations import IntegrationSpec, Origin, OutcomeUnknown
from tests.integrations.world import open_world

ROOT = Path(__file__).parents[2]
CHILD = """
import sys
from tests.governance.test_crash import push
from tests.integrations.world import open_world

with open_world(sys.argv[1]) as world:
    push(world.executor.execute, world.one, sys.argv[2])
"""


def push(execute: Callable[..., object], scope: object, action: str) -> object:
    """The same request from every process."""
    payload = {"url": "/orders", "json": {"number": "1"}}
    request = ActionRequest("erp", action, payload, idempotency_key="exe_1.push", origin=Origin("exe_1", "push"))
    return execute(scope, request)


@pytest.fixture
def server() -> Iterator[LoopbackServer]:
    server = LoopbackServer()
    yield server
    server.close()


def kill_while_sending(url: str, server: LoopbackServer, action: str) -> None:
    """Kill -9 a process whose request has arrived and has no answer yet."""
    request_arrived, killed = threading.Event(), threading.Event()

    def wait_for_kill(_: Received) -> Answer:
        request_arrived.set()
        killed.wait(20)
        return Answer(201)

    server.answers["/orders"] = wait_for_kill
    with open_world(url) as world:
        settings = {"base_url": server.url, "retries": {"attempts": 1}}
        world.integrations.create_integration(world.one, "erp", IntegrationSpec("http", settings))
    child = subprocess.Popen([sys.executable, "-c", CHILD, url, action], cwd=ROOT)
    try:
        assert request_arrived.wait(20)
    finally:
        child.kill()
        child.wait()
        killed.set()
    server.answer("/orders", 201)


def test_an_interrupted_write_is_not_repeated(store_url: str, server: LoopbackServer) -> None:
    kill_while_sending(store_url, server, "post")
    with open_world(store_url, "instance-2") as world:
        for _ in range(2):
            with pytest.raises(OutcomeUnknown):
                push(world.executor.execute, world.one, "post")
    assert len(server.received) == 1


def test_an_interrupted_idempotent_call_is_repeated_with_its_key(store_url: str, server: LoopbackServer) -> None:
    kill_while_sending(store_url, server, "put")
    with open_world(store_url, "instance-2") as world:
        push(world.executor.execute, world.one, "put")
        push(world.executor.execute, world.one, "put")
    assert [received.headers["idempotency-key"] for received in server.received] == ["exe_1.push"] * 2
