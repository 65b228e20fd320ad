"""Entities per second over 100,000 rows: by id, lists by filter and sort, creating, refused by the rate limit; CPU per request.

.venv/bin/python -m tests.bench.entities
"""

import json
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
from tests.readiness import wait_ready

from .executions import BARE, running_server, set_up
from .figures import Kind, Row, Section, show
from .http_load import run_load, to_request
from .processes import cpu_ms, find_server

COUNT, CUSTOMERS = 100_000, 100
FIRST_NEW, MOST_NEW = 1_000_000, 100_000  # more than are created in SECONDS
SECONDS = 3.0
AIMS = {
    ("purchases: by id", 1): "≥ 1,800 per second", ("purchases: by id", 8): "≥ 2,200 per second",
    ("purchases: list of 10", 8): "≥ 700 per second", ("purchases: create", 1): "≥ 700 per second",
    ("purchases: create", 8): "≥ 1,600 per second", ("refused by the rate limit", 1): "≤ 0.35 ms of CPU",
}  # fmt: skip
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


@dataclass(frozen=True)
class Server:
    """A server under load: its port and process, and the headers of its requests."""

    port: int
    pid: int
    headers: Mapping[str, str]

    def measure(self, what: str, requests: list[bytes], status: int = 200, kind: Kind = "measured") -> list[Row]:
        """The requests over one connection and over eight."""
        return [self._measure(what, requests, concurrency, status, kind) for concurrency in (1, 8)]

    def _measure(self, what: str, requests: list[bytes], concurrency: int, status: int, kind: Kind) -> Row:
        before = cpu_ms(self.pid)
        load = run_load(self.port, requests[concurrency - 1 :: 8], concurrency, SECONDS, status)
        figures = {
            "per second": load.requests / load.seconds, "p50 ms": load.p50, "p99 ms": load.p99,
            "CPU ms": (cpu_ms(self.pid) - before) / load.requests,
        }  # fmt: skip
        return Row(f"{what}, concurrency {concurrency}", figures, kind, AIMS.get((what, concurrency), ""))


@contextmanager
def bare_hypercorn() -> Iterator[Server]:
    """The floor: a Hypercorn whose application answers two bytes."""
    port = free_port()
    process = subprocess.Popen([sys.executable, "-c", BARE, str(port)], stderr=subprocess.DEVNULL)
    try:
        wait_ready(port)
        yield Server(port, process.pid, {"Host": "localhost"})
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


def measure_collection(server: Server, name: str, chosen: list[str]) -> list[Row]:
    subject, base = SUBJECTS[name], f"/api/v1/datapool/{name}/entities"
    with_body = {**server.headers, "Content-Type": "application/json"}
    reads = [to_request("GET", f"{base}/{each}", server.headers) for each in chosen]
    lists = [to_request("GET", f"{base}?{subject.list_query(n)}", server.headers) for n in range(CUSTOMERS)]
    creates = [to_request("POST", base, with_body, json.dumps(subject.values(n))) for n in range(FIRST_NEW, FIRST_NEW + MOST_NEW)]
    return [
        *server.measure(f"{name}: by id", reads), *server.measure(f"{name}: list of 10", lists),
        *server.measure(f"{name}: create", creates, 201),
    ]  # fmt: skip


def measure_section() -> Section:
    about = f"100,000 entities in each of two collections; {SECONDS:.0f} s each. A list has 1,000 matches, sorted by a field."
    section = Section("Entities", about, plot="per second")
    with bare_hypercorn() as bare:
        section.rows += bare.measure("bare Hypercorn", [to_request("GET", "/", bare.headers)] * 8, kind="floor")
    with tempfile.TemporaryDirectory() as name:
        folder, port = Path(name), free_port()
        tenant, key = set_up(folder, port)
        with running_server(folder, port):
            server = Server(port, find_server(port), {"Host": f"{tenant}.localhost:{port}", "X-API-Key": key})
            section.rows += measure_server(folder, server)
    return section


def measure_server(folder: Path, server: Server) -> list[Row]:
    rows: list[Row] = []
    with httpx.Client(base_url=f"http://127.0.0.1:{server.port}", headers=dict(server.headers), trust_env=False) as client:
        for name, subject in SUBJECTS.items():
            client.post("/api/v1/datapool", json=dict(subject.definition)).raise_for_status()
            rows += measure_collection(server, name, fill(folder, name, subject, COUNT))
        spent = {**server.headers, "X-API-Key": exhaust_key(client, folder)}
        rows += server.measure("refused by the rate limit", [to_request("GET", "/api/v1/datapool", spent)] * 8, 429)
    return rows


if __name__ == "__main__":
    show(measure_section())
