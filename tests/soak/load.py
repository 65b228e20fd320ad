"""The load of a soak: what a working day asks of an appliance, by several clients that pause between requests."""

import itertools
import random
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor

import httpx

from tests.bench.executions import ORDER

PAUSE = 0.15
CLIENTS = 6
STORED = 50  # documents of each client; older ones are deleted
Act = Callable[[httpx.Client], httpx.Response]


class Load:
    """Clients that go on until `stop`; counts responses by act and status, and keeps the latencies of executions."""

    def __init__(self, port: int, headers: Mapping[str, str], seed: int) -> None:
        self._base, self._headers, self._seed = f"http://127.0.0.1:{port}", dict(headers), seed
        self._stopping = threading.Event()
        self._threads = ThreadPoolExecutor(CLIENTS)
        self._clients: list[Future[None]] = []
        self._lock = threading.Lock()
        self._latencies: list[float] = []
        self.refused: dict[str, int] = {}
        self.done = 0

    def start(self) -> None:
        """Let the clients begin."""
        self._clients = [self._threads.submit(self._run, number) for number in range(CLIENTS)]

    def stop(self) -> None:
        """Let the clients end; raises what one of them failed with."""
        self._stopping.set()
        for each in self._clients:
            each.result()
        self._threads.shutdown()

    def take_latencies(self) -> list[float]:
        """The latencies of executions in ms since the last call."""
        with self._lock:
            latencies, self._latencies = self._latencies, []
        return latencies

    def _run(self, number: int) -> None:
        chance = random.Random(self._seed * CLIENTS + number)  # noqa: S311  which request is next is no secret
        client = httpx.Client(base_url=f"{self._base}/api/v1", headers=self._headers, timeout=60, trust_env=False)
        acts = Acts(number)
        with client:
            while not self._stopping.wait(PAUSE * chance.uniform(0.5, 1.5)):
                name, act = chance.choice(acts.all)
                began = time.perf_counter()
                response = act(client)
                took = (time.perf_counter() - began) * 1000
                with self._lock:
                    self.done += 1
                    if name == "execute":
                        self._latencies.append(took)
                    if response.status_code >= 400:
                        key = f"{name} {response.status_code}"
                        self.refused[key] = self.refused.get(key, 0) + 1


class Acts:
    """What one client does, by name; executions are three of nine."""

    def __init__(self, number: int) -> None:
        self._names = (f"soak-{number}-{index}.txt" for index in itertools.count())
        self._documents: list[str] = []
        self.all: list[tuple[str, Act]] = [
            ("execute", lambda client: self._execute(client, "one?wait=20")),
            ("execute", lambda client: self._execute(client, "three?wait=20")),
            ("queue", lambda client: self._execute(client, "one")),
            ("entities", lambda client: client.get("/datapool/bench_orders/entities", params={"limit": 20})),
            ("executions", lambda client: client.get("/executions", params={"limit": 20})),
            ("upload", self._upload),
            ("upload", self._upload),
            ("download", self._download),
            ("audit", lambda client: client.get("/logs/audit", params={"limit": 20})),
        ]

    def _execute(self, client: httpx.Client, target: str) -> httpx.Response:
        name, _, query = target.partition("?")
        return client.post(f"/processes/{name}/execute?{query}", content=ORDER, headers={"Content-Type": "application/json"})

    def _upload(self, client: httpx.Client) -> httpx.Response:
        """A new document; or, when there are enough, the deletion of the oldest."""
        if len(self._documents) >= STORED:
            return client.delete(f"/documents/{self._documents.pop(0)}")
        name = next(self._names)
        response = client.post("/documents", files={"file": (name, (name * 500).encode(), "text/plain")})
        if response.status_code == 201:
            self._documents.append(response.json()["data"]["id"])
        return response

    def _download(self, client: httpx.Client) -> httpx.Response:
        if not self._documents:
            return client.get("/documents")
        return client.get(f"/documents/{self._documents[-1]}/content")
