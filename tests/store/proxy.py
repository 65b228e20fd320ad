"""A proxy before a PostgreSQL server: it makes it seem farther away, and cuts its connections.

    python -m tests.store.proxy PORT SOCKET MILLISECONDS

What is sent to the server arrives later, what it answers at once.  It prints a line once it accepts connections, and cuts them
all, whatever is on its way, for each SIGUSR1.
"""

import asyncio
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TypeAlias

from appliance.connectors.testing import free_port

from .cluster import Cluster

Reader: TypeAlias = asyncio.StreamReader
Writer: TypeAlias = asyncio.StreamWriter

ROOT = Path(__file__).parent.parent.parent
_open: set[Writer] = set()


class Proxy:
    """A running proxy before a cluster."""

    def __init__(self, cluster: Cluster, milliseconds: float) -> None:
        self._port = free_port()
        socket = str(cluster.folder / ".s.PGSQL.5432")
        line = [sys.executable, "-m", "tests.store.proxy", str(self._port), socket, str(milliseconds)]
        self.process = subprocess.Popen(line, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        if self.process.stdout is None or not self.process.stdout.readline():
            raise RuntimeError("the proxy did not start")

    def url(self, database: str) -> str:
        """The URL of a database of the cluster, through the proxy."""
        name = database.removeprefix("postgresql://gos@/").partition("?")[0]
        return f"postgresql://gos@127.0.0.1:{self._port}/{name}?sslmode=disable&gssencmode=disable"

    def cut(self) -> None:
        """Cut all connections."""
        self.process.send_signal(signal.SIGUSR1)


@contextmanager
def running_proxy(cluster: Cluster, milliseconds: float = 0.0) -> Iterator[Proxy]:
    """A proxy for as long as the block."""
    proxy = Proxy(cluster, milliseconds)
    try:
        yield proxy
    finally:
        proxy.process.kill()
        proxy.process.wait()


async def _pass_on(source: Reader, target: Writer, seconds: float) -> None:
    """Everything that comes, each piece so many seconds later, in order; then the end."""
    loop = asyncio.get_running_loop()
    pieces: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

    async def read() -> None:
        try:
            while piece := await source.read(1 << 16):
                pieces.put_nowait((loop.time() + seconds, piece))
        finally:
            pieces.put_nowait((0.0, b""))

    reading = asyncio.create_task(read())
    try:
        while (due := await pieces.get())[1]:
            if (pause := due[0] - loop.time()) > 0:
                await asyncio.sleep(pause)
            target.write(due[1])
            await target.drain()
        await reading
    finally:
        target.close()


async def _connect(socket: str, seconds: float, reader: Reader, writer: Writer) -> None:
    try:
        back, there = await asyncio.open_unix_connection(socket)
    except OSError:  # The server is not there at the moment.
        writer.close()
        return
    _open.update((writer, there))
    try:
        await asyncio.gather(_pass_on(reader, there, seconds), _pass_on(back, writer, 0), return_exceptions=True)
    finally:
        _open.difference_update((writer, there))


def _cut() -> None:
    for writer in list(_open):
        writer.transport.abort()


async def main() -> None:
    port, socket, milliseconds = sys.argv[1:]
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, _cut)
    server = await asyncio.start_server(partial(_connect, socket, float(milliseconds) / 1000), "127.0.0.1", int(port))
    print("ready", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
