"""`gos logs --follow` against an appliance that breaks the connection, restarts, and finally refuses the key."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from appliance.cli import event_stream, main


def line(message: str) -> dict[str, Any]:
    return {"at": "2026-01-31T09:30:00.000Z", "level": "info", "source": "api", "message": message, "fields": {}}


def event(number: int, message: str) -> bytes:
    return f"id: {number}\nevent: line\ndata: {json.dumps(line(message), ensure_ascii=False)}\n\n".encode()


def failure(message: str) -> bytes:
    return json.dumps({"success": False, "error": {"code": "-", "message": message, "status": 0}}).encode()


# The response to each request for a stream: status, body, and the number of bytes that never arrive.
STREAMS = [
    (200, b": connected\n\n" + event(7, "one\u2028line") + event(8, "second") + event(9, "third")[:30], 1_000),
    (503, failure("the appliance stops"), 0),
    (503, failure("the appliance stops"), 0),
    (200, b": connected\n\n" + event(9, "third"), 0),
    (200, b": connected\n\n", 0),
    (401, failure("this key has ended"), 0),
]


class BreakingServer(ThreadingHTTPServer):
    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.streams = list(STREAMS)
        self.last_event_ids: list[str | None] = []


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        server: Any = self.server
        status, body, missing = 200, b'{"success": true, "data": []}', 0
        if "follow=true" in self.path:
            server.last_event_ids.append(self.headers["Last-Event-ID"])
            status, body, missing = server.streams.pop(0)
        self.send_response(status)
        self.send_header("Content-Length", str(len(body) + missing))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Says nothing."""


@pytest.fixture
def breaking() -> Iterator[BreakingServer]:
    with BreakingServer() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_a_broken_stream_resumes_after_its_last_event(
    breaking: BreakingServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(event_stream, "RETRY_SECONDS", 0)
    monkeypatch.setenv("GOS_API_KEY", "gos_key")
    assert main(["logs", "--follow", "--json", "--url", f"http://127.0.0.1:{breaking.server_port}"]) == 1
    output = capsys.readouterr()
    assert [json.loads(each)["message"] for each in output.out.split("\n") if each] == ["one\u2028line", "second", "third"]
    assert breaking.last_event_ids == [None, "8", "8", "8", "9", "9"]
    messages = output.err.splitlines()
    assert (len(messages), "does not answer" in messages[0]) == (3, True)
    assert messages[1:] == ["gos: connected again", "gos: this key has ended"]
