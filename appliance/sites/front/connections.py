"""Hypercorn's connections with different timeouts: a client may be silent while it receives a response, and is not waited for
when it closes."""

import asyncio
from contextlib import suppress
from typing import Any

from hypercorn.asyncio import run
from hypercorn.asyncio.tcp_server import MAX_RECV, TCPServer
from hypercorn.events import Closed, RawData
from hypercorn.protocol import h2

from .protocols import use_protocols


class Connection(TCPServer):
    """Applies `read_timeout` between requests only. Hypercorn applies it to every read, which also ends clients that take
    longer to read a response without sending anything. Within a request the front limits the body and the response; before the
    first, Hypercorn's idle timer applies."""

    linger = 60.0  # seconds
    _abort_timer: asyncio.TimerHandle | None = None

    async def _read_data(self) -> None:
        while not self.reader.at_eof():
            try:
                async with asyncio.timeout(None if self._has_request() else self.config.read_timeout):
                    data = await self.reader.read(MAX_RECV)
            except OSError:  # includes TimeoutError and SSLError
                break
            await self.protocol.handle(RawData(data))
        await self.protocol.handle(Closed())
        await self.idle_task.stop()  # do not keep the socket of a client that has left

    def _has_request(self) -> bool:
        active: Any = self.protocol.protocol
        return bool(active.streams) if isinstance(active, h2.H2Protocol) else active.stream is not None

    async def _initiate_server_close(self) -> None:
        self._start_abort_timer()
        await super()._initiate_server_close()

    async def _close(self) -> None:
        self._start_abort_timer()
        try:
            with suppress(OSError):  # a TLS error in the last bytes of a client
                await super()._close()
        finally:
            self._stop_abort_timer()

    def _start_abort_timer(self) -> None:
        """Abort the connection after `linger` seconds: closing alone waits forever for a client that reads nothing."""
        if self._abort_timer is None:
            self._abort_timer = self.loop.call_later(self.linger, self.writer.transport.abort)

    def _stop_abort_timer(self) -> None:
        if self._abort_timer is not None:
            self._abort_timer.cancel()
            self._abort_timer = None


class Buffer(h2.StreamBuffer):
    """The send buffer of an HTTP/2 stream. Hypercorn's asks for more data whenever a little was sent, and so buffers everything
    that a slow client does not read; this one asks only when little is left."""

    async def pop(self, max_length: int) -> bytes:
        data = bytes(self.buffer[:max_length])
        del self.buffer[:max_length]
        if len(self.buffer) < h2.BUFFER_LOW_WATER:
            await self._paused.set()
        if not self.buffer:
            await self._is_empty.set()
        return data


def use_connections() -> None:
    """Make Hypercorn use these classes, which it has no setting for."""
    vars(run)["TCPServer"] = Connection
    vars(h2)["StreamBuffer"] = Buffer
    use_protocols()
