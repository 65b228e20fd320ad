"""What a started appliance costs while nobody uses it: start to ready, memory, threads and CPU per second of an idle server.

.venv/bin/python -m tests.bench.idle [--rounds 3] [--seconds 20] [--against FOLDER]

With `--against`, another checkout with its own `.venv` is measured in turns with this one, so that the hour does not matter.
"""

import argparse
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from appliance.connectors.testing import free_port
from tests.readiness import wait_ready

from .executions import ROOT
from .figures import Row, Section
from .processes import cpu_ms, pss_mb, tree_cpu_ms, tree_of

SETTLE_SECONDS = 12.0
"""After the start: threads that only the start needed end after 10 s without work."""


@dataclass(frozen=True)
class Figures:
    """One start and one idle interval: seconds to ready, CPU seconds until then, MB (PSS) of the server and of its children,
    threads of the server, and CPU milliseconds and context switches per second of all processes."""

    ready: float
    start_cpu: float
    server_mb: float
    children_mb: float
    threads: int
    cpu_ms: float
    switches: float


def measure(root: Path, data: Path, seconds: float) -> Figures:
    """Start the appliance of the checkout `root`, and watch it for `seconds` while it has nothing to do."""
    with running_server(root, data) as (server, ready):
        start_cpu = tree_cpu_ms(server) / 1000
        time.sleep(SETTLE_SECONDS)  # what a start leaves to do later is not idle
        before = {pid: (cpu_ms(pid), switches(pid)) for pid in tree_of(server)}
        time.sleep(seconds)  # the idle time that is measured
        used = [(cpu_ms(pid) - cpu, switches(pid) - count) for pid, (cpu, count) in before.items()]
        children = [pid for pid in tree_of(server) if pid != server]
        return Figures(
            ready=ready, start_cpu=start_cpu, server_mb=pss_mb(server), children_mb=sum(map(pss_mb, children)),
            threads=len(list(Path(f"/proc/{server}/task").iterdir())),
            cpu_ms=sum(cpu for cpu, _ in used) / seconds, switches=sum(count for _, count in used) / seconds,
        )  # fmt: skip


def prepare(root: Path, data: Path) -> None:
    """Compile as the set-up does, since Python may not do it by itself; the first start migrates and fills caches."""
    subprocess.run([gos(root)[0], "-m", "compileall", "-q", "appliance", "plugins"], cwd=root, check=True)
    subprocess.run([*gos(root), "--data", str(data), "init"], cwd=root, check=True, stdout=subprocess.DEVNULL)
    measure(root, data, 1.0)


@contextmanager
def running_server(root: Path, data: Path) -> Iterator[tuple[int, float]]:
    """A server of the checkout; yields its process id and the seconds from start to ready."""
    port = free_port()
    line = [*gos(root), "--data", str(data), "serve", "--port", str(port)]
    began = time.perf_counter()
    process = subprocess.Popen(line, cwd=root, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        wait_ready(port)
        yield process.pid, time.perf_counter() - began
    finally:
        process.terminate()
        process.wait(60)


def gos(root: Path) -> list[str]:
    """The command of a checkout; in its folder, so that its own code runs even if it shares the environment of another one."""
    return [str(root / ".venv" / "bin" / "python"), "-m", "appliance"]


def switches(pid: int) -> int:
    """How often threads of the process have waited for something."""
    files = Path(f"/proc/{pid}/task").glob("*/status")
    lines = [line for each in files for line in each.read_text().splitlines()]
    return sum(int(line.split()[1]) for line in lines if line.startswith("voluntary_ctxt_switches"))


def show(name: str, rounds: list[Figures]) -> None:
    def median(field: str) -> float:
        return float(statistics.median(getattr(each, field) for each in rounds))

    print(
        f"{name}: ready after {median('ready'):.2f} s with {median('start_cpu'):.2f} s of CPU; idle {median('server_mb'):.0f} MB "
        f"+ {median('children_mb'):.0f} MB of sandbox processes, {median('threads'):.0f} threads, "
        f"{median('cpu_ms'):.2f} ms of CPU and {median('switches'):.0f} waits per second"
    )


def measure_section() -> Section:
    """Medians of three starts and idle intervals of this checkout."""
    with tempfile.TemporaryDirectory() as name:
        data = Path(name)
        prepare(ROOT, data)
        rounds = [measure(ROOT, data, 10.0) for _ in range(3)]

    def median(field: str) -> float:
        return float(statistics.median(getattr(each, field) for each in rounds))

    memory = {"MB": median("server_mb") + median("children_mb")}
    rows = [
        Row("a later start, until it is ready", {"s": median("ready"), "CPU s": median("start_cpu")}, aim="1.2 s"),
        Row("memory when idle, sandbox processes included", memory, aim="130 MB"),
        Row("threads of the idle server", {"threads": median("threads")}, aim="25"),
        Row("each idle second", {"CPU ms": median("cpu_ms"), "waits": median("switches")}, aim="3 ms"),
    ]
    return Section("Start and idle", f"{SETTLE_SECONDS:.0f} s after the start, for 10 s; medians of three.", rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=20.0, help="length of the idle interval")
    parser.add_argument("--against", type=Path, help="another checkout, with its own .venv")
    args = parser.parse_args()
    roots = [ROOT, *([args.against.resolve()] if args.against else [])]
    rounds: dict[Path, list[Figures]] = {root: [] for root in roots}
    with tempfile.TemporaryDirectory() as name:
        for root in roots:
            data = Path(name) / str(roots.index(root))
            prepare(root, data)
        for _ in range(args.rounds):
            for root in roots:
                rounds[root].append(measure(root, Path(name) / str(roots.index(root)), args.seconds))
    for root in roots:
        show(str(root), rounds[root])


if __name__ == "__main__":
    main()
