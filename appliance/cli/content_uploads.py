"""Uploads contents to a running appliance: small ones in batches, with retries after lost connections."""

import sys
import tarfile
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from appliance.core import clock
from appliance.core.errors import ConnectorFailed

from .api_client import Caller, Refused

MOST_TOGETHER, BYTES_TOGETHER = 100, 1 << 20  # per request: cheap to send again, and small enough for proxies
TRIES = 5
CHUNK = 1 << 20
TOO_LARGE = 413
SILENT_SECONDS = 5.0  # between progress lines, where the output is a log and not a terminal
T = TypeVar("T")
_pause = threading.Event()  # Never set: used to wait, and Ctrl-C ends the wait.


@dataclass(frozen=True)
class Content:
    """A content to upload, and the file it is read from."""

    sha256: str
    size: int
    file: Path

    def pieces(self) -> Iterator[bytes]:
        with self.file.open("rb") as opened:
            while piece := opened.read(CHUNK):
                yield piece


def gather_contents(contents: Iterable[Content]) -> Iterator[list[Content]]:
    """Group the contents into requests; a large one gets a request of its own."""
    group: list[Content] = []
    size = 0
    for content in contents:
        if group and (len(group) == MOST_TOGETHER or size + content.size > BYTES_TOGETHER):
            yield group
            group, size = [], 0
        group.append(content)
        size += content.size
    if group:
        yield group


def send_contents(caller: Caller, path: str, progress: "Progress", group: Sequence[Content]) -> None:
    """Send a group, and in halves if the appliance or a proxy in front of it refuses it as too large."""
    try:
        retry(partial(_send, caller, path, group), f"sending {group[0].file.name}")
    except Refused as error:
        if error.answered != TOO_LARGE or len(group) == 1:
            raise
        half = len(group) // 2
        send_contents(caller, path, progress, group[:half])
        send_contents(caller, path, progress, group[half:])
    else:
        progress.count(len(group), sum(content.size for content in group))


def retry(call: Callable[[], T], what: str) -> T:
    """Retry an idempotent call after lost connections and when the appliance asks to slow down, and return its answer."""
    for attempt in range(1, TRIES + 1):
        try:
            return call()
        except (ConnectorFailed, Refused) as error:
            wait = error.headers.get("Retry-After", "" if isinstance(error, Refused) else str(attempt))
            if not wait or (attempt == TRIES and isinstance(error, ConnectorFailed)):
                raise
            _pause.wait(float(wait))
    raise ConnectorFailed(f"{what} failed after {TRIES} attempts; deploy again, contents that arrived are not sent twice")


def _send(caller: Caller, path: str, group: Sequence[Content]) -> None:
    if len(group) == 1:
        sized = {"Content-Type": "application/octet-stream", "Content-Length": str(group[0].size)}
        caller.call("PUT", f"{path}/{group[0].sha256}", content=group[0].pieces(), headers=sized)
        return
    length = sum(_blocks(content.size) + tarfile.BLOCKSIZE for content in group) + 2 * tarfile.BLOCKSIZE
    sized = {"Content-Type": "application/x-tar", "Content-Length": str(length)}
    caller.call("POST", path, content=_tar(group), headers=sized)


def _tar(group: Iterable[Content]) -> Iterator[bytes]:
    """Stream the contents as a tar archive, with their sha256 as names."""
    for content in group:
        header = tarfile.TarInfo(content.sha256)
        header.size = content.size
        yield header.tobuf(tarfile.USTAR_FORMAT)
        yield from content.pieces()
        yield bytes(_blocks(content.size) - content.size)
    yield bytes(2 * tarfile.BLOCKSIZE)


def _blocks(size: int) -> int:
    return size + -size % tarfile.BLOCKSIZE


class Progress:
    """Prints the progress of hashing and sending to standard error: on a terminal one line that is updated, else a line every few
    seconds and one at the end of each."""

    def __init__(self, *, is_shown: bool) -> None:
        self._is_shown, self._is_terminal = is_shown, is_shown and sys.stderr.isatty()
        self._lock = threading.Lock()
        self._done, self._bytes = 0, 0
        self._all: tuple[int, int] | None = None
        self._last_printed = clock.monotonic()

    def begin_sending(self, contents: int, size: int) -> None:
        """Switch from hashing to sending `contents` contents of `size` bytes in total."""
        self._print(final=True)
        self._done, self._bytes, self._all = 0, 0, (contents, size)

    def count(self, files: int, size: int) -> None:
        """Add finished `files` of `size` bytes in total."""
        with self._lock:
            self._done, self._bytes = self._done + files, self._bytes + size
            self._print(final=self._all is not None and self._done == self._all[0])

    def _print(self, *, final: bool) -> None:
        if not self._is_shown or not (final or self._is_terminal or clock.monotonic() - self._last_printed > SILENT_SECONDS):
            return
        self._last_printed = clock.monotonic()
        text = f"{self._done} files hashed, {self._bytes} bytes"
        if self._all is not None:
            text = f"{self._done} of {self._all[0]} contents sent, {self._bytes} of {self._all[1]} bytes"
        before, after = ("\r", "\n" if final else "") if self._is_terminal else ("", "\n")
        print(f"{before}{text}", end=after, file=sys.stderr, flush=True)
