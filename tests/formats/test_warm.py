"""A preloaded process: its forked workers are as confined as started ones, and it ends when idle."""

import io
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image

from appliance.formats import Bounds, Cancelled, FormatFailed, Formats, Settings, Work
from appliance.formats.preloading import PreloadedProcess

from .conftest import MEGABYTE

BOUNDS = Bounds(180, 1024, 32 * MEGABYTE)


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Formats]:
    formats = Formats(Settings(tmp_path, processes=2, first_user=65_500))
    yield formats
    formats.stop()


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Formats]:
    """With an engine, which takes a second or two to be loaded."""
    formats = Formats(Settings(tmp_path_factory.mktemp("loaded"), processes=2, first_user=65_510))
    recognise(formats, picture())
    yield formats
    formats.stop()


def recognise(formats: Formats, content: bytes, is_cancelled: object = bool) -> int:
    with tempfile.TemporaryFile() as file:
        file.write(content)
        file.flush()
        with formats.perform(Work("ocr", {}, [file]), BOUNDS, is_cancelled) as answer:  # type: ignore[arg-type]
            return int(answer.facts["count"])


def picture(height: int = 80) -> bytes:
    out = io.BytesIO()
    Image.new("L", (200, height), 255).save(out, "PNG")
    return out.getvalue()


def engine_process(formats: Formats) -> int | None:
    return formats._warm["ocr"].process_id


def test_the_engine_is_loaded_once_and_only_for_readable_content(own: Formats) -> None:
    with pytest.raises(FormatFailed) as caught:
        recognise(own, b"%PDF-1.7 broken")
    assert caught.value.code == "content_invalid"
    assert engine_process(own) is None
    assert recognise(own, picture()) == 1
    first = engine_process(own)
    assert first is not None
    with pytest.raises(FormatFailed) as caught:
        recognise(own, picture()[:60])
    assert caught.value.code == "content_invalid"
    assert recognise(own, picture()) == 1
    assert engine_process(own) == first
    own.stop()
    assert engine_process(own) is None


def test_a_cancelled_worker_ends_and_the_engine_stays(loaded: Formats) -> None:
    engine = engine_process(loaded)
    assert engine is not None
    seen: list[dict[str, str]] = []

    def look() -> bool:
        seen.extend(status_of(each) for each in children_of(engine))
        return bool(seen)

    with pytest.raises(Cancelled):
        recognise(loaded, picture(), look)
    assert children_of(engine) == []
    assert engine_process(loaded) == engine


def children_of(process: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


def status_of(process: int) -> dict[str, str]:
    text = Path(f"/proc/{process}/status").read_text()
    return {name: value.strip() for name, value in (line.split(":", 1) for line in text.splitlines())}


def test_a_lost_engine_is_restarted(loaded: Formats) -> None:
    first = engine_process(loaded)
    assert first is not None

    def lose() -> bool:
        os.kill(first, signal.SIGKILL)
        return False

    with pytest.raises(FormatFailed) as caught:
        recognise(loaded, picture(), lose)
    assert (caught.value.code, caught.value.failure_class) == ("formats_lost", "system")
    assert recognise(loaded, picture()) == 1
    assert engine_process(loaded) not in (None, first)


def test_an_idle_process_ends() -> None:
    warm = PreloadedProcess("parse.text", idle_seconds=0.01)
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as options, tempfile.TemporaryFile() as content:
        options.write(b"{}")
        options.seek(0)
        content.write(b"abc")
        content.flush()
        answer, theirs = os.pipe()
        files = [options.fileno(), output.fileno(), output.fileno(), theirs, content.fileno()]
        forked = warm.fork({**SETTINGS, "operation": "parse.text"}, files)
        os.close(theirs)
        process = warm._process
        assert process is not None
        with os.fdopen(answer, "rb") as pipe:
            assert json.loads(pipe.read())["facts"]["encoding"] == "utf-8"
        assert warm.process_id == process.pid
        assert forked.wait() == 0
        assert process.wait(20) == 0
    assert warm.process_id is None


SETTINGS = {
    "user": 65_505, "address_space": 1 << 30, "memory_mb": 100, "written_bytes": 1000, "cpu_seconds": 20, "files": 10,
}  # fmt: skip

# Tries what an exploit would, in a worker that was forked.
INSIDE = """
import fcntl, os, socket, sys
from appliance.formats import forking, operations
def attempt(request):
    tries = {
        "read": lambda: open("/etc/passwd"), "list": lambda: os.listdir("/"), "write": lambda: open("/tmp/gos-canary", "w"),
        "execute": lambda: os.execv("/bin/true", ["true"]), "fork": os.fork, "socket": lambda: socket.socket(),
        "parent": lambda: os.kill(os.getppid(), 0), "memory": lambda: open(f"/proc/{os.getppid()}/mem"),
    }
    reached = []
    for name, work in tries.items():
        try:
            work()
            reached.append(name)
        except OSError:
            pass
    held = []
    for number in range(3, 200):
        try:
            fcntl.fcntl(number, fcntl.F_GETFD)
            held.append(number)
        except OSError:
            pass
    return {"reached": reached, "held": len(held)}
operations.OPERATIONS["attempt"] = operations.Operation(lambda: None, attempt)
forking.main(sys.argv[1:])
"""


def test_a_forked_worker_reaches_nothing() -> None:
    requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    command = [sys.executable, "-c", INSIDE, json.dumps({"operation": "attempt", "requests": theirs.fileno()})]
    environment = {"PYTHONPATH": str(Path(__file__).parents[2])}
    process = subprocess.Popen(command, env=environment, pass_fds=[theirs.fileno()])
    theirs.close()
    with requests:
        for _ in range(2):
            assert attempt(requests) == {"facts": {"reached": [], "held": 5}}  # options, errors, output, answer, its life
    assert process.wait(20) == 0


def attempt(requests: socket.socket) -> object:
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as options:
        options.write(b"{}")
        options.seek(0)
        life, asker = socket.socketpair()
        answer, theirs = os.pipe()
        files = [asker.fileno(), options.fileno(), output.fileno(), output.fileno(), theirs]
        socket.send_fds(requests, [json.dumps({**SETTINGS, "operation": "attempt"}).encode()], files)
        os.close(theirs)
        asker.close()
        with life, os.fdopen(answer, "rb") as pipe:
            data = pipe.read()
            assert life.recv(16) == b"0"
        return json.loads(data)
