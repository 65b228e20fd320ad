"""Hypercorn's connections, with other patience: a client may be silent while it is answered, and is not waited for at its end."""

import asyncio
from contextlib import suppress
from typing import Any

from hypercorn.asyncio import run
from hypercorn.asyncio.tcp_server import MAX_RECV, TCPServer
from hypercorn.events import Closed, RawData
from hypercorn.protocol import h2

from .protocols import use_protocols


class Connection(TCPServer):
    """Hypercorn's `read_timeout` holds for every read, and so ends whoever takes longer over an answer: a client that reads
    has nothing to say.  Here it holds between requests only.  Within one, the front bounds body and answer; before one,
    Hypercorn's timer of idle connections does."""

    linger = 60.0  # seconds
    _cut: asyncio.TimerHandle | None = None

    async def _read_data(self) -> None:
        while not self.reader.at_eof():
            try:
                async with asyncio.timeout(None if self._is_answering() else self.config.read_timeout):
                    data = await self.reader.read(MAX_RECV)
            except OSError:  # TimeoutError and SSLError are some
                break
            await self.protocol.handle(RawData(data))
        await self.protocol.handle(Closed())
        await self.idle_task.stop()  # a client that has left is not waited for, with its socket open

    def _is_answering(self) -> bool:
        spoken: Any = self.protocol.protocol
        return bool(spoken.streams) if isinstance(spoken, h2.H2Protocol) else spoken.stream is not None

    async def _initiate_server_close(self) -> None:
        self._begin_cut()
        await super()._initiate_server_close()

    async def _close(self) -> None:
        self._begin_cut()
        try:
            with suppress(OSError):  # what TLS finds wrong with the last bytes of a client that was let go
                await super()._close()
        finally:
            self._end_cut()

    def _begin_cut(self) -> None:
        """What is still to be sent is waited for, but not for ever: closing does not end a client that takes nothing."""
        if self._cut is None:
            self._cut = self.loop.call_later(self.linger, self.writer.transport.abort)

    def _end_cut(self) -> None:
        if self._cut is not None:
            self._cut.cancel()
            self._cut = None


class Buffer(h2.StreamBuffer):
    """What an HTTP/2 client has yet to take.  Hypercorn's asks for more whenever little could be sent, and so holds all that a
    client does not take; here more is asked for when little is left."""

    async def pop(self, max_length: int) -> bytes:
        data = bytes(self.buffer[:max_length])
        del self.buffer[:max_length]
        if len(self.buffer) < h2.BUFFER_LOW_WATER:
            await self._paused.set()
        if not self.buffer:
            await self._is_empty.set()
        return data


def use_connections() -> None:
    """Let Hypercorn make these connections; it knows no other way to be told."""
    vars(run)["TCPServer"] = Connection
    vars(h2)["StreamBuffer"] = Buffer
    use_protocols()
