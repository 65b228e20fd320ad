"""The frames exchanged with a sandbox process: a small JSON header and any number of byte strings."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Callable
from typing import Any

# The largest frame that a sandbox process may send; a process that sends more is considered compromised.
FRAME_BYTES = 96 << 20
_CHUNK = 64 << 10
# The longest ready message: a process sends it once, with its protections as JSON.
READY_BYTES = 500
# A stop order on the control socket: the index of the slot and the serial number of the request.
ORDER = struct.Struct(">HI")
_SIZES = "b"

_encode = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode
_decode = json.JSONDecoder().decode

Header = dict[str, Any]


class Disconnected(Exception):
    """The peer is gone or violated the protocol."""


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
        raise Disconnected("the peer sent a malformed frame") from fault
    return header, parts


def encode_json(value: Any) -> bytes:
    """A value as JSON text; bytes are taken to be JSON already."""
    return value if isinstance(value, bytes) else _encode(value).encode()


class Channel:
    """One end of a socket pair; `stop_asked` is the serial number of a request that is to be aborted.

    `receive` calls its callbacks whenever the socket's own timeout elapses.
    """

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self.stop_asked: int | None = None

    def send(self, header: Header, *parts: bytes) -> None:
        try:
            self.socket.sendall(pack(header, *parts))
        except OSError as fault:
            raise Disconnected("the peer is gone") from fault

    def receive(
        self, give_up: Callable[[], None] | None = None, poll: Callable[[], None] | None = None
    ) -> tuple[Header, list[bytes]]:
        """Receive the next frame. `give_up` may raise at any time, after which the channel is unusable; `poll` only before the
        frame starts."""

        def wait() -> None:
            for each in (give_up, poll):
                if each is not None:
                    each()

        data = self._receive(_CHUNK, wait)
        while len(data) < 4:
            data += self._receive(_CHUNK, give_up)
        missing = int.from_bytes(data[:4], "big") + 4 - len(data)
        if missing < 0 or missing > FRAME_BYTES:
            raise Disconnected("the peer sent a frame beyond the maximum size")
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
                raise Disconnected("the peer is gone") from fault
            if not data:
                raise Disconnected("the peer is gone")
            return data

    def is_gone(self) -> bool:
        """Whether the peer has closed the connection; does not block."""
        try:
            return self.socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
        except BlockingIOError:
            return False
        except OSError:
            return True

    def close(self) -> None:
        self.socket.close()


# Handles one request in a sandbox process, given the channel and the request's header and parts.
Verb = Callable[[Channel, Header, list[bytes]], None]
