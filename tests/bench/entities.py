"""Entities per second over 100,000 rows: by id, lists by filter and sort, creating, refused by the rate limit; CPU per request.

.venv/bin/python -m tests.bench.entities [--seconds 3] [--only purchases] [--rows 100000]
"""

import argparse
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx

from appliance.connectors.testing import free_port
from appliance.core import ids

from .executions import BARE, find_server, running_server, set_up, wait_ready
from .http_load import run_load, to_request

CUSTOMERS = 100
FAR_FUTURE_SECONDS = 86_400


@dataclass(frozen=True)
class Subject:
    """A collection to measure: its definition, the stored columns of row `n`, the values of a new entity, and a list of ten."""

    definition: Mapping[str, Any]
    stored: Callable[[int], tuple[Any, ...]]
    values: Callable[[int], Mapping[str, Any]]
    list_query: Callable[[int], str]


PURCHASES = Subject(
    {
        "name": "purchases",
        "fields": [
            {"name": "number", "type": "text", "required": True, "unique": True},
            {"name": "customer", "type": "text"},
            {"name": "status", "type": "select", "options": ["open", "paid", "sent"]},
            {"name": "total", "type": "decimal", "scale": 2},
            {"name": "lines", "type": "integer"},
            {"name": "placed_at", "type": "datetime"},
            {"name": "express", "type": "boolean"},
        ],
        "indexes": [{"fields": ["customer"]}],
    },
    lambda n: (f"A-{n:07}", f"customer-{n % CUSTOMERS:03}", ("open", "paid", "sent")[n % 3], n * 7919 % 100_000, n % 12,
               1_790_000_000_000 + n * 1000, n % 2),
    lambda n: {"number": f"B-{n}", "customer": "a new one", "status": "open", "total": "12.50", "lines": 3,
               "placed_at": "2026-11-28T09:00:00Z", "express": True},
    lambda n: "filter=" + quote(json.dumps({"customer": f"customer-{n % CUSTOMERS:03}"})) + "&sort=-total&limit=10",
)  # fmt: skip
READINGS = Subject(
    {
        "name": "readings",
        "fields": [
            {"name": "sensor", "type": "text"},
            {"name": "value", "type": "number"},
            {"name": "contact", "type": "email"},
            {"name": "page", "type": "url"},
            {"name": "day", "type": "date"},
            {"name": "raw", "type": "json"},
            {"name": "remark", "type": "text"},
        ],
        "indexes": [{"fields": ["sensor"]}],
    },
    lambda n: (f"sensor {n % CUSTOMERS} ä", n * 7919 % 100_000 / 8, "a@example.com", f"https://example.com/{n}", "2026-11-28",
               json.dumps({"bits": [n, n + 1], "unit": "°C"}, ensure_ascii=False), None),
    lambda n: {"sensor": "another", "value": n / 8, "contact": "b@example.com", "page": "https://example.com/b",
               "day": "2026-11-28", "raw": {"bits": [1, 2, 3]}, "remark": "new"},
    lambda n: "filter=" + quote(json.dumps({"sensor": f"sensor {n % CUSTOMERS} ä"})) + "&sort=-value&limit=10",
)  # fmt: skip
SUBJECTS = {"purchases": PURCHASES, "readings": READINGS}


def fill(folder: Path, name: str, subject: Subject, count: int) -> list[str]:
    """Write `count` entities straight into the database; returns some of their ids."""
    with sqlite3.connect(folder / "gos.db") as connection:
        [(table,)] = connection.execute("SELECT table_name FROM collection WHERE name = ?", (name,)).fetchall()
        entity_ids = [ids.new("ent") for _ in range(count)]
        rows = [(each, 1_790_000_000_000, 1_790_000_000_000, 1, *subject.stored(n)) for n, each in enumerate(entity_ids)]
        marks = ", ".join("?" * len(rows[0]))
        connection.executemany(f'INSERT INTO "{table}" VALUES ({marks})', rows)  # noqa: S608
    connection.close()
    return random.Random(1).sample(entity_ids, 2000)  # noqa: S311


def cpu_seconds(pid: int) -> float:
    """Processor time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(what: str, port: int, pid: int, requests: list[bytes], concurrency: int, seconds: float, status: int = 200) -> None:
    before = cpu_seconds(pid)
    load = run_load(port, requests, concurrency, seconds, status)
    spent = (cpu_seconds(pid) - before) / load.requests * 1000
    rate = load.requests / load.seconds
    print(f"{what:28} {concurrency:2}: {rate:5.0f}/s, CPU {spent:.3f} ms, p50 {load.p50:.2f} ms, p99 {load.p99:.2f} ms", flush=True)


@contextmanager
def bare_hypercorn() -> Iterator[tuple[int, int]]:
    """The floor: port and process id of a Hypercorn whose application answers two bytes."""
    port = free_port()
    process = subprocess.Popen([sys.executable, "-c", BARE, str(port)], stderr=subprocess.DEVNULL)
    try:
        wait_ready(port)
        yield port, process.pid
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


def exhaust_key(client: httpx.Client, folder: Path) -> str:
    """A key that has used up its only request of the day."""
    issued = client.post("/api/v1/keys", json={"name": "spent", "scopes": ["entities.read"]}).raise_for_status().json()["data"]
    with sqlite3.connect(folder / "gos.db") as connection:
        connection.execute(
            "UPDATE api_key SET rate_requests = 1, rate_window_s = ? WHERE id = ?", (FAR_FUTURE_SECONDS, issued["id"])
        )
    connection.close()
    key: str = issued["key"]
    for _ in range(2):
        client.get("/api/v1/datapool", headers={"X-API-Key": key})
    return key


def measure_collection(port: int, pid: int, headers: Mapping[str, str], name: str, chosen: list[str], seconds: float) -> None:
    subject, base = SUBJECTS[name], f"/api/v1/datapool/{name}/entities"
    reads = [to_request("GET", f"{base}/{each}", headers) for each in chosen]
    lists = [to_request("GET", f"{base}?{subject.list_query(n)}", headers) for n in range(CUSTOMERS)]
    for concurrency in (1, 8):
        measure(f"{name}: by id", port, pid, reads, concurrency, seconds)
    for concurrency in (1, 8):
        measure(f"{name}: list of 10", port, pid, lists, concurrency, seconds)
    for concurrency in (1, 8):
        with_body = {**headers, "Content-Type": "application/json"}
        unique = range(concurrency * 1_000_000, concurrency * 1_000_000 + int(seconds * 4000))
        creates = [to_request("POST", base, with_body, json.dumps(subject.values(n))) for n in unique]
        measure(f"{name}: create", port, pid, creates, concurrency, seconds, 201)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--only", choices=SUBJECTS)
    options = parser.parse_args()
    with bare_hypercorn() as (port, pid):
        bare = [to_request("GET", "/", {"Host": "localhost"})]
        for concurrency in (1, 8):
            measure("floor: bare Hypercorn", port, pid, bare, concurrency, options.seconds)
    with tempfile.TemporaryDirectory() as name:
        folder, port = Path(name), free_port()
        tenant, key = set_up(folder, port)
        with running_server(folder, port):
            measure_server(folder, port, {"Host": f"{tenant}.localhost:{port}", "X-API-Key": key}, options)


def measure_server(folder: Path, port: int, headers: Mapping[str, str], options: argparse.Namespace) -> None:
    pid, names = find_server(port), [options.only] if options.only else list(SUBJECTS)
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", headers=dict(headers), trust_env=False) as client:
        for name in names:
            client.post("/api/v1/datapool", json=dict(SUBJECTS[name].definition)).raise_for_status()
            chosen = fill(folder, name, SUBJECTS[name], options.rows)
            measure_collection(port, pid, headers, name, chosen, options.seconds)
        spent = {**headers, "X-API-Key": exhaust_key(client, folder)}
        refused = [to_request("GET", "/api/v1/datapool", spent)]
        for concurrency in (1, 8):
            measure("refused by the rate limit", port, pid, refused, concurrency, options.seconds, 429)


if __name__ == "__main__":
    main()
