"""An S3 endpoint with a private certificate authority, objects in memory and conditional writes like Amazon's."""

import re
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import MappingProxyType

from tests.sites.signing import Authority, text_of


@dataclass
class Endpoint:
    """Stored objects; `racing_write` is what another client writes right after the first read, `refused` counts rejected
    writes, `reads` has the path of each object in the order of the requests for it, and `is_refusing` signed addresses."""

    url: str
    ca_file: Path
    objects: dict[str, bytes] = field(default_factory=dict)
    racing_write: bytes = b""
    refused: int = 0
    is_refusing: bool = False
    reads: list[str] = field(default_factory=list)


@contextmanager
def running_endpoint(folder: Path) -> Iterator[Endpoint]:
    """Listens on a free loopback port."""
    authority = Authority()
    chain, key = authority.pair("localhost")
    (folder / "ca.pem").write_text(text_of(authority.certificate))
    (folder / "server.pem").write_text(chain + key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.pem")
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    server.endpoint = Endpoint(f"https://localhost:{server.server_address[1]}", folder / "ca.pem")  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.endpoint  # type: ignore[attr-defined]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    @property
    def _endpoint(self) -> Endpoint:
        return self.server.endpoint  # type: ignore[attr-defined,no-any-return]

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        result = self._endpoint.objects.get(path)
        if query and self._endpoint.is_refusing:
            self._answer(403, b"<Error><Code>SignatureDoesNotMatch</Code></Error>")
        elif result is None:
            if self._endpoint.racing_write:
                self._endpoint.objects[self.path] = self._endpoint.racing_write
            self._answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
        else:
            self._endpoint.reads.append(self.path)
            self._answer_content(result)

    def do_DELETE(self) -> None:
        self._endpoint.objects.pop(self.path, None)
        self._answer(204, b"")

    def do_PUT(self) -> None:
        content = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("If-None-Match") == "*" and self.path in self._endpoint.objects:
            self._endpoint.refused += 1
            self._answer(412, b"<Error><Code>PreconditionFailed</Code></Error>")
        else:
            self._endpoint.objects[self.path] = content
            self._answer(200, b"")

    def _answer_content(self, content: bytes) -> None:
        match = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if match is None:
            self._answer(200, content)
        else:
            part = content[int(match[1]) : int(match[2]) + 1]
            last = int(match[1]) + len(part) - 1
            self._answer(206, part, {"Content-Range": f"bytes {match[1]}-{last}/{len(content)}"})

    def _answer(self, status: int, body: bytes, headers: Mapping[str, str] = MappingProxyType({})) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("ETag", '"1"')
        self.send_header("Last-Modified", "Sun, 22 Nov 2026 00:00:00 GMT")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        """Logs nothing."""
