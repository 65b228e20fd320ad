"""Measures the servers of two commits in turns, so that the hour of the machine does not matter: start and executions."""

import hashlib
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from appliance.connectors.testing import free_port

from .executions import ROOT, environment_of, execute, headers_of, measure_load, publish, running_server, set_up
from .figures import Row, Section
from .http_load import run_load
from .processes import find_server, tree_cpu_ms, tree_pss_mb

CONCURRENCIES = (1, 8, 32)
LOCK = Path("packaging/requirements.lock")
CACHE = ROOT / ".cache"
MADE_FROM = ("appliance/sandbox", "packaging/runtimes", "ui/editor", str(LOCK))
LOAD = "import sys; from pathlib import Path; from appliance.sandbox import runtimes; runtimes.load(Path(sys.argv[1]))"


@dataclass
class Side:
    """One of the two commits: its files, its data, and its figures of every round, by row and column."""

    name: str
    root: Path
    data: Path
    port: int = field(default_factory=free_port)
    headers: dict[str, str] = field(default_factory=dict)
    rounds: dict[tuple[str, str], list[float]] = field(default_factory=dict)

    def prepare(self) -> None:
        # As the set-up does: where Python writes no compiled files by itself, every start would compile all modules.
        subprocess.run([sys.executable, "-m", "compileall", "-q", "appliance", "plugins"], cwd=self.root, check=True)
        self.headers = headers_of(self.port, *set_up(self.data, self.port, self.root))
        with running_server(self.data, self.port, self.root):
            publish(self.port, self.headers)

    def measure(self, seconds: float) -> None:
        """One round: a start, then executions with each concurrency."""
        with running_server(self.data, self.port, self.root) as ready:
            server = find_server(self.port)
            self._add("start", {"ready s": ready, "CPU s": tree_cpu_ms(server) / 1000, "idle MB": tree_pss_mb(server)})
            request = execute("one", self.headers)
            run_load(self.port, [request], 4, 1.0)
            for concurrency in CONCURRENCIES:
                figures = measure_load(server, self.port, [request], concurrency, seconds)
                self._add(f"one code step, concurrency {concurrency}", figures)

    def _add(self, row: str, figures: dict[str, float]) -> None:
        for column, value in figures.items():
            self.rounds.setdefault((row, column), []).append(value)


@contextmanager
def checkout(commit: str, folder: Path) -> Iterator[Path]:
    """The files of a commit in a folder of their own, with runtimes that fit them; CalledProcessError if the commit is unknown."""
    tree = folder / "tree"
    subprocess.run(["git", "worktree", "add", "--quiet", "--detach", str(tree), commit], cwd=ROOT, check=True)
    try:
        (tree / ".cache").mkdir(exist_ok=True)
        (tree / ".cache" / "runtimes").symlink_to(find_runtimes(tree, CACHE))
        yield tree
    finally:
        subprocess.run(["git", "worktree", "remove", "--force", str(tree)], cwd=ROOT, check=True)


def find_runtimes(tree: Path, cache: Path) -> Path:
    """Those that the checkout `tree` can load: in `cache`, prepared by its own code unless this checkout's are of its version.

    They stay in a folder named after what they are made from, so that only the first comparison takes minutes.
    """
    here = [sys.executable, "-c", LOAD, str(cache / "runtimes")]
    if subprocess.run(here, cwd=tree, env=environment_of(tree), capture_output=True, check=False).returncode == 0:
        return cache / "runtimes"
    listing = subprocess.run(["git", "ls-tree", "HEAD", *MADE_FROM], cwd=tree, capture_output=True, check=True).stdout
    folder = cache / f"runtimes-{hashlib.sha256(listing).hexdigest()[:16]}"
    path = os.pathsep.join([str(cache / "node" / "bin"), os.environ["PATH"]])  # npm, where the set-up had to bring it
    line = [sys.executable, "-m", "appliance.sandbox.runtimes.prepare", "--out", str(folder)]
    subprocess.run(line, cwd=tree, env={**environment_of(tree), "PATH": path}, check=True)
    return folder


def compare(commit: str, rounds: int, seconds: float) -> Section:
    """Medians of both commits and their ratio; both run with the libraries that this checkout has installed."""
    with tempfile.TemporaryDirectory() as name, checkout(commit, Path(name)) as tree:
        omitted = []
        if (tree / LOCK).read_bytes() != (ROOT / LOCK).read_bytes():
            omitted.append(f"the libraries of {commit}, whose {LOCK} differs: both commits ran with those of this checkout")
        sides = [Side(commit, tree, Path(name) / "then"), Side("this checkout", ROOT, Path(name) / "now")]
        for side in sides:
            side.prepare()
        for number in range(rounds):
            for side in sides if number % 2 == 0 else sides[::-1]:
                side.measure(seconds)
    about = f"medians of {rounds} rounds in turns; the ratio is this checkout divided by {commit}."
    return Section(f"This checkout against {commit}", about, _rows(*sides), omitted=omitted)


def _rows(then: Side, now: Side) -> list[Row]:
    rows = []
    for (row, column), values in then.rounds.items():
        before, after = statistics.median(values), statistics.median(now.rounds[row, column])
        rows.append(Row(f"{row}: {column}", {then.name: before, now.name: after, "ratio": after / before}))
    return rows
