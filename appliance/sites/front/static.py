"""Files of our own (console, explorer) served at ASGI level by WhiteNoise's index behind a thin adapter."""

import asyncio
import gzip
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from whitenoise import WhiteNoise

from appliance.blobs import is_worth_a_try

from .answers import App, Receive, Scope, Send, answer
from .representation import accepted

CHUNK = 64 << 10
DAY = 86_400
KEPT = 64  # compressed files; they are ours, and few


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
        headers = {name.lower(): value for name, value in response.headers}
        _, path, described = found.alternatives[0]
        if is_worth_a_try(path, int(dict(described)["Content-Length"])):
            headers["vary"] = "Accept-Encoding"
            if response.status == 200 and "gzip" in accepted(environ.get("HTTP_ACCEPT_ENCODING", "")):
                body = await asyncio.get_running_loop().run_in_executor(None, _gzipped, path, headers["etag"])
                headers |= {"content-encoding": "gzip", "content-length": str(len(body))}
                await _send_start(send, response.status, headers)
                if response.file is not None:
                    response.file.close()
                await send({"type": "http.response.body", "body": body if response.file is not None else b""})
                return
        await _send_start(send, response.status, headers)
        await _send_file(send, response.file)


@lru_cache(KEPT)
def _gzipped(path: str, etag: str) -> bytes:
    """The file as browsers take it, made once as long as it has this tag."""
    return gzip.compress(Path(path).read_bytes(), 9, mtime=0)


async def _send_start(send: Send, status: int, headers: Mapping[str, str]) -> None:
    told = [(name.encode(), value.encode("latin1")) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": int(status), "headers": told})


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
