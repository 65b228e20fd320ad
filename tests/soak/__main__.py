"""One appliance under an hour of mixed load: memory, descriptors, threads, write-ahead log and latency, sampled every ten seconds.

.venv/bin/python -m tests.soak [--minutes 60] [--seed 1] [--database URL] [--results FILE]

Appends a line of JSON for each sample to FILE, and ends with 1 if a figure does not hold: memory grows by less than 1 MB in ten
minutes (by least squares, without the first quarter), no more descriptors or threads in the last quarter than in the second, the
write-ahead log stays below 64 MB, and no request is refused.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from appliance.connectors.testing import free_port
from tests.bench.executions import headers_of, publish, raise_rate, running_server, set_up
from tests.bench.processes import find_server, pss_mb, tree_of

from .load import Load

EVERY = 10.0  # seconds
MOST_SLOPE, MOST_WAL = 1.0, 64.0  # MB in ten minutes, MB


@dataclass(frozen=True)
class Sample:
    """One look: seconds since the start, MB (PSS) of the server and of its children, open descriptors and threads of the server, MB
    of the write-ahead log and of the database, requests so far, and p50 and p99 in ms of the executions since the last sample."""

    at: float
    server_mb: float
    children_mb: float
    descriptors: int
    threads: int
    wal_mb: float
    database_mb: float
    requests: int
    p50: float
    p99: float


def take_sample(server: int, folder: Path, load: Load, at: float) -> Sample:
    latencies = sorted(load.take_latencies()) or [0.0]
    children = [pid for pid in tree_of(server) if pid != server]
    return Sample(
        at=round(at, 1), server_mb=round(pss_mb(server), 2), children_mb=round(sum(map(pss_mb, children)), 2),
        descriptors=_count(server, "fd"), threads=_count(server, "task"),
        wal_mb=_size_mb(folder / "gos.db-wal"), database_mb=_size_mb(folder / "gos.db"), requests=load.done,
        p50=round(statistics.median(latencies), 1), p99=round(latencies[int(len(latencies) * 0.99)], 1),
    )  # fmt: skip


def _count(process: int, what: str) -> int:
    return sum(1 for _ in Path(f"/proc/{process}/{what}").iterdir())


def _size_mb(path: Path) -> float:
    return round(path.stat().st_size / (1 << 20), 2) if path.exists() else 0.0


def slope(samples: Sequence[Sample]) -> float:
    """By how many MB in ten minutes the memory of the server grows, by least squares."""
    fit = statistics.linear_regression([each.at / 600 for each in samples], [each.server_mb for each in samples])
    return fit.slope


def judge(samples: Sequence[Sample], refused: dict[str, int]) -> list[tuple[bool, str]]:
    """Whether each figure holds, with a sentence."""
    quarter = len(samples) // 4
    early, late, settled = samples[quarter : 2 * quarter], samples[-quarter:], samples[quarter:]
    grows, wal = slope(settled), max(each.wal_mb for each in samples)

    def peaks(name: str) -> tuple[int, int]:
        return max(getattr(each, name) for each in early), max(getattr(each, name) for each in late)

    descriptors, threads = peaks("descriptors"), peaks("threads")
    first, last = settled[0], settled[-1]
    return [
        (grows < MOST_SLOPE, f"memory: {first.server_mb:.0f} to {last.server_mb:.0f} MB, {grows:+.2f} MB in ten minutes"),
        (descriptors[1] <= descriptors[0] + 2, f"descriptors: at most {descriptors[0]}, later {descriptors[1]}"),
        (threads[1] <= threads[0] + 2, f"threads: at most {threads[0]}, later {threads[1]}"),
        (wal < MOST_WAL, f"write-ahead log: at most {wal:.1f} MB, beside a database of {last.database_mb:.0f} MB"),
        (not refused, f"{last.requests} requests, refused: {refused or 'none'}"),
        (True, f"executions, medians of the samples: p50 {_median(settled, 'p50'):.0f} ms, p99 {_median(settled, 'p99'):.0f} ms"),
    ]


def _median(samples: Sequence[Sample], name: str) -> float:
    return float(statistics.median(getattr(each, name) for each in samples))


def soak(minutes: float, seed: int, results: Path, database: str = "") -> tuple[list[Sample], dict[str, int]]:
    """Run the load; the samples, and what was refused."""
    samples: list[Sample] = []
    with tempfile.TemporaryDirectory() as name, results.open("a") as file:
        folder, port = Path(name), free_port()
        headers = headers_of(port, *set_up(folder, port))
        if database:
            raise_rate(folder, database)
        with running_server(folder, port):
            publish(port, headers)
            del headers["Content-Type"]
            server, load = find_server(port), Load(port, headers, seed)
            began = time.monotonic()
            load.start()
            try:
                while (at := time.monotonic() - began) < minutes * 60:
                    time.sleep(EVERY - at % EVERY)  # the interval that is measured
                    samples.append(take_sample(server, folder, load, time.monotonic() - began))
                    file.write(json.dumps(asdict(samples[-1])) + "\n")
                    file.flush()
            finally:
                load.stop()
    return samples, load.refused


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--database", default="", help="a PostgreSQL URL; without, SQLite")
    parser.add_argument("--results", type=Path, default=Path("soak.jsonl"))
    args = parser.parse_args()
    if args.database:
        os.environ["GOS_STORAGE_DATABASE"] = args.database
    verdicts = judge(*soak(args.minutes, args.seed, args.results, args.database))
    for holds, text in verdicts:
        print("ok  " if holds else "FAIL", text)
    return int(not all(holds for holds, _ in verdicts))


if __name__ == "__main__":
    sys.exit(main())
