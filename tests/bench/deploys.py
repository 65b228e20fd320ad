"""`gos deploy` of a site of 1,062 files and 72 MB: first version, ten changed files, no change; server memory and later work.

.venv/bin/python -m tests.bench.deploys
"""

import os
import random
import subprocess
import sys
import sysconfig
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from appliance.connectors.testing import free_port
from tests.bench.executions import ROOT, running_server, set_up
from tests.bench.processes import cpu_ms, find_server

# extension, files, smallest and largest size; what pictures and fonts hold is random, everything else is text
KINDS = [
    ("html", 620, 20_000, 70_000), ("js", 160, 20_000, 180_000), ("chunk.js", 6, 900_000, 1_100_000), ("css", 30, 5_000, 60_000),
    ("json", 80, 2_000, 60_000), ("svg", 30, 1_000, 8_000), ("png", 110, 20_000, 250_000), ("woff2", 20, 20_000, 60_000),
    ("map", 6, 300_000, 900_000),
]  # fmt: skip
ROUNDS, CHANGED = 3, 10
IDLE_SECONDS, IDLE_CPU = 6.0, 0.3  # longer than compressing waits for its turn


def make_site(folder: Path) -> int:
    """Write the files, the same ones each time on one machine; answers their bytes."""
    rng = random.Random(17)  # noqa: S311  # the same site each time
    source = b"".join(path.read_bytes() for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*/*.py")))
    total = 0
    for extension, count, smallest, largest in KINDS:
        for number in range(count):
            size = rng.randint(smallest, largest)
            path = folder / extension / str(number % 20) / f"{number}.{extension}"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(rng.randbytes(size) if extension in ("png", "woff2") else _text(rng, source, size))
            total += size
    return total


def _text(rng: random.Random, source: bytes, size: int) -> bytes:
    parts = []
    while size > 0:
        length = min(size, rng.randint(200, 4_000))
        start = rng.randrange(len(source) - length)
        parts.append(source[start : start + length])
        size -= length
    return b"".join(parts)


@dataclass(frozen=True)
class DeployBench:
    """Runs `gos deploy` in separate processes and measures the server meanwhile."""

    site: Path
    server: int
    environment: dict[str, str]

    def deploy(self, title: str) -> None:
        """Print seconds from start to end of the command, processor time of the server, and its largest memory."""
        Path(f"/proc/{self.server}/clear_refs").write_text("5")  # from here on VmHWM is new
        line = [sys.executable, "-m", "appliance", "deploy", "site", str(self.site), "--create", "--publish"]
        memory, worked, began = self._memory("VmRSS"), cpu_ms(self.server) / 1000, time.perf_counter()
        done = subprocess.run(line, cwd=ROOT, env=self.environment, check=True, capture_output=True, text=True)
        seconds, worked = time.perf_counter() - began, cpu_ms(self.server) / 1000 - worked
        sent = done.stdout.split(": ", 1)[1].split(", published")[0]
        grown = self._memory("VmHWM") - memory
        figures = f"{seconds:.2f} s, {worked:.1f} s of the server's processors, {grown:.0f} MB more memory"
        print(f"{title}: {figures}; {sent}", flush=True)

    def wait_until_idle(self) -> None:
        """Print the server's background work after a deploy, until it is idle."""
        first, began = cpu_ms(self.server) / 1000, time.perf_counter()
        while True:
            worked = cpu_ms(self.server) / 1000
            time.sleep(IDLE_SECONDS)  # what is measured: whether the server works in this time
            if cpu_ms(self.server) / 1000 - worked < IDLE_CPU:
                break
        seconds, size = time.perf_counter() - began - IDLE_SECONDS, worked - first
        print(f"what is compressed further behind it: {seconds:.0f} s, {size:.0f} s of a processor", flush=True)

    def change_files(self, number: int) -> None:
        """Change the beginning of CHANGED files."""
        for path in sorted(self.site.rglob("*.html"))[:CHANGED]:
            path.write_bytes(f"<!-- {number} -->".encode() + path.read_bytes())

    def _memory(self, name: str) -> float:
        lines = Path(f"/proc/{self.server}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith(name)) / 1024


def main() -> None:
    with tempfile.TemporaryDirectory() as temporary:
        site, data, port = Path(temporary) / "site", Path(temporary) / "data", free_port()
        size = make_site(site)
        files = sum(count for _, count, *_ in KINDS)
        print(f"{files:,} files, {size / 1e6:.0f} MB, load {os.getloadavg()[0]:.1f}", flush=True)
        tenant, key = set_up(data, port)
        with running_server(data, port):
            environment = {**os.environ, "GOS_URL": f"http://{tenant}.localhost:{port}", "GOS_API_KEY": key}
            bench = DeployBench(site, find_server(port), environment)
            bench.deploy("first version")
            bench.wait_until_idle()
            for number in range(ROUNDS):
                bench.change_files(number)
                bench.deploy(f"{CHANGED} files changed")
            bench.deploy("nothing changed")


if __name__ == "__main__":
    main()
