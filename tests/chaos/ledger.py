"""Clients that write all the time and note what was acknowledged, and the check that all of it is there."""

import hashlib
import json
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

CLIENTS = 4
LARGEST = 200_000
MARKS_PER_RUN = 2
PROCESS = {
    "id": "ledger",
    "grants": {"datapool": {"marks": ["read", "write"]}},
    "steps": [
        {"id": "first", "datapool": {"collection": "marks", "create": {"values": {"run": "= input.run", "what": "first"}}}},
        {"id": "pause", "wait": {"for": "20ms"}},
        {"id": "last", "datapool": {"collection": "marks", "create": {"values": {"run": "= input.run", "what": "last"}}}},
    ],
}
Rows = Callable[[Any], list[tuple[Any, ...]]]


def publish(client: httpx.Client) -> None:
    """The process that the clients execute."""
    client.put(f"/api/v1/processes/{PROCESS['id']}", json=PROCESS).raise_for_status()
    client.post(f"/api/v1/processes/{PROCESS['id']}/publish", json={}).raise_for_status()


@dataclass
class Acknowledged:
    """What was answered with success: executions and entities by id with their names, documents by id with their digests, and the
    last change of each client's own entity."""

    executions: dict[str, str] = field(default_factory=dict)
    entities: dict[str, str] = field(default_factory=dict)
    documents: dict[str, str] = field(default_factory=dict)
    changes: dict[str, int] = field(default_factory=dict)

    @property
    def total(self) -> int:
        return len(self.executions) + len(self.entities) + len(self.documents) + sum(self.changes.values())


@dataclass(frozen=True)
class Content:
    """What the database holds now."""

    executions: dict[str, str]
    documents: dict[str, tuple[str, str]]
    entities: dict[str, tuple[str, str, int]]

    @property
    def marks(self) -> Counter[str]:
        """How many marks each run has left."""
        return Counter(run for run, what, _ in self.entities.values() if what in ("first", "last"))


def read_content(rows: Rows) -> Content:
    """Executions with their status, documents with digest and place, entities with run, kind and note."""
    ((table, definition),) = rows("SELECT table_name, definition FROM collection WHERE name = 'marks'")
    fields = definition if isinstance(definition, dict) else json.loads(definition)
    columns = {each["name"]: each["column"] for each in fields["fields"]}
    run, what, note = (columns[name] for name in ("run", "what", "note"))
    entities = rows(f'SELECT id, "{run}", "{what}", "{note}" FROM "{table}"')  # noqa: S608  names of the appliance's own
    documents = rows(
        "SELECT d.id, d.sha256, b.place FROM document d JOIN blob b ON b.tenant_id = d.tenant_id AND b.sha256 = d.sha256"
    )
    return Content(
        dict(rows("SELECT id, status FROM execution")),
        {each: (digest, place) for each, digest, place in documents},
        {each: (name, kind, int(number or 0)) for each, name, kind, number in entities},
    )  # fmt: skip


def find_losses(acknowledged: Acknowledged, content: Content, blobs: Path) -> list[str]:
    """What was acknowledged and is not there, or is other than it was."""
    losses = [f"execution {each}" for each in acknowledged.executions if each not in content.executions]
    losses += [f"entity {each}" for each in acknowledged.entities if each not in content.entities]
    for each, digest in acknowledged.documents.items():
        if content.documents.get(each, ("", ""))[0] != digest:
            losses.append(f"document {each}")
        elif digest_of(blobs / content.documents[each][1]) != digest:
            losses.append(f"content of document {each}")
    for each, number in acknowledged.changes.items():
        if content.entities.get(each, ("", "", -1))[2] < number:
            losses.append(f"change {number} of entity {each}")
    return losses


def find_damage(content: Content, blobs: Path) -> list[str]:
    """Documents whose file is missing or incomplete, acknowledged or not."""
    broken = [each for each, (digest, place) in content.documents.items() if digest_of(blobs / place) != digest]
    return [f"content of document {each}" for each in broken]


def find_unfinished(acknowledged: Acknowledged, content: Content) -> list[str]:
    """Once all is settled: accepted executions that have not succeeded, and runs whose marks are too few or too many."""
    marks = content.marks
    states = {each: content.executions.get(each) for each in acknowledged.executions}
    problems = [f"execution {each} is {state}" for each, state in states.items() if state != "succeeded"]
    problems += [f"run {run} left {marks[run]} marks" for run in acknowledged.executions.values() if marks[run] != MARKS_PER_RUN]
    problems += [f"run {run} left {count} marks" for run, count in marks.items() if count > MARKS_PER_RUN]
    return problems


def digest_of(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except FileNotFoundError:
        return ""


class Ledger:
    """Clients that write until `stop`; `statuses` counts responses, `unexpected` has those that no trouble explains.

    `excused` are the codes of refusals that the experiment causes; with `may_break`, connections may break, too.
    """

    def __init__(
        self,
        connect: Callable[[], httpx.Client],
        seed: int,
        excused: Iterable[str],
        *,
        may_break: bool = False,
        largest: int = LARGEST,
    ) -> None:
        self._connect, self._seed, self._excused, self._may_break = connect, seed, frozenset(excused), may_break
        self.largest = largest
        self._by_request: dict[str, Callable[[Acknowledged], None]] = {}
        self.acknowledged = Acknowledged()
        self.statuses: Counter[str] = Counter()
        self.unexpected: list[str] = []
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._threads = ThreadPoolExecutor(CLIENTS)
        self._clients: list[Future[None]] = []

    def start(self) -> None:
        """Let the clients begin."""
        self._clients = [self._threads.submit(self._run, number) for number in range(CLIENTS)]

    def stop(self) -> None:
        """Let the clients end; raises what one of them failed with."""
        self._stopping.set()
        for each in self._clients:
            each.result()
        self._threads.shutdown()

    def acknowledge(self, request: str, acknowledged: Acknowledged) -> None:
        """Note in `acknowledged` what the success of a request has acknowledged."""
        if request in self._by_request:
            self._by_request[request](acknowledged)

    def count(self, status: str) -> int:
        with self._lock:
            return self.statuses[status]

    def _run(self, number: int) -> None:
        chance = random.Random(self._seed * CLIENTS + number)  # noqa: S311  which request is next is no secret
        writer = Writer(self, f"s{self._seed}c{number}", chance)
        while not self._stopping.is_set():
            try:
                with self._connect() as client:
                    while not self._stopping.is_set():
                        writer.write(client)
            except httpx.TransportError as error:
                if not self._may_break:
                    raise
                with self._lock:
                    self.statuses[type(error).__name__] += 1
                self._stopping.wait(0.02)

    def note(self, response: httpx.Response, acknowledge: Callable[[Acknowledged, Any], None]) -> bool:
        """Count a response, and note what a success acknowledges."""
        with self._lock:
            code = "" if response.is_success else response.json()["error"]["code"]
            self.statuses[f"{response.status_code} {code}".strip()] += 1
            if response.is_success:
                data = response.json()["data"]
                acknowledge(self.acknowledged, data)
                request = response.headers["X-Request-Id"].removeprefix("req-")
                self._by_request[request] = lambda acknowledged: acknowledge(acknowledged, data)
            elif code not in self._excused:
                self.unexpected.append(f"{response.request.method} {response.request.url}: {response.text[:300]}")
        if not response.is_success:
            self._stopping.wait(0.02)
        return response.is_success


class Writer:
    """One client: executions, entities, documents and changes of its own entity, in turns drawn by lot."""

    def __init__(self, ledger: Ledger, name: str, chance: random.Random) -> None:
        self._ledger, self._name, self._chance = ledger, name, chance
        self._count, self._own, self._changes = 0, "", 0

    def write(self, client: httpx.Client) -> None:
        """The next request."""
        self._count += 1
        acts = (self._execute, self._execute, self._create, self._upload, self._change)
        self._chance.choice(acts)(client, f"{self._name}n{self._count}")

    def _execute(self, client: httpx.Client, name: str) -> None:
        headers = {"Idempotency-Key": name, **_request_id(name)}
        wait = "?wait=5" if self._chance.random() < 0.3 else ""
        response = client.post(f"/api/v1/processes/ledger/execute{wait}", json={"run": name}, headers=headers)
        self._ledger.note(response, lambda all_, data: all_.executions.update({data["execution_id"]: name}))

    def _create(self, client: httpx.Client, name: str) -> None:
        response = client.post("/api/v1/datapool/marks/entities", json={"run": name, "what": "entity"}, headers=_request_id(name))
        self._ledger.note(response, lambda all_, data: all_.entities.update({data["id"]: name}))

    def _upload(self, client: httpx.Client, name: str) -> None:
        content = self._chance.randbytes(self._chance.randint(100, self._ledger.largest))
        digest = hashlib.sha256(content).hexdigest()
        response = client.post("/api/v1/documents", params={"name": f"{name}.bin"}, content=content, headers=_request_id(name))
        self._ledger.note(response, lambda all_, data: all_.documents.update({data["id"]: digest}))

    def _change(self, client: httpx.Client, name: str) -> None:
        if not self._own:
            own = {"run": name, "what": "own", "note": "0"}
            response = client.post("/api/v1/datapool/marks/entities", json=own, headers=_request_id(name))
            if self._ledger.note(response, lambda all_, data: all_.changes.update({data["id"]: 0})):
                self._own = str(response.json()["data"]["id"])
            return
        self._changes += 1
        number = self._changes
        change, path = {"note": str(number)}, f"/api/v1/datapool/marks/entities/{self._own}"
        response = client.patch(path, json=change, headers=_request_id(name))
        self._ledger.note(response, lambda all_, data: all_.changes.update({self._own: number}))


def _request_id(name: str) -> dict[str, str]:
    """The header by which a response names its request."""
    return {"X-Request-Id": f"req-{name}"}
