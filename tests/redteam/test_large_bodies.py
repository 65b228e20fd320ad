"""Large bodies are processed one at a time, tenant by tenant, and a turn that takes too long is taken back."""

import asyncio
from contextlib import AsyncExitStack

import pytest

from appliance.tenants import LARGE_BYTES, LargeBodies, large_bodies


@pytest.fixture(autouse=True)
def unlimited_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Turns do not expire on a busy machine; tests of their expiry set a limit of their own."""
    monkeypatch.setattr(large_bodies, "MAX_TURN_SECONDS", 3_600.0)


class Visitors:
    """Requests with large bodies: each records its name when its turn comes and releases the turn in `leave`."""

    def __init__(self) -> None:
        self.bodies = LargeBodies()
        self.served: list[str] = []
        self.may_go: dict[str, asyncio.Event] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}

    async def come(self, name: str, size: int = LARGE_BYTES) -> None:
        self.may_go[name] = asyncio.Event()
        self.tasks[name] = asyncio.ensure_future(self._be_served(name, size))
        await self.settle()

    async def _be_served(self, name: str, size: int) -> None:
        async with self.bodies.turn(name.partition("-")[0], size):
            self.served.append(name)
            await self.may_go[name].wait()

    async def leave(self, name: str) -> None:
        self.may_go[name].set()
        await self.tasks[name]
        await self.settle()

    async def settle(self) -> None:
        """Let the event loop run every callback that is ready."""
        for _ in range(10):
            await asyncio.sleep(0)


async def test_one_at_a_time_and_the_tenants_in_turn() -> None:
    visitors = Visitors()
    for name in ("globex-1", "globex-2", "globex-3", "acme-1", "acme-2"):
        await visitors.come(name)
    order: list[str] = []
    for _ in range(5):
        assert len(visitors.served) == len(order) + 1
        order.append(visitors.served[-1])
        await visitors.leave(order[-1])
    assert order == ["globex-1", "globex-2", "acme-1", "globex-3", "acme-2"]


async def test_a_small_body_never_waits() -> None:
    visitors = Visitors()
    await visitors.come("globex-1")
    await visitors.come("acme-1", LARGE_BYTES - 1)
    assert visitors.served == ["globex-1", "acme-1"]


async def test_a_cancelled_waiter_takes_no_turn() -> None:
    visitors = Visitors()
    for name in ("globex-1", "acme-1", "initech-1"):
        await visitors.come(name)
    visitors.tasks["acme-1"].cancel()
    await visitors.settle()
    await visitors.leave("globex-1")
    assert visitors.served == ["globex-1", "initech-1"]


async def test_a_waiter_cancelled_as_its_turn_comes_passes_it_on() -> None:
    visitors = Visitors()
    async with visitors.bodies.turn("globex", LARGE_BYTES):
        await visitors.come("acme-1")
        await visitors.come("initech-1")
    visitors.tasks["acme-1"].cancel()  # the turn is its own, and it has not noticed yet
    await visitors.settle()
    assert visitors.served == ["initech-1"]


async def test_a_turn_that_lasts_too_long_blocks_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """As when a request sends a large body to this appliance itself, and waits for the answer."""
    monkeypatch.setattr(large_bodies, "MAX_TURN_SECONDS", 0.01)
    bodies = LargeBodies()
    async with asyncio.timeout(10), AsyncExitStack() as stack:
        for _ in range(5):
            await stack.enter_async_context(bodies.turn("acme", LARGE_BYTES))
    visitors = Visitors()
    visitors.bodies = bodies
    await visitors.come("acme-1")
    assert visitors.served == ["acme-1"], "a turn that ended early was given back twice, or not at all"


async def test_a_turn_is_released_once(monkeypatch: pytest.MonkeyPatch) -> None:
    visitors = Visitors()
    monkeypatch.setattr(visitors.bodies.turns, "seconds", 0.01)
    await visitors.come("globex-1")
    monkeypatch.setattr(visitors.bodies.turns, "seconds", 3_600.0)
    async with asyncio.timeout(10), visitors.bodies.turn("acme", LARGE_BYTES):  # globex-1 has lost its own by now
        await visitors.come("initech-1")
        await visitors.leave("globex-1")
        assert visitors.served == ["globex-1"]
    await visitors.settle()
    assert visitors.served == ["globex-1", "initech-1"]
