"""Serves our own static files (console, API explorer) from WhiteNoise's index, through a thin ASGI adapter."""

import asyncio
import gzip
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from whitenoise import WhiteNoise

from appliance.blobs import is_worth_a_try
from appliance.web import App, Receive, Scope, Send, answer

from .representation import parse_accept_encoding

CHUNK = 64 << 10
DAY = 86_400
MAX_CACHED = 64  # compressed files; they are ours, and few


class StaticFiles:
    """Serves `folders` (URL prefix -> directory) and passes every other path to `app`."""

    def __init__(self, app: App, folders: Mapping[str, Path]) -> None:
        self._app = app
        self._prefixes = tuple(folders)
        self._index = WhiteNoise(_not_used, max_age=DAY)
        for prefix, folder in folders.items():
            self._index.add_files(str(folder), prefix=prefix)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not scope["path"].startswith(self._prefixes):
            await self._app(scope, receive, send)
            return
        file = self._index.files.get(scope["path"])
        if file is None:
            await answer(send, 404, b"not found", [(b"content-type", b"text/plain; charset=utf-8")])
            return
        environ = {f"HTTP_{n.decode('latin1').upper().replace('-', '_')}": v.decode("latin1") for n, v in scope["headers"]}
        response = file.get_response(scope["method"], environ)
        headers = {name.lower(): value for name, value in response.headers}
        _, path, file_headers = file.alternatives[0]
        if is_worth_a_try(path, int(dict(file_headers)["Content-Length"])):
            headers["vary"] = "Accept-Encoding"
            if response.status == 200 and "gzip" in parse_accept_encoding(environ.get("HTTP_ACCEPT_ENCODING", "")):
                body = await asyncio.get_running_loop().run_in_executor(None, _compress, path, headers["etag"])
                headers |= {"content-encoding": "gzip", "content-length": str(len(body))}
                await _send_start(send, response.status, headers)
                if response.file is not None:
                    response.file.close()
                await send({"type": "http.response.body", "body": body if response.file is not None else b""})
                return
        await _send_start(send, response.status, headers)
        await _send_file(send, response.file)


@lru_cache(MAX_CACHED)
def _compress(path: str, etag: str) -> bytes:
    """The compressed file, cached as long as its ETag stays the same."""
    return gzip.compress(Path(path).read_bytes(), 9, mtime=0)


async def _send_start(send: Send, status: int, headers: Mapping[str, str]) -> None:
    encoded = [(name.encode(), value.encode("latin1")) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": int(status), "headers": encoded})


async def _send_file(send: Send, file: Any) -> None:
    if file is None:
        await send({"type": "http.response.body", "body": b""})
        return
    loop = asyncio.get_running_loop()
    with file:
        while chunk := await loop.run_in_executor(None, file.read, CHUNK):
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


def _not_used(environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
    raise RuntimeError("WhiteNoise is used for its index only")
