"""What shipping points costs: processor time for each commit with `backup.points_to` on and off, in turns.

`python -m tests.bench.points [SECONDS] [COMMITS A SECOND]`: entities are created one by one, at that rate, so long in each turn.
Processor time, of this process with all its threads, because the machine does other things too.
"""

import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

from appliance.backups.points import PointShipper
from appliance.core.scope import TenantScope
from appliance.datapool import service as datapool
from tests.backups.conftest import World
from tests.backups.points.worlds import point_world, shipping
from tests.processes.world import wait_until

TURNS = 4


def spend(scope: TenantScope, seconds: float, rate: float) -> tuple[float, int]:
    """Processor milliseconds and the number of commits, made at the rate as far as the machine can."""
    pause, count = threading.Event(), 0
    began, worked = time.monotonic(), time.process_time()
    while (passed := time.monotonic() - began) < seconds:
        if count < passed * rate:
            datapool.create_entity(scope, "orders", {"number": f"{time.monotonic_ns()}", "total": "7.25"})
            count += 1
        else:
            pause.wait(count / rate - passed)
    return (time.process_time() - worked) * 1000, count


def cpu_of_threads() -> dict[str, float]:
    """Milliseconds of each thread."""
    result = dict[str, float]()
    for thread in threading.enumerate():
        if thread.native_id is not None:
            fields = Path(f"/proc/self/task/{thread.native_id}/schedstat").read_text().split()
            result[thread.name] = int(fields[0]) / 1e6
    return result


@contextmanager
def shipped(world: World) -> Iterator[PointShipper]:
    with shipping(world) as shipper:
        wait_until(lambda: shipper._chain is not None and shipper._chain.merger._is_begun, 60)
        yield shipper


def measure(world: World, scope: TenantScope, seconds: float, rate: float, *, is_on: bool) -> float:
    """Processor milliseconds of a commit; prints those of each thread too."""
    with shipped(world) if is_on else nullcontext():
        before = cpu_of_threads()
        worked, count = spend(scope, seconds, rate)
        after = cpu_of_threads()
    threads = ", ".join(f"{name} {(after[name] - before.get(name, 0)) / count:.3f}" for name in sorted(after))
    mode, pace = "on " if is_on else "off", f"{count / seconds:.0f} commits/s"
    print(f"{mode} {worked / count:.3f} ms a commit, {pace}; {threads}", flush=True)
    return worked / count


def main(seconds: float = 10.0, rate: float = 100.0) -> None:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "points").mkdir()
        world = point_world(Path(folder) / "data", str(Path(folder) / "points"))
        with world.opened():
            scope = world.fill()
            turns = [[measure(world, scope, seconds, rate, is_on=is_on) for is_on in (False, True)] for _ in range(TURNS)]
    off, on = (statistics.median(each) for each in zip(*turns, strict=True))
    print(f"median: off {off:.3f} ms, on {on:.3f} ms, {100 * (on - off) / off:+.1f} %")


if __name__ == "__main__":
    main(*map(float, sys.argv[1:]))
