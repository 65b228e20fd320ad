"""Frames between the appliance and a sandbox process: a small JSON header and any number of byte strings."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Callable
from typing import Any

# What a sandbox process may say at once; one that says more is not ours any more.
FRAME_BYTES = 96 << 20
_CHUNK = 64 << 10
# What a process may say once, when it is ready: its protections, as JSON.
READY_BYTES = 500
# What it may be told later, apart from all requests: which slot shall stop which request.
ORDER = struct.Struct(">HI")
_SIZES = "b"

_encode = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode
_decode = json.JSONDecoder().decode

Header = dict[str, Any]


class Disconnected(Exception):
    """The other side is gone, or says what it may not."""


def pack(header: Header, *parts: bytes) -> bytes:
    if parts:
        header[_SIZES] = [len(each) for each in parts]
    text = _encode(header).encode()
    total = 4 + len(text) + sum(map(len, parts))
    return b"".join((total.to_bytes(4, "big"), len(text).to_bytes(4, "big"), text, *parts))


def unpack(frame: bytes) -> tuple[Header, list[bytes]]:
    try:
        end = 4 + int.from_bytes(frame[:4], "big")
        header = _decode(frame[4:end].decode())
        parts = []
        for size in header.get(_SIZES, ()):
            parts.append(frame[end : end + size])
            end += size
    except (ValueError, RecursionError, AttributeError, TypeError) as fault:
        raise Disconnected("a frame that cannot be understood") from fault
    return header, parts


def encode_json(value: Any) -> bytes:
    """A value as JSON text; bytes are taken as JSON already."""
    return value if isinstance(value, bytes) else _encode(value).encode()


class Channel:
    """One end of a socket pair; `stop_asked` is the serial number of a request that shall not go on.

    Receiving wakes up as often as the socket's own timeout says, to ask whoever waits.
    """

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self.stop_asked: int | None = None

    def send(self, header: Header, *parts: bytes) -> None:
        try:
            self.socket.sendall(pack(header, *parts))
        except OSError as fault:
            raise Disconnected("the other side is gone") from fault

    def receive(
        self, give_up: Callable[[], None] | None = None, poll: Callable[[], None] | None = None
    ) -> tuple[Header, list[bytes]]:
        """The next frame. `give_up` may raise at any time, and ends the channel's use; `poll` only before the frame begins."""

        def wait() -> None:
            for each in (give_up, poll):
                if each is not None:
                    each()

        data = self._receive(_CHUNK, wait)
        while len(data) < 4:
            data += self._receive(_CHUNK, give_up)
        missing = int.from_bytes(data[:4], "big") + 4 - len(data)
        if missing < 0 or missing > FRAME_BYTES:
            raise Disconnected("the other side sent a frame beyond all limits")
        if missing:
            chunks = [data]
            while missing > 0:
                chunk = self._receive(min(missing, 1 << 20), give_up)
                missing -= len(chunk)
                chunks.append(chunk)
            data = b"".join(chunks)
        return unpack(data[4:])

    def _receive(self, size: int, wait: Callable[[], None] | None) -> bytes:
        while True:
            try:
                data = self.socket.recv(size)
            except BlockingIOError:
                if wait is not None:
                    wait()
                continue
            except OSError as fault:
                raise Disconnected("the other side is gone") from fault
            if not data:
                raise Disconnected("the other side is gone")
            return data

    def is_gone(self) -> bool:
        """Whether the other side is gone, without waiting for what it says."""
        try:
            return self.socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
        except BlockingIOError:
            return False
        except OSError:
            return True

    def close(self) -> None:
        self.socket.close()


# What a process does for one request: channel, header and parts of the request.
Verb = Callable[[Channel, Header, list[bytes]], None]
