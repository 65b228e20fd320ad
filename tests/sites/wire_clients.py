"""Clients that speak HTTP/1.1 and HTTP/2 on a socket, as slowly and as wrongly as a test wants."""

import socket
import ssl
from contextlib import suppress

import h2.config
import h2.connection
import h2.events

from tests.sites.live_server import PATIENCE

WINDOW = 65_535


class Line:
    """A client's connection."""

    def __init__(self, port: int) -> None:
        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.socket.settimeout(PATIENCE)
        self.socket.connect(("127.0.0.1", port))
        self.host = f"gos.localhost:{port}"

    def close(self) -> None:
        """Close whichever socket it speaks by now: TLS puts another around the first."""
        self.socket.close()

    def ask(self, method: str, path: str, body: bytes = b"", /, **headers: object) -> None:
        fields = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
        self.socket.sendall(f"{method} {path} HTTP/1.1\r\nHost: {self.host}\r\n{fields}\r\n".encode() + body)

    def read(self) -> bytes:
        """Everything received until the server closes the connection."""
        data = b""
        with suppress(ConnectionError):
            while piece := self.socket.recv(1 << 16):
                data += piece
        return data

    def drip(self, piece: bytes, times: int = 10_000) -> None:
        """Send the data again and again, slowly, until the server disconnects."""
        with suppress(ConnectionError):
            for _ in range(times):
                self.socket.sendall(piece)
                self.socket.settimeout(0.02)
                with suppress(TimeoutError):
                    if self.socket.recv(1 << 16, socket.MSG_PEEK) is not None:
                        break
        self.socket.settimeout(PATIENCE)


class Http2:
    """An HTTP/2 client over TLS."""

    def __init__(self, line: Line) -> None:
        self.line = line
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.set_alpn_protocols(["h2"])
        line.socket = context.wrap_socket(line.socket, server_hostname="localhost")
        self.http = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding="utf8"))
        self.http.initiate_connection()
        self.flush()

    def flush(self) -> None:
        self.line.socket.sendall(self.http.data_to_send())

    def ask(self, method: str, path: str, *, ended: bool = True) -> int:
        stream = self.http.get_next_available_stream_id()
        headers = [(":method", method), (":path", path), (":scheme", "https"), (":authority", self.line.host)]
        self.http.send_headers(stream, headers, end_stream=ended)
        self.flush()
        return stream

    def answer(self, stream: int, *, takes: bool = True) -> tuple[str, bytes]:
        """Status and body of a response, as far as it arrives without flow control updates."""
        status, body = "", b""
        while piece := self.line.socket.recv(1 << 16):
            for event in self.http.receive_data(piece):
                if isinstance(event, h2.events.ResponseReceived):
                    status = next(str(value) for name, value in event.headers if str(name) == ":status")
                elif isinstance(event, h2.events.DataReceived):
                    body += event.data
                    if not takes and len(body) == WINDOW:
                        return status, body
                    if takes:
                        self.http.acknowledge_received_data(event.flow_controlled_length, stream)
                elif isinstance(event, h2.events.StreamEnded | h2.events.StreamReset):
                    return status, body
            self.flush()
        return status, body
