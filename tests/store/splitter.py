"""A TCP proxy before several servers: each connection goes to one of them, selected at random."""

import asyncio
import random
import socket
import threading
from collections import Counter
from collections.abc import Sequence


class Splitter:
    """Listens on a free loopback port, its `port`, from the start; accepts connections once `start` names the servers.

    The same seed selects the same sequence of servers. `counts` has the connections of each port of a server.
    """

    def __init__(self, seed: str) -> None:
        self._random = random.Random(seed)  # noqa: S311  # no secret
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        self.counts: Counter[int] = Counter()
        self._ports: Sequence[int] = ()
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="splitter", daemon=True)

    def start(self, *ports: int) -> None:
        """Distribute connections over the servers that listen on these ports."""
        self._ports = ports
        self._thread.start()

    def stop(self) -> None:
        """Cut all connections and close the port, whether started or not."""
        if self._thread.ident is not None:
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join()
        self._loop.close()
        self._socket.close()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._accept, sock=self._socket)
        await self._stop.wait()
        server.close()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._connect(reader, writer))
        self._tasks.add(task)  # The event loop keeps it only weakly.
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda _: writer.close())

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        port = self._random.choice(self._ports)
        self.counts[port] += 1
        address = writer.get_extra_info("peername")[0]  # It stays what the servers see as that of the client.
        try:
            answers, requests = await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0))
        except OSError:  # The server has stopped; the client finds its connection closed.
            return
        sending = asyncio.create_task(_pass_on(reader, requests))
        try:
            await _pass_on(answers, writer)  # Once the server has closed the connection, it reads nothing more from it.
        finally:
            sending.cancel()
            requests.close()


async def _pass_on(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    """Everything that arrives until the end, which is passed on, too; a connection that is cut cuts the other one."""
    try:
        while piece := await source.read(1 << 16):
            target.write(piece)
            await target.drain()
        target.write_eof()
    except OSError:
        target.transport.abort()
