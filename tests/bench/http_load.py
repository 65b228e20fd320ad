"""A load client in a process of its own that spends little of the machine it measures: raw requests over keep-alive connections.

Reads a JSON plan `{port, requests, concurrency, seconds, status}` from standard input and prints [requests, seconds, p50, p99].
"""

import json
import selectors
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent.parent


class Load(NamedTuple):
    """The result of a run: requests answered, seconds, and latencies in ms."""

    requests: int
    seconds: float
    p50: float
    p99: float


def run_load(port: int, requests: Sequence[bytes], concurrency: int, seconds: float, status: int = 200) -> Load:
    """Send the requests in turn for so long, one at a time on each connection; RuntimeError for another status than `status`."""
    plan = {"port": port, "requests": [each.decode() for each in requests], "concurrency": concurrency, "seconds": seconds,
            "status": status}  # fmt: skip
    line = [sys.executable, "-m", "tests.bench.http_load"]
    done = subprocess.run(line, input=json.dumps(plan).encode(), cwd=ROOT, stdout=subprocess.PIPE, check=True)
    return Load(*json.loads(done.stdout))


def to_request(method: str, path: str, headers: Mapping[str, str], body: str = "") -> bytes:
    """The bytes of an HTTP/1.1 request with an ASCII body."""
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    lines += [f"Content-Length: {len(body)}"] if body else []
    return ("\r\n".join(lines) + "\r\n\r\n" + body).encode("ascii")


class _Connection:
    """One connection with at most one request under way."""

    def __init__(self, port: int, selector: selectors.BaseSelector) -> None:
        self._port, self._selector = port, selector
        self._received = b""
        self._sent_at = 0.0
        self._open()

    def _open(self) -> None:
        self.socket = socket.create_connection(("127.0.0.1", self._port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._selector.register(self.socket, selectors.EVENT_READ, self)
        self._is_closing = False

    def send(self, request: bytes) -> None:
        """Send a request, over a new connection if the last answer announced the end of this one."""
        self._sent_at = time.perf_counter()
        if self._is_closing:
            self._selector.unregister(self.socket)
            self.socket.close()
            self._open()
        self.socket.sendall(request)

    def read(self, status: bytes) -> float | None:
        """The latency in ms once the answer is complete; None before."""
        data = self.socket.recv(1 << 18)
        if not data:
            raise RuntimeError("the server closed the connection")
        self._received += data
        head, end, body = self._received.partition(b"\r\n\r\n")
        head = head.lower()
        if not end or len(body) < int(head.partition(b"content-length:")[2].split(b"\r\n", 1)[0]):
            return None
        if not self._received.startswith(status):
            raise RuntimeError(self._received[:500].decode("latin1"))
        self._received, self._is_closing = b"", b"\r\nconnection: close" in head
        return (time.perf_counter() - self._sent_at) * 1000


def main() -> None:
    plan = json.load(sys.stdin)
    requests, status = cycle([each.encode() for each in plan["requests"]]), f"HTTP/1.1 {plan['status']} ".encode()
    selector = selectors.DefaultSelector()
    connections = [_Connection(plan["port"], selector) for _ in range(plan["concurrency"])]
    for each in connections:
        each.send(next(requests))
    latencies: list[float] = []
    began = time.perf_counter()
    ends = began + plan["seconds"]
    under_way = len(connections)
    while under_way:
        for key, _ in selector.select():
            latency = key.data.read(status)
            if latency is None:
                continue
            latencies.append(latency)
            if time.perf_counter() < ends:
                key.data.send(next(requests))
            else:
                under_way -= 1
    seconds = time.perf_counter() - began
    latencies.sort()
    json.dump([len(latencies), seconds, latencies[len(latencies) // 2], latencies[int(len(latencies) * 0.99)]], sys.stdout)


if __name__ == "__main__":
    main()
