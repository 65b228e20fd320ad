"""A clock that was set is told of; one that a time server keeps is not."""

import pytest

from appliance.core import clock
from appliance.monitor.clock_watch import ClockWatch


def test_a_jump_is_told_once_and_with_its_direction(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    wall, boot = [1_000_000], [0]
    monkeypatch.setattr(clock, "now_ms", lambda: wall[0])
    monkeypatch.setattr(clock, "since_boot_ms", lambda: boot[0])
    watch = ClockWatch()

    def look(wall_ms: int, boot_ms: int) -> int:
        wall[0] += wall_ms
        boot[0] += boot_ms
        return watch.look()

    assert [look(1_000, 1_000), look(2_000, 1_000), look(9 * 3_600_000, 9 * 3_600_000)] == [0, 0, 0], "sleep is no jump"
    assert [look(7_201_000, 1_000), look(1_000, 1_000), look(-7_199_000, 1_000)] == [7_200_000, 0, -7_200_000]
    assert [record.getMessage().split(":")[0] for record in caplog.records] == [
        "the clock was set ahead by 7200 s", "the clock was set back by 7200 s",
    ]  # fmt: skip
