"""One tenant's streams, waits and slow clients leave request slots to everybody else."""

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Self

import httpx
import pytest

from appliance.core.errors import Overloaded
from appliance.sites.front.places import Origin, RequestSlot, RequestSlots
from appliance.sites.front.work_queue import WorkQueue
from appliance.testing.running import Running, make_config, start
from tests.api.resources import Resources

MOST = 4
PER_KEY, PER_TENANT, TOTAL = 3, 5, 7
WAITING = {"steps": [{"id": "wait", "wait": {"for": "1h"}}]}


@pytest.fixture(scope="module")
def narrow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Works on four requests at once."""
    limits = {"limits__streams_per_key": PER_KEY, "limits__streams_per_tenant": PER_TENANT, "limits__streams": TOTAL}
    live = start(make_config(tmp_path_factory.mktemp("narrow"), server__max_in_flight=MOST, **limits))
    yield live
    live.stop()


@pytest.fixture
def attacker(narrow: Running) -> Iterator[Resources]:
    with narrow.api("acme") as client:
        yield Resources(narrow, "acme", client)


@pytest.fixture
def victim(narrow: Running) -> Iterator[httpx.Client]:
    with narrow.api("globex") as client:
        yield client


class Streams:
    """Event streams that stay open until the block ends."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._parts: list[Any] = []  # kept: a forgotten iterator hangs up

    def open(self, client: httpx.Client, path: str, **params: str) -> httpx.Response:
        answer = self._stack.enter_context(client.stream("GET", f"/api/v1{path}", params=params or None))
        if answer.is_success:
            self._parts.append(answer.iter_raw())
            assert next(self._parts[-1]).startswith(b": connected")
        else:
            answer.read()
        return answer

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()


def wait_until_closed(narrow: Running) -> None:
    """Wait until the server has closed every stream as well."""
    closed = threading.Event()
    while narrow.services.limits.streams.count():
        closed.wait(0.01)


@pytest.mark.parametrize("kind", ["entities", "executions", "logs"])
def test_streams_occupy_no_request_slot(narrow: Running, attacker: Resources, victim: httpx.Client, kind: str) -> None:
    path = stream_of(attacker, kind)
    with Streams() as streams, narrow.api("acme") as second:
        for client in (attacker.client, attacker.client, attacker.client, second):
            assert streams.open(client, path).status_code == 200
        assert victim.get("/api/v1/tenant").status_code == 200
        assert attacker.client.get("/api/v1/tenant").status_code == 200
    wait_until_closed(narrow)


def stream_of(attacker: Resources, kind: str) -> str:
    if kind == "entities":
        return f"/datapool/{attacker.collection()}/events"
    if kind == "logs":
        return "/logs?follow=true"
    process, execution = waiting_execution(attacker)
    return f"/processes/{process}/executions/{execution}/events"


def waiting_execution(attacker: Resources) -> tuple[str, str]:
    process = attacker.process()
    attacker.ask("PUT", f"/processes/{process}", {"definition": WAITING})
    attacker.ask("POST", f"/processes/{process}/publish", {})
    return process, attacker.ask("POST", f"/processes/{process}/execute", {})["execution_id"]


def test_streams_are_limited_by_credential_tenant_and_appliance(narrow: Running, victim: httpx.Client) -> None:
    with Streams() as streams, ExitStack() as clients:
        first, second, other = (clients.enter_context(narrow.api(name)) for name in ("acme", "acme", "globex"))

        def open_stream(client: httpx.Client) -> tuple[int, str]:
            answer = streams.open(client, "/logs", follow="true")
            error = answer.json()["error"] if answer.status_code != 200 else {"code": "", "message": ""}
            assert answer.status_code == 200 or int(answer.headers["retry-after"]) >= 1
            return answer.status_code, f"{error['code']} {error['message']}"

        assert [open_stream(first)[0] for _ in range(PER_KEY)] == [200] * PER_KEY
        assert open_stream(first)[1].startswith(f"concurrency_limited this credential has {PER_KEY} event streams open")
        assert [open_stream(second)[0] for _ in range(PER_TENANT - PER_KEY)] == [200] * (PER_TENANT - PER_KEY)
        assert open_stream(second)[1].startswith(f"concurrency_limited this tenant has {PER_TENANT} event streams open")
        assert [open_stream(other)[0] for _ in range(TOTAL - PER_TENANT)] == [200] * (TOTAL - PER_TENANT)
        assert open_stream(victim)[1].startswith(f"concurrency_limited the appliance has {TOTAL} event streams open")
        assert victim.get("/api/v1/tenant").status_code == 200
    wait_until_closed(narrow)
    with Streams() as streams:
        assert streams.open(victim, "/logs", follow="true").status_code == 200
    wait_until_closed(narrow)


def test_more_streams_poll_less_often(narrow: Running) -> None:
    streams = narrow.services.limits.streams
    assert streams.poll_interval(0.2) == 0.2
    intervals: list[Any] = []
    with ExitStack() as stack:
        for _ in range(400):
            stack.enter_context(streams.waiting(RequestSlot(slots(1))))
        intervals.append(streams.poll_interval(0.2))
    assert intervals == [2.0]
    assert streams.poll_interval(0.2) == 0.2


def test_requests_that_wait_for_a_result_occupy_no_request_slot(
    narrow: Running, attacker: Resources, victim: httpx.Client
) -> None:
    process, _ = waiting_execution(attacker)
    threads = [threading.Thread(target=execute_and_wait, args=(narrow, process)) for _ in range(MOST)]
    pause = threading.Event()
    for number, each in enumerate(threads):
        each.start()
        while len(attacker.ask("GET", f"/processes/{process}/executions?status=waiting")) < number + 2:
            pause.wait(0.02)
    assert victim.get("/api/v1/tenant").status_code == 200
    for execution in attacker.ask("GET", f"/processes/{process}/executions"):
        attacker.ask("POST", f"/processes/{process}/executions/{execution['execution_id']}/cancel")
    for each in threads:
        each.join()


def execute_and_wait(narrow: Running, process: str) -> None:
    with narrow.api("acme") as client:
        answer = client.post(f"/api/v1/processes/{process}/execute", params={"wait": 30}, json={})
        assert answer.status_code == 200, answer.text


def slots(most: int) -> RequestSlots:
    return RequestSlots(most, WorkQueue(most, 1.0))


@contextmanager
def occupied(places: RequestSlots, *origins: Origin) -> Iterator[None]:
    with ExitStack() as stack:
        for origin in origins:
            stack.enter_context(RequestSlot(places).occupy(origin))
        yield


def flood(places: RequestSlots, stack: ExitStack, make: Any, most: int = 2000) -> int:
    """How many requests of a flood get a slot."""
    for number in range(most):
        try:
            stack.enter_context(RequestSlot(places).occupy(make(number)))
        except Overloaded:
            return number
    return most


@pytest.mark.parametrize(
    ("flooding", "share"),
    [
        (lambda n: Origin("acme", "192.0.2.1"), 9 / 16),  # one client of one tenant
        (lambda n: Origin("acme", f"10.0.{n % 250}.1"), 3 / 4),  # one tenant from everywhere
        (lambda n: Origin(f"no-such-{n}", "192.0.2.1"), 9 / 16),  # one client that makes tenants up
    ],
)
def test_a_flood_leaves_slots_to_others(flooding: Any, share: float) -> None:
    places = slots(256)
    with ExitStack() as stack:
        assert flood(places, stack, flooding) == 256 * share
        with occupied(places, *[Origin("globex", f"198.51.100.{n}") for n in range(32)]):
            assert places.working.total == 256 * share + 32
    assert (places.working.total, places.open.total) == (0, 0)
    with ExitStack() as stack:
        assert flood(places, stack, flooding) == 256 * share, "whatever was counted was given back"


def test_slow_clients_of_one_tenant_leave_room_to_others() -> None:
    places = slots(256)
    with ExitStack() as stack:
        for number in range(1024):
            place = RequestSlot(places)
            try:
                stack.enter_context(place.occupy(Origin("acme", f"10.0.{number % 250}.1")))
            except Overloaded:
                break
            stack.enter_context(place.released())
        assert (places.working.total, places.open.total) == (0, 768)
        with occupied(places, *[Origin("globex", "198.51.100.7")] * 30):
            assert places.open.total == 798


def test_a_stream_that_ends_releases_its_slot_once() -> None:
    places, ended = slots(4), []
    place = RequestSlot(places)
    with place.occupy(Origin("acme", "192.0.2.1")):
        with place.released():
            place.become_stream(lambda: ended.append(1))
            assert (places.working.total, places.open.total, ended) == (0, 0, [])
        with place.released():
            assert places.working.total == 0
    assert (places.working.total, places.open.total, ended) == (0, 0, [1])
