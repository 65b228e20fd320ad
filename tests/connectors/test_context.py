"""What a call may use: the network until its deadline, pauses that end, and a log."""

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from appliance.connectors.context import CallContext
from appliance.connectors.contract import HttpRequest, TransientError
from appliance.connectors.egress import Egress, EgressClient

EGRESS = Egress.of(["127.0.0.0/8"])


@pytest.fixture
def client() -> Iterator[EgressClient]:
    client = EgressClient(EGRESS)
    yield client
    client.close()


def make(client: EgressClient, seconds: float, **more: Any) -> CallContext:
    return CallContext(EGRESS, client, "key", time.monotonic() + seconds, lambda *_: None, **more)


def test_nothing_is_sent_after_the_deadline(client: EgressClient, server: Any) -> None:
    with pytest.raises(TransientError) as caught:
        make(client, -1).http.send(HttpRequest("POST", server.url))
    assert caught.value.outcome == "not_done"
    assert server.received == []


def test_a_pause_beyond_the_deadline_is_refused_at_once(client: EgressClient) -> None:
    began = time.monotonic()
    assert make(client, 1).pause(5) is False
    assert make(client, 1).pause(0.01) is True
    assert time.monotonic() - began < 4


def test_stopping_ends_a_pause(client: EgressClient) -> None:
    stopping = threading.Event()
    stopping.set()
    assert make(client, 60, stopping=stopping).pause(30) is False


def test_log_lines_reach_the_sink(client: EgressClient) -> None:
    lines: list[Any] = []
    ctx = CallContext(EGRESS, client, "key", time.monotonic() + 1, lambda *line: lines.append(line))
    ctx.log("info", "hello", {"a": 1})
    assert lines == [("info", "hello", {"a": 1})]
