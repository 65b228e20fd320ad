"""The worker process: what it may use, what it cannot reach, and how it ends."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from appliance.formats import Bounds, Cancelled, FormatFailed, Formats, Settings, Work
from appliance.formats.operations import OPERATIONS

from .conftest import MEGABYTE, Perform

FailureOf = Callable[..., FormatFailed]
ENDLESS = b"a,b\n" + b"1,2\n" * 6_000_000


def test_an_operation_that_takes_too_long_is_ended(failure_of: FailureOf) -> None:
    failed = failure_of("parse.csv", ENDLESS, bounds=Bounds(1.0, 256, 500 * MEGABYTE))
    assert (failed.code, failed.failure_class) == ("content_timeout", "timeout")


def test_an_operation_that_takes_too_much_memory_is_ended(failure_of: FailureOf) -> None:
    failed = failure_of("parse.json", b"[" + b"[[],[]]," * 3_000_000 + b"1]", bounds=Bounds(60, 64, 32 * MEGABYTE))
    assert (failed.code, failed.failure_class) == ("content_memory", "memory")
    assert "64 MB" in failed.message


def test_an_operation_that_writes_too_much_is_ended(failure_of: FailureOf) -> None:
    failed = failure_of("parse.csv", ENDLESS, bounds=Bounds(60, 256, MEGABYTE))
    assert (failed.code, failed.failure_class) == ("content_too_large", "validation")


def test_a_cancelled_operation_ends_at_once(formats: Formats, tmp_path: Path) -> None:
    path = tmp_path / "endless.csv"
    path.write_bytes(ENDLESS)
    with (
        path.open("rb") as file,
        pytest.raises(Cancelled),
        formats.perform(Work("parse.csv", {}, [file]), Bounds(60, 256, 500 * MEGABYTE), lambda: True),
    ):
        pass


def test_operations_beyond_the_limit_wait_and_give_up(tmp_path: Path) -> None:
    busy = Formats(Settings(tmp_path, processes=1, queue_seconds=0.2))
    path = tmp_path / "endless.csv"
    path.write_bytes(ENDLESS)
    let_go, started = threading.Event(), threading.Event()

    def look() -> bool:
        started.set()
        return let_go.is_set()

    def hold() -> None:
        with (
            path.open("rb") as file,
            pytest.raises(Cancelled),
            busy.perform(Work("parse.csv", {}, [file]), Bounds(60, 256, 500 * MEGABYTE), look),
        ):
            pass

    holder = threading.Thread(target=hold)
    holder.start()
    assert started.wait(20)
    try:
        with pytest.raises(FormatFailed) as caught, busy.perform(Work("zip", {"names": []}), Bounds(5, 64, MEGABYTE)):
            pass
        assert caught.value.code == "formats_busy"
    finally:
        let_go.set()
        holder.join()
    with busy.perform(Work("zip", {"names": []}), Bounds(20, 64, MEGABYTE)) as answer:
        assert answer.facts["count"] == 0


def test_spooled_content_has_no_name_and_nothing_stays(tmp_path: Path) -> None:
    formats = Formats(Settings(tmp_path / "private"))
    with formats.scratch() as file:
        file.write(b"secret")
        assert list((tmp_path / "private").iterdir()) == []
    assert (tmp_path / "private").stat().st_mode & 0o777 == 0o700


# Runs in a child that is confined like a worker, and tries what an exploit would.
INSIDE = """
import json, os, socket, sys
from appliance.formats import operations, worker
reached = {}
def attempt(request):
    tries = {
        "read": lambda: open("/etc/passwd"), "list": lambda: os.listdir("/"), "write": lambda: open("/tmp/gos-canary", "w"),
        "execute": lambda: os.execv("/bin/true", ["true"]), "fork": os.fork, "socket": lambda: socket.socket(),
        "parent": lambda: os.kill(os.getppid(), 0), "memory": lambda: open(f"/proc/{os.getppid()}/mem"),
        "again": lambda: open("/proc/self/fd/0"),
    }
    for name, work in tries.items():
        try:
            work()
            reached[name] = True
        except OSError:
            reached[name] = False
    return {"reached": reached}
operations.OPERATIONS["attempt"] = operations.Operation(lambda: None, attempt)
worker.main(sys.argv[1:])
"""


def test_a_worker_reaches_nothing() -> None:
    reader, writer = os.pipe()
    output = os.dup(writer)
    settings = {
        "parent": os.getpid(), "user": 65_505, "operation": "attempt", "address_space": 1 << 30, "memory_mb": 100,
        "written_bytes": 1000, "cpu_seconds": 20, "files": 10, "inputs": [], "output": output, "answer": writer,
    }  # fmt: skip
    command = [sys.executable, "-c", INSIDE, json.dumps(settings)]
    environment = {"PYTHONPATH": str(Path(__file__).parents[2])}
    completed = subprocess.run(
        command, input=b"{}", env=environment, pass_fds=[writer, output], capture_output=True, timeout=60, check=False
    )
    os.close(writer)
    os.close(output)
    with os.fdopen(reader, "rb") as pipe:
        answer = json.loads(pipe.read())
    assert completed.stderr == b""
    assert set(answer["facts"]["reached"].values()) == {False}, answer


def confined_children() -> list[dict[str, str]]:
    """What the kernel says of the children of this process that have a filter of system calls."""
    numbers = [number for task in Path("/proc/self/task").iterdir() for number in (task / "children").read_text().split()]
    statuses = []
    for number in numbers:
        with suppress(OSError):  # it has ended meanwhile
            text = Path(f"/proc/{number}/status").read_text()
            statuses.append({name: value.strip() for name, value in (line.split(":", 1) for line in text.splitlines())})
    return [each for each in statuses if each["Seccomp"] == "2"]


def test_a_worker_is_a_user_of_its_own_without_privileges(formats: Formats, tmp_path: Path) -> None:
    path = tmp_path / "endless.csv"
    path.write_bytes(ENDLESS)
    others = {child["Pid"] for child in confined_children()}  # a sandbox of another test may live in this process
    seen: list[dict[str, str]] = []

    def look() -> bool:
        seen.extend(child for child in confined_children() if child["Pid"] not in others)
        return bool(seen)

    work = Work("parse.csv", {})
    bounds = Bounds(60, 256, 500 * MEGABYTE)
    with path.open("rb") as file, pytest.raises(Cancelled), formats.perform(replace(work, inputs=[file]), bounds, look):
        pass
    assert seen[0]["NoNewPrivs"] == "1"
    assert int(seen[0]["CapEff"], 16) == 0
    if os.geteuid() == 0:
        assert 65_500 <= int(seen[0]["Uid"].split()[0]) < 65_530


def test_every_operation_loads_all_it_needs_before_it_is_confined(perform: Perform) -> None:
    """Content that leads down unusual ways: what is imported late would fail."""
    assert {name for name in OPERATIONS if name.startswith("parse.")} == {
        f"parse.{name}" for name in ("csv", "xlsx", "json", "ndjson", "xml", "text", "pdf")
    }
    for encoding in ("utf-32", "koi8-r", "shift_jis", "mac_roman", "cp437"):
        assert perform("parse.text", "abc".encode(encoding), encoding=encoding).records == ["abc"]
    assert perform("parse.xml", '<?xml version="1.0" encoding="iso-8859-1"?><a>ä</a>'.encode("latin-1")).records == [{"a": "ä"}]
