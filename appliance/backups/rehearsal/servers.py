"""Starts `gos serve` on restored data, waits until it is ready, and stops it."""

import json
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import ProxyHandler, Request, build_opener

from appliance.backups.problems import BackupInvalid
from appliance.core import clock
from appliance.core.config import Config
from appliance.core.sentences import Sentence

from .isolation import HOST, SHUTDOWN_SECONDS, clean_environment, command_of, free_port, settings_of, write_config

READY_SECONDS = 900
_POLL_SECONDS, _ANSWER_SECONDS = 0.2, 30
_MOST_LOGGED = 400
_opener = build_opener(ProxyHandler({}))


@contextmanager
def running_server(config: Config, data: Path, room: Path, database: str = "") -> Iterator[str]:
    """Yields the address of a `gos serve` on the data folder, ready; it is stopped at the end, and dies with this process.

    `database` is the URL of one on a server, empty for that in the folder.

    BackupInvalid when it does not become ready, with the last line of its log.
    """
    port, settings, log = free_port(), room / "rehearsal.json", room / "serve.log"
    write_config(settings_of(config, data, port, database), settings)
    command = command_of(["--config", str(settings), "--data", str(data), "serve"])
    with log.open("wb") as out:
        process = subprocess.Popen(  # noqa: S603  our own module
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, cwd="/", env=clean_environment(config, database),
        )  # fmt: skip
    try:
        address = f"http://{HOST}:{port}"
        _await_ready(process, address, log)
        yield address
    finally:
        process.terminate()
        try:
            process.wait(SHUTDOWN_SECONDS * 4)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _await_ready(process: subprocess.Popen[bytes], address: str, log: Path) -> None:
    ends, pause = clock.monotonic() + READY_SECONDS, threading.Event()
    while clock.monotonic() < ends:
        if process.poll() is not None:
            raise BackupInvalid(Sentence("the appliance on the copy ended before it was ready: %(last)s", last=_last_line(log)))
        if ask(f"{address}/readyz")[0] == 200:
            return
        pause.wait(_POLL_SECONDS)  # another process, which announces it in no other way
    raise BackupInvalid(Sentence(
        "the appliance on the copy did not become ready within %(seconds)s s: %(last)s", seconds=READY_SECONDS, last=_last_line(log)
    ))


def _last_line(log: Path) -> str:
    """The last line of the log of a server, without the frame of its JSON."""
    lines = log.read_text("utf8", "replace").strip().splitlines()
    last = lines[-1] if lines else "it wrote nothing"
    try:
        return str(json.loads(last).get("message", last))[:_MOST_LOGGED]
    except (ValueError, AttributeError):
        return last[:_MOST_LOGGED]


def ask(url: str) -> tuple[int, bytes]:
    """Status and body of a GET request; 0 when nothing answers."""
    host = f"localhost:{urlsplit(url).port}"
    try:
        with _opener.open(Request(url, headers={"Host": host}), timeout=_ANSWER_SECONDS) as answer:  # noqa: S310  http, on loopback
            return int(answer.status), answer.read()
    except HTTPError as error:
        return error.code, error.read()
    except (URLError, OSError):
        return 0, b""
