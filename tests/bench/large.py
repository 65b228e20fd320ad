"""Two GiB in and out as a document and as a file of a WebApp: bytes per second, and memory of the server, which must stay flat.

.venv/bin/python -m tests.bench.large [MiB]
"""

import hashlib
import http.client
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from appliance.connectors.testing import free_port
from tests.bench.executions import running_server, set_up
from tests.bench.processes import find_server

MB = 1 << 20
PARTS, MOST_MB = 4, 64
APP = "large--demo.content.localhost"


class Content:
    """`size` bytes generated while they are sent: a random block, prefixed with its number."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._block = os.urandom(MB - 8)
        self.sha256 = _digest(self.pieces(0, size))

    def pieces(self, start: int, end: int) -> Iterator[bytes]:
        """From block to block."""
        return (number.to_bytes(8, "big") + self._block for number in range(start // MB, end // MB))


def _digest(pieces: Iterator[bytes]) -> str:
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(piece)
    return digest.hexdigest()


@dataclass(frozen=True)
class Client:
    """Calls to the appliance: with the tenant's key, or as a visitor of a given host."""

    port: int
    tenant: str
    key: str

    def call(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> Any:
        """The `data` of the response."""
        own = {"Content-Type": "application/json"} if isinstance(body, dict) else {}
        sent = json.dumps(body).encode() if isinstance(body, dict) else body
        with self._answer(method, path, sent, {**own, **(headers or {}), "X-API-Key": self.key}) as answer:
            return json.loads(answer.read() or b"{}").get("data")

    def digest_of(self, path: str, host: str = "") -> str:
        """The sha256 of what a GET answers."""
        headers = {"Host": host} if host else {"X-API-Key": self.key}
        with self._answer("GET", path, None, headers) as answer:
            return _digest(iter(lambda: answer.read(MB), b""))

    def _answer(self, method: str, path: str, body: Any, headers: dict[str, str]) -> http.client.HTTPResponse:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)
        connection.request(method, path, body, {"Host": f"{self.tenant}.localhost:{self.port}", **headers})
        answer = connection.getresponse()
        if answer.status >= 300:
            raise SystemExit(f"{method} {path}: {answer.status} {answer.read(500).decode()}")
        return answer


class MemoryWatch:
    """The server's memory while something is done."""

    def __init__(self, pid: int, size: int) -> None:
        self._pid, self._size = pid, size
        self.grown: dict[str, float] = {}

    def measure(self, what: str, act: Callable[[], None]) -> None:
        """Print how long it takes and by how much the largest resident set exceeds the one before."""
        Path(f"/proc/{self._pid}/clear_refs").write_text("5")  # from here on VmHWM is new
        before, began = self._peak(), time.perf_counter()
        act()
        seconds, grown = time.perf_counter() - began, self._peak() - before
        self.grown[what] = grown
        print(f"{what}: {seconds:.1f} s, {self._size / MB / seconds:,.0f} MiB/s, {grown:.0f} MiB more memory", flush=True)

    def _peak(self) -> float:
        lines = Path(f"/proc/{self._pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def as_document(client: Client, content: Content, watch: MemoryWatch) -> None:
    metadata = {"name": "large.bin", "size": content.size, "sha256": content.sha256}
    upload = client.call("POST", "/api/v1/uploads", metadata)
    path = f"/api/v1/uploads/{upload['id']}"
    step = content.size // PARTS // MB * MB
    bounds = [*range(0, step * PARTS, step), content.size]

    def send() -> None:
        for start, end in pairwise(bounds):
            headers = {"Upload-Offset": str(start), "Content-Length": str(end - start)}
            headers["Content-Type"] = "application/partial-upload"
            client.call("PATCH", path, content.pieces(start, end), headers)

    watch.measure(f"a document sent in {PARTS} parts", send)
    document = client.call("GET", path)["document_id"]
    watch.measure("its download", lambda: _check_digest(client.digest_of(f"/api/v1/documents/{document}/content"), content))


def as_file(client: Client, content: Content, watch: MemoryWatch) -> None:
    client.call("POST", "/api/v1/webapps", {"id": "large"})
    manifest = {"files": {"large.bin": {"sha256": content.sha256, "size": content.size}}}
    version = client.call("POST", "/api/v1/webapps/large/versions", manifest)
    base = f"/api/v1/webapps/large/versions/{version['version']}"

    def send() -> None:
        headers = {"Content-Length": str(content.size), "Content-Type": "application/octet-stream"}
        for sha256 in version["required"]:
            client.call("PUT", f"{base}/blobs/{sha256}", content.pieces(0, content.size), headers)
        client.call("POST", f"{base}/finalize", {})
        client.call("POST", f"{base}/publish", {})

    watch.measure("a file of a WebApp sent and published", send)
    watch.measure("its download from the app's host", lambda: _check_digest(client.digest_of("/large.bin", APP), content))


def _check_digest(digest: str, content: Content) -> None:
    if digest != content.sha256:
        raise SystemExit("what came back is not what was sent")


def main(megabytes: int) -> None:
    print(f"{megabytes:,} MiB each, load {os.getloadavg()[0]:.1f}")
    # By default a file of a WebApp can have 100 MB, and a version 500.
    for name, most in (("DOCUMENT_MB", megabytes), ("UPLOAD_MB", megabytes), ("ARCHIVE_MB", megabytes)):
        os.environ[f"GOS_LIMITS_{name}"] = str(most)
    with tempfile.TemporaryDirectory() as temporary:
        data, port = Path(temporary) / "data", free_port()
        tenant, key = set_up(data, port)
        with running_server(data, port):
            watch = MemoryWatch(find_server(port), megabytes * MB)
            for transfer in (as_document, as_file):
                transfer(Client(port, tenant, key), Content(megabytes * MB), watch)
    if too_much := {what: grown for what, grown in watch.grown.items() if grown > MOST_MB}:
        raise SystemExit(f"memory is not flat: more than {MOST_MB} MiB were held for {', '.join(too_much)}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2048)
