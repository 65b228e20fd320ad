"""Requests that wait for their turn: fair between tenants, networks and keys, bounded in time, adapted to the processors."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from appliance.core.errors import Overloaded
from appliance.sites.front import work_queue
from appliance.sites.front.front import Front, Readiness
from appliance.sites.front.processor_load import ProcessorLoad
from appliance.sites.front.work_queue import LEAST, USUAL, Path, Turn, WorkQueue
from appliance.testing.running import make_config
from appliance.web import Receive, Scope, Send

LONG = 60.0
SHORT = 0.02


class Load(ProcessorLoad):
    """Processors that are as busy as the test says."""

    def __init__(self, *, busy: bool = False) -> None:
        super().__init__()
        self.busy = busy

    def is_busy(self) -> bool:
        return self.busy


async def fill(queue: WorkQueue, path: Path = ("noisy", "n", 0)) -> list[Turn]:
    """Take every turn."""
    return [await queue.enter(path) for _ in range(queue.turns)]


class Visitors:
    """Requests that wait, and the order in which they were served."""

    def __init__(self, queue: WorkQueue) -> None:
        self.queue, self.served = queue, list[tuple[str, Turn]]()
        self.tasks: list[asyncio.Task[None]] = []

    async def come(self, name: str, path: Path) -> asyncio.Task[None]:
        async def visit() -> None:
            self.served.append((name, await self.queue.enter(path)))

        task = asyncio.create_task(visit())
        self.tasks.append(task)
        await asyncio.sleep(0)  # until it waits
        return task

    async def serve(self, first: Turn, took: float = 0.01) -> list[str]:
        """End one turn after another, each after `took` seconds; the names in the order in which they were served."""
        turn = first
        while any(not each.done() for each in self.tasks):
            self.queue.end(turn, took)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            turn = self.served[-1][1]
        self.queue.end(turn, took)
        return [name for name, _ in self.served]


async def one_turn(seconds: float = LONG, path: Path = ("noisy", "n", 0)) -> tuple[WorkQueue, Turn, Visitors]:
    """A queue of one turn, which this path holds."""
    queue = WorkQueue(1, seconds, Load())
    (turn,) = await fill(queue, path)
    return queue, turn, Visitors(queue)


@pytest.mark.parametrize(
    ("noisy", "quiet"),
    [
        (("noisy", "n", 0), ("quiet", "n", 0)),
        (("shop", "noisy", 0), ("shop", "quiet", 0)),
        (("shop", "n", "noisy"), ("shop", "n", "quiet")),
    ],
    ids=["tenants", "networks", "keys"],
)
async def test_whoever_has_used_less_is_next(noisy: Path, quiet: Path) -> None:
    _, turn, visitors = await one_turn(path=noisy)
    for number in range(4):
        await visitors.come(f"noisy {number}", noisy)
    await visitors.come("quiet 0", quiet)
    await visitors.come("quiet 1", quiet)
    assert await visitors.serve(turn) == ["quiet 0", "noisy 0", "quiet 1", "noisy 1", "noisy 2", "noisy 3"]


async def test_time_counts_and_not_the_number_of_requests() -> None:
    queue, turn, visitors = await one_turn()
    for number in range(3):
        await visitors.come(f"long {number}", ("long", "n", 0))
    for number in range(6):
        await visitors.come(f"short {number}", ("short", "n", 0))
    order: list[str] = []
    while any(not each.done() for each in visitors.tasks):
        queue.end(turn, 0.04 if order and order[-1].startswith("long") else 0.01)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        name, turn = visitors.served[-1]
        order.append(name)
    after_first_long = order[order.index("long 0") + 1 : order.index("long 1")]
    assert len(after_first_long) >= 3, order


async def test_a_tenant_that_waited_for_nothing_saves_up_no_turns() -> None:
    queue, turn, visitors = await one_turn(path=("early", "n", 0))
    await visitors.come("late, at first", ("late", "n", 0))
    for number in range(8):
        await visitors.come(f"early {number}", ("early", "n", 0))
    for _ in range(5):
        queue.end(turn, 1.0)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        turn = visitors.served[-1][1]
    for number in range(4):
        await visitors.come(f"late {number}", ("late", "n", 0))
    order = await visitors.serve(turn, took=1.0)
    assert order.index("early 4") < order.index("late 3"), order


async def test_a_request_that_would_wait_too_long_is_refused_at_once() -> None:
    """The mean turn takes 5 ms at first, so four of one tenant may wait for 20 ms; another tenant's first shares the turns."""
    queue, turn, visitors = await one_turn(0.0201)
    for number in range(4):
        await visitors.come(f"first {number}", ("noisy", "n", 0))
    queue.is_busy = True
    with pytest.raises(Overloaded) as refusal:
        await queue.enter(("noisy", "n", 0))
    assert refusal.value.headers == {"Retry-After": "1"}
    await visitors.come("quiet", ("quiet", "n", 0))
    assert (await visitors.serve(turn))[:2] == ["quiet", "first 0"]


async def test_the_only_request_of_a_tenant_is_served_at_once() -> None:
    queue, turn, visitors = await one_turn()
    await visitors.come("noisy", ("noisy", "n", 0))
    quiet = await queue.enter(("quiet", "n", 0))
    await visitors.come("quiet's second", ("quiet", "n", 0))  # waits, as its tenant holds a turn
    await visitors.come("third tenant", ("third", "n", 0))  # waits, as there are already twice as many as there are turns
    assert not visitors.served
    quiet.leave()
    await asyncio.sleep(0)
    assert not visitors.served  # the turn it held was one more than there are
    await visitors.come("quiet's third", ("quiet", "n", 0))  # does not overtake the second, which still waits
    assert not visitors.served
    assert sorted(await visitors.serve(turn)) == ["noisy", "quiet's second", "quiet's third", "third tenant"]


async def test_a_request_is_the_only_one_again_when_the_one_before_it_has_ended() -> None:
    queue, turn, visitors = await one_turn()
    await visitors.come("noisy", ("noisy", "n", 0))
    for _ in range(3):
        (await asyncio.wait_for(queue.enter(("quiet", "n", 0)), 5)).leave()
    assert await visitors.serve(turn) == ["noisy"]


async def test_a_request_that_has_waited_too_long_is_refused() -> None:
    queue, turn, _ = await one_turn(SHORT)
    queue.load = Load(busy=True)
    with pytest.raises(Overloaded):
        await queue.enter(("noisy", "n", 0))
    turn.leave()
    (await queue.enter(("noisy", "n", 0))).leave()


async def test_nobody_is_refused_while_the_processors_idle() -> None:
    queue = WorkQueue(64, SHORT / 100, Load())
    await fill(queue)
    more = await asyncio.gather(*(queue.enter(("noisy", "n", 0)) for _ in range(64 - USUAL)))
    assert [each.is_held for each in more] == [True] * (64 - USUAL)


async def test_a_turn_that_lasts_long_is_given_to_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work_queue, "LONGEST_TURN", SHORT)
    queue, slow, _ = await one_turn()
    queue.load = Load(busy=True)
    next_one = await queue.enter(("noisy", "n", 0))
    assert (slow.is_held, next_one.is_held) == (False, True)
    slow.leave()
    assert next_one.is_held


async def test_who_leaves_while_waiting_takes_no_turn() -> None:
    _, turn, visitors = await one_turn()
    leaver = await visitors.come("leaver", ("noisy", "n", 0))
    await visitors.come("stays", ("noisy", "n", 0))
    leaver.cancel()
    await asyncio.sleep(0)
    assert await visitors.serve(turn) == ["stays"]


async def test_who_leaves_as_the_turn_comes_passes_it_on() -> None:
    _, turn, visitors = await one_turn()
    leaver = await visitors.come("leaver", ("noisy", "n", 0))
    await visitors.come("stays", ("noisy", "n", 0))
    turn.leave()
    leaver.cancel()
    for _ in range(4):
        await asyncio.sleep(0)
    assert [name for name, _ in visitors.served] == ["stays"]


async def test_who_waits_for_something_else_leaves_its_turn_to_others() -> None:
    queue, turn, _ = await one_turn()
    waiting = asyncio.create_task(queue.enter(("quiet", "n", 0)))
    await asyncio.sleep(0)
    turn.leave()
    other = await waiting
    turn.resume()
    third = asyncio.create_task(queue.enter(("quiet", "n", 0)))
    await asyncio.sleep(0)
    other.leave()
    await asyncio.sleep(0)
    assert not third.done(), "two turns are taken, and one is the limit"
    turn.leave()
    (await third).leave()


async def test_the_number_of_turns_follows_the_processors() -> None:
    load = Load()
    queue = WorkQueue(256, LONG, load)
    turns = await fill(queue)
    waiting = [asyncio.create_task(queue.enter(("noisy", "n", 0))) for _ in range(100)]
    load.busy = True
    await reaches(lambda: queue.turns == LEAST)
    load.busy = False
    await reaches(lambda: queue.turns > USUAL)
    for each in turns:
        each.leave()
    for task in waiting:
        (await task).leave()
    await reaches(lambda: queue.turns == USUAL)


async def reaches(state: Callable[[], bool]) -> None:
    async with asyncio.timeout(LONG):
        while not state():  # noqa: ASYNC110  the queue tells nobody
            await asyncio.sleep(work_queue.TICK / 2)


async def test_the_front_refuses_what_would_wait_too_long(tmp_path: Any) -> None:
    config = make_config(tmp_path, server__queue_ms=20)
    gate, working = asyncio.Event(), 0

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal working
        working += 1
        await gate.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    front = Front(application, {}, config, lambda: Readiness("ok"))
    front.queue.load = Load(busy=True)
    tasks = [asyncio.create_task(visit(front)) for _ in range(USUAL + 1)]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    refused = [task.result() for task in tasks if task.done()]
    gate.set()
    answers = [await task for task in tasks]
    assert [(status, json.loads(body)["error"]["code"], headers[b"retry-after"]) for status, headers, body in refused] == [
        (503, "overloaded", b"1")
    ]
    assert (working, [status for status, _, _ in answers].count(200)) == (USUAL, USUAL)


async def visit(front: Callable[[Scope, Receive, Send], Awaitable[None]]) -> tuple[int, dict[bytes, bytes], bytes]:
    """Status, headers and body of a request from one client."""
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    scope = {
        "type": "http", "method": "GET", "path": "/", "query_string": b"", "headers": [(b"host", b"localhost")],
        "client": ("127.0.0.1", 1), "http_version": "1.1",
    }  # fmt: skip
    await front(scope, receive, send)
    return sent[0]["status"], {name.lower(): value for name, value in sent[0]["headers"]}, sent[1]["body"]
