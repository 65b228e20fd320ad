"""Our own style sheets and scripts are compressed for clients that accept it."""

import asyncio
import gzip
from pathlib import Path
from typing import Any

import pytest

from appliance.sites.front.static import StaticFiles

TEXT = b".badge { color: red; }\n" * 200


@pytest.fixture
def files(tmp_path: Path) -> StaticFiles:
    (tmp_path / "console.css").write_bytes(TEXT)
    (tmp_path / "mark.png").write_bytes(TEXT)
    (tmp_path / "short.css").write_bytes(b"a{}")
    return StaticFiles(not_here, {"/static/": tmp_path})


async def not_here(*_: Any) -> None:
    raise AssertionError("it went on to the application")


def ask(files: StaticFiles, path: str, method: str = "GET", **headers: str) -> tuple[int, dict[str, str], bytes]:
    messages: list[Any] = []

    async def send(message: Any) -> None:
        messages.append(message)

    async def receive() -> Any:
        raise AssertionError("a file has no use for a body")

    sent = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    asyncio.run(files({"type": "http", "method": method, "path": path, "headers": sent}, receive, send))
    answer_headers = {name.decode(): value.decode() for name, value in messages[0]["headers"]}
    return messages[0]["status"], answer_headers, b"".join(each["body"] for each in messages[1:])


def test_a_style_sheet_is_compressed(files: StaticFiles) -> None:
    status, headers, body = ask(files, "/static/console.css", accept_encoding="gzip, deflate")
    assert (status, headers["content-encoding"], headers["vary"]) == (200, "gzip", "Accept-Encoding")
    assert (gzip.decompress(body), int(headers["content-length"])) == (TEXT, len(body))
    assert headers["content-type"].startswith("text/css")


@pytest.mark.parametrize(
    ("path", "coding"), [("console.css", "gzip;q=0"), ("console.css", ""), ("mark.png", "gzip"), ("short.css", "gzip")]
)
def test_unsupported_and_useless_compression_is_skipped(files: StaticFiles, path: str, coding: str) -> None:
    _, headers, body = ask(files, f"/static/{path}", accept_encoding=coding)
    assert "content-encoding" not in headers
    assert len(body) == int(headers["content-length"])
    assert ("vary" in headers) == (path == "console.css")


def test_head_and_conditional_requests_match(files: StaticFiles) -> None:
    _, headers, _ = ask(files, "/static/console.css", accept_encoding="gzip")
    assert ask(files, "/static/console.css", "HEAD", accept_encoding="gzip") == (200, headers, b"")
    again = ask(files, "/static/console.css", accept_encoding="gzip", if_none_match=headers["etag"])
    assert (again[0], again[2], "content-encoding" in again[1]) == (304, b"", False)


def test_a_range_is_taken_from_the_uncompressed_file(files: StaticFiles) -> None:
    status, headers, body = ask(files, "/static/console.css", accept_encoding="gzip", range="bytes=0-5")
    assert (status, body, "content-encoding" in headers) == (206, TEXT[:6], False)
