"""The appliance's side of formats: runs each operation in its own unprivileged worker process."""

import json
import logging
import math
import os
import select
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any, Protocol

from appliance.core import clock
from appliance.core.confinement.user_numbers import take_user

from .errors import Cancelled, FormatFailed
from .operations import OPERATIONS
from .preloading import PreloadedProcess, start_process

log = logging.getLogger(__name__)

POLL_SECONDS = 0.1
MAX_ANSWER_BYTES = 8 << 20
BASE_MB = 192  # Memory that Python and its libraries map before any content is read.
USERS = 30


@dataclass(frozen=True)
class Settings:
    """Settings of `Formats`.

    `folder` is for anonymous temporary files; `processes` limits concurrent workers and `queue_seconds` the wait for one.
    `first_user` is the first of the 30 user ids that workers switch to when started as root (0: they stay root).  `files`
    limits the members of an archive; `memory_mb` and `written_bytes` are the default bounds of an operation.
    """

    folder: Path
    processes: int = 2
    queue_seconds: float = 60.0
    first_user: int = 0
    files: int = 10_000
    memory_mb: int = 256
    written_bytes: int = 500 << 20


@dataclass(frozen=True)
class Work:
    """The name of an operation in `operations.OPERATIONS`, its JSON options and the open files it reads."""

    operation: str
    options: Mapping[str, Any] = field(default_factory=dict)
    inputs: Sequence[IO[bytes]] = ()


@dataclass(frozen=True)
class Bounds:
    """Limits of an operation: running time, memory in addition to that of its libraries, and bytes written."""

    seconds: float
    memory_mb: int
    written_bytes: int


@dataclass(frozen=True)
class Answer:
    """The result of an operation: facts about the content, and the output (records as NDJSON, or a file), rewound."""

    facts: Mapping[str, Any]
    output: IO[bytes]
    size: int

    def records(self) -> Iterator[Any]:
        for line in self.output:
            yield json.loads(line)


class _Worker(Protocol):
    """A worker process, started directly or forked from a preloaded process."""

    def kill(self) -> None: ...

    def wait(self) -> int: ...


class Formats:
    """Performs operations; thread-safe.  Only operations that are slow to load keep a process while idle, for a limited time."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._slots = threading.BoundedSemaphore(settings.processes)
        self._warm = {name: PreloadedProcess(name) for name, each in OPERATIONS.items() if each.check is not None}

    def stop(self) -> None:
        """End the preloaded processes."""
        for each in self._warm.values():
            each.stop()

    def scratch(self) -> IO[bytes]:
        """An anonymous temporary file in the private folder; deleted when it is closed."""
        self.settings.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        return tempfile.TemporaryFile(dir=self.settings.folder)

    @contextmanager
    def perform(self, work: Work, bounds: Bounds, is_cancelled: Callable[[], bool] = bool) -> Iterator[Answer]:
        """Perform the operation and yield its answer; FormatFailed, or Cancelled soon after `is_cancelled` returns true."""
        with self.scratch() as output:
            with self._acquire_slot(is_cancelled):
                check = OPERATIONS[work.operation].check
                if check is not None and self._warm[work.operation].process_id is None:
                    self._run(replace(work, operation=check), bounds, output, is_cancelled)
                facts = self._run(work, bounds, output, is_cancelled)
            size = output.seek(0, os.SEEK_END)
            output.seek(0)
            yield Answer(facts, output, size)

    @contextmanager
    def _acquire_slot(self, is_cancelled: Callable[[], bool]) -> Iterator[None]:
        deadline = clock.monotonic() + self.settings.queue_seconds
        while not self._slots.acquire(timeout=POLL_SECONDS):
            if is_cancelled():
                raise Cancelled
            if clock.monotonic() > deadline:
                raise FormatFailed("formats_busy", "system", "too many files are being processed; try again later")
        try:
            yield
        finally:
            self._slots.release()

    def _run(self, work: Work, bounds: Bounds, output: IO[bytes], is_cancelled: Callable[[], bool]) -> Mapping[str, Any]:
        with ExitStack() as stack:
            errors = stack.enter_context(tempfile.TemporaryFile())
            options = stack.enter_context(self.scratch())
            options.write(json.dumps(dict(work.options)).encode())
            options.seek(0)
            user = stack.enter_context(take_user(self.settings.first_user, USERS))
            answer_end, worker_end = os.pipe()
            try:
                child: _Worker = self._start(work, bounds, (options, output, errors), worker_end, user.number or None)
            finally:
                os.close(worker_end)
            reader = stack.enter_context(os.fdopen(answer_end, "rb"))
            try:
                data = _read_answer(reader.fileno(), bounds, is_cancelled)
            finally:
                child.kill()
                status = child.wait()
            errors.seek(0)
            return _parse_answer(data, status, bounds, errors.read(2000).decode("utf8", "replace"))

    def _start(
        self, work: Work, bounds: Bounds, files: tuple[IO[bytes], IO[bytes], IO[bytes]], answer: int, user: int | None
    ) -> _Worker:
        options, output, errors = files
        inputs = [each.fileno() for each in work.inputs]
        extra = OPERATIONS[work.operation].extra_mb
        worker_settings = {
            "parent": os.getpid(), "user": user, "operation": work.operation,
            "address_space": (BASE_MB + extra + bounds.memory_mb) << 20, "memory_mb": bounds.memory_mb,
            "written_bytes": bounds.written_bytes, "cpu_seconds": math.ceil(bounds.seconds) * 4 + 5, "files": self.settings.files,
            "inputs": inputs, "output": output.fileno(), "answer": answer,
        }  # fmt: skip
        if warm := self._warm.get(work.operation):
            return warm.fork(worker_settings, [options.fileno(), errors.fileno(), output.fileno(), answer, *inputs])
        return start_process("worker", worker_settings, [*inputs, output.fileno(), answer], stdin=options, stderr=errors)


def _read_answer(descriptor: int, bounds: Bounds, is_cancelled: Callable[[], bool]) -> bytes:
    """Read the worker's answer until it ends; empty if the worker crashed."""
    deadline = clock.monotonic() + bounds.seconds
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    data = b""
    while True:
        left = deadline - clock.monotonic()
        if left <= 0:
            raise FormatFailed(
                "content_timeout", "timeout", f"processing the content took longer than the limit of {bounds.seconds:g} s"
            )
        if is_cancelled():
            raise Cancelled
        if not poll.poll(min(left, POLL_SECONDS) * 1000):
            continue
        chunk = os.read(descriptor, 1 << 16)
        if not chunk:
            return data
        data += chunk
        if len(data) > MAX_ANSWER_BYTES:
            raise FormatFailed("content_too_large", "validation", "the content has too many parts to list")


def _parse_answer(data: bytes, status: int, bounds: Bounds, errors: str) -> Mapping[str, Any]:
    if status == -signal.SIGXCPU:
        raise FormatFailed(
            "content_timeout", "timeout", f"processing the content took longer than the limit of {bounds.seconds:g} s"
        )
    if not data:
        log.error("a formats worker crashed with status %d: %s", status, errors)
        if "MemoryError" in errors or "memory" in errors.lower() or "alloc" in errors.lower():
            raise FormatFailed(
                "content_memory", "memory", f"processing the content needs more memory than the limit of {bounds.memory_mb} MB"
            )
        raise FormatFailed("formats_lost", "system", "the process that reads files crashed; see the log of the appliance")
    answer = json.loads(data)
    if "facts" in answer:
        facts: Mapping[str, Any] = answer["facts"]
        return facts
    if "failed" in answer:
        failed = answer["failed"]
        raise FormatFailed(failed["code"], failed["failure_class"], failed["message"])
    log.error("a formats worker failed: %s", answer["fault"])
    raise FormatFailed("formats_fault", "system", "the content could not be read or written; see the log of the appliance")
