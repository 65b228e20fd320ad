"""The stream of an execution's events ends with the last of them, whenever the execution ends."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from appliance.api.processes import executions
from appliance.core.scope import TenantScope


def event(number: int, kind: str) -> Any:
    return SimpleNamespace(id=number, type=kind, at=0, data={"status": kind})


async def test_an_end_between_two_looks_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends after its events were read, and before the stream asks whether it is over."""
    stored = [event(1, "running")]

    def events_after(scope: TenantScope, execution_id: str, last: int) -> Sequence[Any]:
        return [each for each in stored if each.id > last]

    def is_over(call: Any, execution_id: str) -> bool:
        if len(stored) == 1:
            stored.append(event(2, "succeeded"))
        return True

    monkeypatch.setattr(executions, "_events_after", events_after)
    monkeypatch.setattr(executions, "_is_over", is_over)
    call: Any = SimpleNamespace(services=SimpleNamespace(threads=None), scope=TenantScope("acme", "test"))
    assert [kind async for _, kind, _ in executions._events(call, "exe_1", 0)] == ["running", "succeeded"]
