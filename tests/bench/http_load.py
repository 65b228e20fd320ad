"""A load client in a process of its own that spends little of the machine it measures: raw requests over keep-alive connections.

Reads a JSON plan `{port, requests, concurrency, seconds, status, pauses}` from standard input and prints, for each status, the
number of its responses, the seconds of the run, p50 and p99.
"""

import heapq
import json
import selectors
import socket
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import count, cycle
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parent.parent.parent


class Load(NamedTuple):
    """The result of a run: requests answered, seconds, and latencies in ms."""

    requests: int
    seconds: float
    p50: float
    p99: float


def run_load(port: int, requests: Sequence[bytes], concurrency: int, seconds: float, status: int = 200) -> Load:
    """Send the requests in turn for so long, one at a time on each connection; RuntimeError for another status than `status`."""
    plan = {"port": port, "requests": _as_texts(requests), "concurrency": concurrency, "seconds": seconds, "status": status}
    return _run(plan)[status]


class Pauses(NamedTuple):
    """How many seconds a connection pauses after a response, and after a refusal."""

    response: float = 0.0
    refusal: float = 0.0


def run_overload(port: int, requests: Sequence[bytes], concurrency: int, seconds: float, pauses: Pauses) -> dict[int, Load]:
    """The same with pauses and with any status: the load by status."""
    plan = {"port": port, "requests": _as_texts(requests), "concurrency": concurrency, "seconds": seconds, "pauses": pauses}
    return _run({**plan, "status": 0})


def _as_texts(requests: Sequence[bytes]) -> list[str]:
    return [each.decode() for each in requests]


def _run(plan: Mapping[str, Any]) -> dict[int, Load]:
    line = [sys.executable, "-m", "tests.bench.http_load"]
    done = subprocess.run(line, input=json.dumps(plan).encode(), cwd=ROOT, stdout=subprocess.PIPE, check=True)
    return {int(status): Load(*load) for status, load in json.loads(done.stdout).items()}


def to_request(method: str, path: str, headers: Mapping[str, str], body: str = "") -> bytes:
    """The bytes of an HTTP/1.1 request with an ASCII body."""
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    lines += [f"Content-Length: {len(body)}"] if body else []
    return ("\r\n".join(lines) + "\r\n\r\n" + body).encode("ascii")


class _Connection:
    """One connection with at most one request under way."""

    def __init__(self, port: int, selector: selectors.BaseSelector) -> None:
        self._port, self._selector = port, selector
        self._received = self.answer = b""
        self._sent_at = 0.0
        self._open()

    def _open(self) -> None:
        self.socket = socket.create_connection(("127.0.0.1", self._port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._selector.register(self.socket, selectors.EVENT_READ, self)
        self._is_closing, self._is_registered = False, True

    def send(self, request: bytes) -> None:
        """Send a request, over a new connection if the last answer announced the end of this one."""
        self._sent_at = time.perf_counter()
        if self._is_closing:
            if self._is_registered:
                self._selector.unregister(self.socket)
            self.socket.close()
            self._open()
        self.socket.sendall(request)

    def read(self) -> tuple[int, float] | None:
        """Status and latency in ms once the answer is complete; None before."""
        data = self.socket.recv(1 << 18)
        if not data and self._is_closing:  # as the last response announced, while the client pauses
            self._selector.unregister(self.socket)
            self._is_registered = False
            return None
        if not data:
            raise RuntimeError("the server closed the connection")
        self._received += data
        head, end, body = self._received.partition(b"\r\n\r\n")
        head = head.lower()
        if not end or len(body) < int(head.partition(b"content-length:")[2].split(b"\r\n", 1)[0]):
            return None
        self.answer, self._received, self._is_closing = self._received, b"", b"\r\nconnection: close" in head
        return int(head[9:12]), (time.perf_counter() - self._sent_at) * 1000


def main() -> None:
    plan = json.load(sys.stdin)
    requests, expected = cycle([each.encode() for each in plan["requests"]]), plan["status"]
    selector = selectors.DefaultSelector()
    connections = [_Connection(plan["port"], selector) for _ in range(plan["concurrency"])]
    for each in connections:
        each.send(next(requests))
    latencies: dict[int, list[float]] = defaultdict(list)
    pauses, numbers = Pauses(*plan.get("pauses", ())), count()
    paused: list[tuple[float, int, _Connection]] = []  # until when; the number only breaks ties
    began = time.perf_counter()
    ends = began + plan["seconds"]
    under_way = len(connections)
    while True:
        now = time.perf_counter()
        while paused and (paused[0][0] <= now or now >= ends):
            connection = heapq.heappop(paused)[2]
            if now < ends:
                connection.send(next(requests))
                under_way += 1
        if not under_way and not paused:  # else it would wait until the server closes the idle connections
            break
        for key, _ in selector.select(paused[0][0] - now if paused else None):
            answered = key.data.read()
            if answered is None:
                continue
            status, latency = answered
            if expected and status != expected:
                raise RuntimeError(key.data.answer[:500].decode("latin1"))
            latencies[status].append(latency)
            if time.perf_counter() >= ends:
                under_way -= 1
            elif pause := pauses.response if status < 400 else pauses.refusal:
                under_way -= 1
                heapq.heappush(paused, (time.perf_counter() + pause, next(numbers), key.data))
            else:
                key.data.send(next(requests))
    seconds = time.perf_counter() - began
    json.dump({status: summarise(each, seconds) for status, each in latencies.items()}, sys.stdout)


def summarise(latencies: list[float], seconds: float) -> Load:
    """The load whose responses took so many ms each."""
    latencies.sort()
    return Load(len(latencies), seconds, latencies[len(latencies) // 2], latencies[int(len(latencies) * 0.99)])


if __name__ == "__main__":
    main()
