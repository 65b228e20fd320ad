"""Files of our own (console, explorer) served at ASGI level by WhiteNoise's index behind a thin adapter."""

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from whitenoise import WhiteNoise

from .answers import App, Receive, Scope, Send, answer

CHUNK = 64 << 10
DAY = 86_400


class StaticFiles:
    """Serves `folders` (URL prefix -> directory) and hands every other path to `app`."""

    def __init__(self, app: App, folders: Mapping[str, Path]) -> None:
        self._app = app
        self._prefixes = tuple(folders)
        self._index = WhiteNoise(_nothing, max_age=DAY)
        for prefix, folder in folders.items():
            self._index.add_files(str(folder), prefix=prefix)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not scope["path"].startswith(self._prefixes):
            await self._app(scope, receive, send)
            return
        found = self._index.files.get(scope["path"])
        if found is None:
            await answer(send, 404, b"not found", [(b"content-type", b"text/plain; charset=utf-8")])
            return
        environ = {f"HTTP_{n.decode('latin1').upper().replace('-', '_')}": v.decode("latin1") for n, v in scope["headers"]}
        response = found.get_response(scope["method"], environ)
        headers = [(name.lower().encode(), value.encode("latin1")) for name, value in response.headers]
        await send({"type": "http.response.start", "status": int(response.status), "headers": headers})
        await _send_file(send, response.file)


async def _send_file(send: Send, file: Any) -> None:
    if file is None:
        await send({"type": "http.response.body", "body": b""})
        return
    loop = asyncio.get_running_loop()
    with file:
        while chunk := await loop.run_in_executor(None, file.read, CHUNK):
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


def _nothing(environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
    raise RuntimeError("WhiteNoise is used for its index only")
