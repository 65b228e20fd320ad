"""`gos serve` ends event streams when it is told to stop: cleanly, so that their clients reconnect, and without a wait."""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from appliance.connectors.testing import free_port
from tests.readiness import wait_ready

STOP_SECONDS = 10.0
"""For a busy machine; without an end of the streams it takes `server.shutdown_seconds`, which is 25 here."""


def gos(folder: Path, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "appliance", "--data", str(folder), *arguments]


def run(folder: Path, *arguments: str) -> str:
    return subprocess.run(gos(folder, *arguments), capture_output=True, text=True, check=True).stdout.strip()


class Reader(threading.Thread):
    """Reads an event stream to its end; a stream that is cut off raises, and leaves `ended` False."""

    def __init__(self, client: httpx.Client, path: str) -> None:
        super().__init__(daemon=True)
        self._client, self._path = client, path
        self.opened, self.ended = threading.Event(), False

    def run(self) -> None:
        with self._client.stream("GET", self._path) as response:
            for _ in response.iter_bytes():
                self.opened.set()
        self.ended = True


@contextmanager
def serving(folder: Path, port: int, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as errors:
        process = subprocess.Popen(gos(folder, "serve", "--port", str(port)), stderr=errors)
    try:
        wait_ready(port)
        yield process
    finally:
        process.kill()
        process.wait()


def test_a_stop_ends_event_streams_at_once(tmp_path: Path) -> None:
    folder, port, log = tmp_path / "data", free_port(), tmp_path / "log"
    run(folder, "init")
    (folder / "config.yaml").write_text("server: {shutdown_seconds: 25}\n")
    tenant = json.loads((folder / "first-run.json").read_text())["tenant"]
    key = run(folder, "key", "add", "--tenant", tenant, "--name", "reader", "--quiet")
    headers = {"Host": f"{tenant}.localhost:{port}", "X-API-Key": key}
    with (
        serving(folder, port, log) as server,
        httpx.Client(base_url=f"http://127.0.0.1:{port}/api/v1", headers=headers, timeout=90, trust_env=False) as client,
    ):
        readers = [Reader(client, "/logs?follow=true"), Reader(client, "/datapool/orders/events")]
        for each in readers:
            each.start()
        assert all(each.opened.wait(60) for each in readers)
        lines, began = len(log.read_text().splitlines()), time.monotonic()
        server.terminate()
        assert server.wait(120) == 0
        took = time.monotonic() - began
        for each in readers:
            each.join(60)
    assert [each.ended for each in readers] == [True, True]
    assert log.read_text().splitlines()[lines:] == []
    assert took < STOP_SECONDS
