"""Large bodies take turns: one at a time, tenant by tenant, and nobody keeps the turn for what is no work on a body."""

import asyncio
from contextlib import AsyncExitStack

import pytest

from appliance.tenants import LARGE_BYTES, LargeBodies, large_bodies


@pytest.fixture(autouse=True)
def held_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody loses a turn because the machine is busy; who tests that says so."""
    monkeypatch.setattr(large_bodies, "MAX_TURN_SECONDS", 3_600.0)


class Visitors:
    """Requests with large bodies: each notes its name when its turn comes, and gives it back when it is told."""

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
        """Everything that can happen without anybody's doing has happened."""
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


async def test_whoever_leaves_while_it_waits_takes_no_turn() -> None:
    visitors = Visitors()
    for name in ("globex-1", "acme-1", "initech-1"):
        await visitors.come(name)
    visitors.tasks["acme-1"].cancel()
    await visitors.settle()
    await visitors.leave("globex-1")
    assert visitors.served == ["globex-1", "initech-1"]


async def test_whoever_leaves_in_the_moment_of_its_turn_passes_it_on() -> None:
    visitors = Visitors()
    async with visitors.bodies.turn("globex", LARGE_BYTES):
        await visitors.come("acme-1")
        await visitors.come("initech-1")
    visitors.tasks["acme-1"].cancel()  # the turn is its own, and it has not noticed yet
    await visitors.settle()
    assert visitors.served == ["initech-1"]


async def test_a_turn_that_lasts_keeps_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """As when a request sends a large body to this appliance itself, and waits for the answer."""
    monkeypatch.setattr(large_bodies, "MAX_TURN_SECONDS", 0.01)
    bodies = LargeBodies()
    async with asyncio.timeout(10), AsyncExitStack() as turns:
        for _ in range(5):
            await turns.enter_async_context(bodies.turn("acme", LARGE_BYTES))
    visitors = Visitors()
    visitors.bodies = bodies
    await visitors.come("acme-1")
    assert visitors.served == ["acme-1"], "a turn that ended early was given back twice, or not at all"


async def test_a_turn_is_given_back_once(monkeypatch: pytest.MonkeyPatch) -> None:
    visitors = Visitors()
    monkeypatch.setattr(large_bodies, "MAX_TURN_SECONDS", 0.01)
    await visitors.come("globex-1")
    monkeypatch.setattr(large_bodies, "MAX_TURN_SECONDS", 3_600.0)
    async with asyncio.timeout(10), visitors.bodies.turn("acme", LARGE_BYTES):  # globex-1 has lost its own by now
        await visitors.come("initech-1")
        await visitors.leave("globex-1")
        assert visitors.served == ["globex-1"]
    await visitors.settle()
    assert visitors.served == ["globex-1", "initech-1"]
