"""Uploads of contents through a proxy that accepts only small bodies."""

import hashlib
import io
import tarfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from appliance.cli.api_client import Caller, Refused
from appliance.cli.content_uploads import BYTES_TOGETHER, MOST_TOGETHER, Content, Progress, gather_contents, send_contents

LIMIT = 4096  # bytes of a body


class Proxy(ThreadingHTTPServer):
    """Refuses long bodies; records received contents by sha256."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.contents: dict[str, bytes] = {}
        self.statuses: list[int] = []


class _Handler(BaseHTTPRequestHandler):
    def _receive(self) -> None:
        server: Any = self.server
        body = self.rfile.read(int(self.headers["Content-Length"]))
        status = 413 if len(body) > LIMIT else 200
        server.statuses.append(status)
        if status == 200 and self.command == "PUT":
            server.contents[self.path.rpartition("/")[2]] = body
        elif status == 200:
            with tarfile.open(fileobj=io.BytesIO(body)) as archive:
                server.contents |= {each.name: archive.extractfile(each).read() for each in archive}  # type: ignore[union-attr]
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_PUT = do_POST = _receive  # noqa: N815  # names of the standard library

    def log_message(self, *_: object) -> None:
        """Says nothing."""


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    with Proxy() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def content(folder: Path, data: bytes) -> Content:
    sha256 = hashlib.sha256(data).hexdigest()
    (folder / sha256).write_bytes(data)
    return Content(sha256, len(data), folder / sha256)


def send(proxy: Proxy, group: list[Content]) -> None:
    with httpx.Client(base_url=f"http://127.0.0.1:{proxy.server_port}", trust_env=False) as client:
        send_contents(Caller(client, {}), "/blobs", Progress(is_shown=False), group)


def test_a_group_too_large_for_the_proxy_is_split(proxy: Proxy, tmp_path: Path) -> None:
    group = [content(tmp_path, bytes([number]) * 513 * number) for number in range(6)]
    send(proxy, group)
    assert proxy.contents == {each.sha256: each.file.read_bytes() for each in group}
    assert 413 in proxy.statuses


def test_a_single_content_too_large_is_reported(proxy: Proxy, tmp_path: Path) -> None:
    with pytest.raises(Refused, match="answered 413"):
        send(proxy, [content(tmp_path, b"x"), content(tmp_path, bytes(LIMIT + 1))])
    assert list(proxy.contents.values()) == [b"x"]


def test_groups_are_bounded_in_number_and_bytes() -> None:
    small, large = Content("a", 1, Path("a")), Content("b", BYTES_TOGETHER, Path("b"))
    assert [len(group) for group in gather_contents([small] * (MOST_TOGETHER + 1))] == [MOST_TOGETHER, 1]
    assert list(gather_contents([small, large, small, small])) == [[small], [large], [small, small]]
    assert list(gather_contents([])) == []
