"""What a server's processes use: processor time and memory, read from the kernel."""

import subprocess
import time
from pathlib import Path

_PROCESS_CLOCK = 2
"""CPUCLOCK_SCHED of Linux's posix-timers: the processor time of a whole process, its ended threads included."""


def find_server(port: int) -> int:
    """The id of the `gos serve` process on this port."""
    result = subprocess.run(["pgrep", "-f", f"serve --port {port}"], capture_output=True, text=True, check=True)
    return int(result.stdout.split()[0])


def tree_of(server: int) -> list[int]:
    """The server and its children."""
    children = subprocess.run(["pgrep", "-P", str(server)], capture_output=True, text=True, check=False)
    return [server, *map(int, children.stdout.split())]


def cpu_ms(process: int) -> float:
    """Processor time of a process in nanosecond steps; `/proc/PID/stat` counts in steps of 10 ms. OSError when it has ended."""
    return time.clock_gettime(~process << 3 | _PROCESS_CLOCK) * 1000


def tree_cpu_ms(server: int) -> float:
    """Processor time of a server and its living children."""
    return sum(map(cpu_ms, tree_of(server)))


def pss_mb(process: int) -> float:
    """Proportional set size: pages that processes share are counted once."""
    lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


def tree_pss_mb(server: int) -> float:
    """Memory of a server and its children."""
    return sum(map(pss_mb, tree_of(server)))
