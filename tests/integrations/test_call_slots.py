"""Slots of concurrent calls: shared by all processes on PostgreSQL, in turn, and free again when their process is gone."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace

import pytest

from appliance.core import clock
from appliance.core.database import db
from appliance.core.errors import Overloaded
from appliance.integrations import Withheld, call_slots
from appliance.integrations.call_slots import CallSlots, ProcessSlots, SharedSlots, SlotRequest, open_slots
from tests.integrations.world import World
from tests.processes.world import wait_until
from tests.store.conftest import on_server

LIVING = {"here", "there"}


@pytest.fixture
def request_of(world: World) -> Callable[[int], SlotRequest]:
    """Makes requests for one of so many slots of the integration `books`."""
    world.ledger()
    return lambda most: SlotRequest(world.one, "books", 30.0, most)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls wait for a moment only, and look often."""
    monkeypatch.setattr(call_slots, "MAX_WAIT", 0.2)
    monkeypatch.setattr(call_slots, "POLL_SECONDS", 0.02)


def process(name: str) -> SharedSlots:
    """The slots as a process of this name uses them."""
    return SharedSlots(name, LIVING.__contains__)


def is_withheld(slots: CallSlots, request: SlotRequest) -> bool:
    try:
        with slots.hold(request):
            return False
    except Withheld as error:
        return (error.why, error.outcome) == ("busy", "not_done")


def stored() -> int:
    return int(db.rows("SELECT COUNT(*) FROM integration_slot")[0][0])


class Foreign:
    """Counts the calls that are in it at once; each stays until as many are there as can be, or have no partner."""

    def __init__(self, most: int) -> None:
        self._lock, self._barrier = threading.Lock(), threading.Barrier(most)
        self._inside = self.highest = self.done = 0

    def call(self, slots: CallSlots, request: SlotRequest) -> None:
        with slots.hold(request):
            with self._lock:
                self._inside += 1
                self.highest = max(self.highest, self._inside)
            self._barrier.wait(20)
            with self._lock:
                self._inside -= 1
                self.done += 1


def test_where_slots_are_counted_depends_on_the_database(world: World) -> None:
    assert isinstance(open_slots("here", LIVING.__contains__), ProcessSlots if db.is_sqlite() else SharedSlots)


@on_server
@pytest.mark.writes_once(reason="other writes run between the two runs of one")
def test_two_processes_share_the_slots(
    request_of: Callable[[int], SlotRequest], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(call_slots, "MAX_WAIT", 60.0)
    foreign, request = Foreign(3), replace(request_of(3), seconds=120.0)
    with ThreadPoolExecutor(24) as threads:
        calls = [threads.submit(foreign.call, process(name), request) for name in ("here", "there") * 12]
        for call in calls:
            call.result(60)
    assert (foreign.highest, foreign.done) == (3, 24)
    assert stored() == 0


@on_server
@pytest.mark.usefixtures("impatient")
def test_a_process_waits_for_the_slots_of_another_that_lives(request_of: Callable[[int], SlotRequest]) -> None:
    request = request_of(1)
    with process("here").hold(request):
        assert is_withheld(process("there"), request)
        assert stored() == 1, "whoever has given up no longer waits"
    assert not is_withheld(process("there"), request)


@on_server
def test_slots_are_passed_on_in_turn_and_at_once(
    request_of: Callable[[int], SlotRequest], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(call_slots, "POLL_SECONDS", 3600.0)
    request, order = request_of(1), list[int]()

    def call(number: int) -> None:
        with process("there").hold(request):
            order.append(number)

    with ThreadPoolExecutor(3) as threads, ExitStack() as first:
        first.enter_context(process("here").hold(request))
        calls = []
        for number in range(3):
            calls.append(threads.submit(call, number))
            wait_until(lambda number=number: stored() == 2 + number)
        first.close()
        for each in calls:
            each.result(9)
    assert order == [0, 1, 2]


@on_server
def test_the_slots_of_a_dead_process_come_back(request_of: Callable[[int], SlotRequest], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_slots, "POLL_SECONDS", 0.02)
    request = request_of(2)
    with ThreadPoolExecutor(1) as threads, ExitStack() as calls:
        for _ in range(2):
            calls.enter_context(process("dying").hold(request))
        LIVING.add("dying")
        waiting = threads.submit(is_withheld, process("here"), request)
        try:
            wait_until(lambda: stored() == 3)
        finally:
            LIVING.remove("dying")
        assert waiting.result(20) is False


@on_server
@pytest.mark.usefixtures("impatient")
def test_a_slot_that_was_not_returned_is_free_a_minute_after_its_deadline(
    request_of: Callable[[int], SlotRequest], monkeypatch: pytest.MonkeyPatch
) -> None:
    request, now = request_of(1), clock.now_ms()
    with process("here").hold(request):
        monkeypatch.setattr(clock, "now_ms", lambda: now + 85_000)
        assert is_withheld(process("there"), request)
        monkeypatch.setattr(clock, "now_ms", lambda: now + 95_000)
        assert not is_withheld(process("there"), request)


@on_server
def test_the_result_of_a_call_counts_although_its_slot_cannot_be_returned(
    request_of: Callable[[int], SlotRequest], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise Overloaded("the database server does not respond")

    with process("here").hold(request_of(1)):
        monkeypatch.setattr(call_slots, "_leave", fail)
    assert "a slot of books could not be returned" in caplog.text
    assert stored() == 1


@on_server
def test_a_lower_limit_holds_at_once_and_a_deleted_integration_has_no_slots(
    world: World, request_of: Callable[[int], SlotRequest], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(call_slots, "MAX_WAIT", 0.1)
    with process("here").hold(request_of(3)), process("here").hold(request_of(3)):
        assert not is_withheld(process("here"), request_of(3))
        assert is_withheld(process("here"), request_of(2))
        world.integrations.delete_integration(world.one, "books")
        assert stored() == 0
        assert not is_withheld(process("here"), request_of(1))
