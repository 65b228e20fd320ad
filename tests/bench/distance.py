"""A proxy that makes a server seem farther away: what is sent to it arrives later, what it answers at once.

    python -m tests.bench.distance PORT SOCKET MILLISECONDS

It prints a line once it accepts connections.
"""

import asyncio
import sys
from functools import partial
from typing import TypeAlias

Reader: TypeAlias = asyncio.StreamReader
Writer: TypeAlias = asyncio.StreamWriter


async def _pass_on(source: Reader, target: Writer, seconds: float) -> None:
    """Everything that comes, each piece so many seconds later, in order."""
    loop = asyncio.get_running_loop()
    pieces: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

    async def read() -> None:
        while piece := await source.read(1 << 16):
            pieces.put_nowait((loop.time() + seconds, piece))
        pieces.put_nowait((0.0, b""))

    reading = asyncio.create_task(read())
    while (due := await pieces.get())[1]:
        if (pause := due[0] - loop.time()) > 0:
            await asyncio.sleep(pause)
        target.write(due[1])
        await target.drain()
    await reading
    target.close()


async def _connect(socket: str, seconds: float, reader: Reader, writer: Writer) -> None:
    back, there = await asyncio.open_unix_connection(socket)
    await asyncio.gather(_pass_on(reader, there, seconds), _pass_on(back, writer, 0), return_exceptions=True)


async def main() -> None:
    port, socket, milliseconds = sys.argv[1:]
    server = await asyncio.start_server(partial(_connect, socket, float(milliseconds) / 1000), "127.0.0.1", int(port))
    print("ready", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
