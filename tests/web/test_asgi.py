"""Awaitables that are begun before anything is put around their wait."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from appliance.sites.front import new_event_loop
from appliance.web import Started


def run(main: Coroutine[Any, Any, Any], *, by_uvloop: bool) -> Any:
    with asyncio.Runner(loop_factory=new_event_loop if by_uvloop else None) as runner:
        return runner.run(main)


class Work:
    """Waits for `gate`, if there is one; `ends` records how."""

    def __init__(self, gate: "asyncio.Future[str] | None" = None) -> None:
        self.gate = gate
        self.ends: list[str] = []

    async def do(self) -> str:
        try:
            result = "at once" if self.gate is None else await self.gate
        except BaseException as error:
            self.ends.append(type(error).__name__)
            raise
        self.ends.append(result)
        return result


@pytest.mark.parametrize("by_uvloop", [False, True])
def test_what_does_not_wait_is_over_at_once(by_uvloop: bool) -> None:
    async def main() -> None:
        started = Started(Work().do())
        assert (started.is_over, started.result, await started) == (True, "at once", "at once")

    run(main(), by_uvloop=by_uvloop)


@pytest.mark.parametrize("by_uvloop", [False, True])
def test_what_waits_goes_on_when_it_is_awaited(by_uvloop: bool) -> None:
    async def main() -> None:
        gate = asyncio.get_running_loop().create_future()
        work = Work(gate)
        started = Started(work.do())
        assert (started.is_over, work.ends) == (False, [])
        asyncio.get_running_loop().call_later(0.01, gate.set_result, "later")
        async with asyncio.timeout(10):
            assert await started == "later"
        assert started.is_over

    run(main(), by_uvloop=by_uvloop)


@pytest.mark.parametrize("by_uvloop", [False, True])
def test_a_time_limit_reaches_the_work(by_uvloop: bool) -> None:
    async def main() -> None:
        work = Work(asyncio.get_running_loop().create_future())
        started = Started(work.do())
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await started
        assert work.ends == ["CancelledError"]

    run(main(), by_uvloop=by_uvloop)


@pytest.mark.parametrize("by_uvloop", [False, True])
def test_errors_pass_through(by_uvloop: bool) -> None:
    async def main() -> None:
        gate = asyncio.get_running_loop().create_future()
        started = Started(Work(gate).do())
        gate.set_exception(ValueError("no"))
        with pytest.raises(ValueError, match="no"):
            await started
        gate = asyncio.get_running_loop().create_future()
        gate.set_exception(ValueError("at once"))
        with pytest.raises(ValueError, match="at once"):
            Started(Work(gate).do())

    run(main(), by_uvloop=by_uvloop)
