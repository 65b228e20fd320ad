"""How busy the processors are: this process, its container, the machine."""

import os
import time
from dataclasses import dataclass
from pathlib import Path

from appliance.core import clock

BUSY, FULL = 0.8, 0.9
MACHINE = Path("/proc/stat")
CONTAINER = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class _Reading:
    """Seconds since some moment: on the clock, used by this process and by its container, idle and total on all processors."""

    at: float
    process: float
    container: float
    idle: float
    total: float


class ProcessorLoad:
    """Compares readings; Linux's figures of machine and container are left out where they do not exist."""

    def __init__(self) -> None:
        self._quota = read_quota()
        self._last = self._read()

    def is_busy(self) -> bool:
        """Whether, since the last call, this process used one processor (as much as its interpreter can), its container most of
        what it is allowed, or all programs together nearly everything the machine has."""
        last, now = self._last, self._read()
        self._last = now
        passed = max(now.at - last.at, 0.001)
        if now.process - last.process >= BUSY * passed or now.container - last.container >= BUSY * self._quota * passed:
            return True
        total = now.total - last.total
        return total > 0 and now.idle - last.idle <= (1 - FULL) * total

    def _read(self) -> _Reading:
        container = _read_usage() if self._quota < float("inf") else 0.0
        return _Reading(clock.monotonic(), time.process_time(), container, *_read_machine())


def read_quota() -> float:
    """How many processors the container may use at a time (`cpu.max` of cgroup v2); infinite without a limit."""
    try:
        quota, period = (CONTAINER / "cpu.max").read_text().split()
    except OSError:
        return float("inf")
    return float("inf") if quota == "max" else int(quota) / int(period)


def _read_usage() -> float:
    for line in (CONTAINER / "cpu.stat").read_text().splitlines():
        name, value = line.split()
        if name == "usage_usec":
            return int(value) / 1e6
    raise RuntimeError("cpu.stat has no usage_usec")


def _read_machine() -> tuple[float, float]:
    """Idle (with waiting for disks) and total seconds of all processors; zeros where the system does not tell."""
    try:
        with MACHINE.open() as file:
            user, nice, system, idle, waiting, *others = (int(each) for each in file.readline().split()[1:9])
    except OSError:
        return 0.0, 0.0
    ticks = os.sysconf("SC_CLK_TCK")
    return (idle + waiting) / ticks, (user + nice + system + idle + waiting + sum(others)) / ticks
