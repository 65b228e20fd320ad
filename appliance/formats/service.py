"""The appliance's side of formats: one worker process for each operation, started with nothing in its hands."""

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

from .failing import Cancelled, FormatFailed
from .operations import OPERATIONS
from .warm import Warm, start

log = logging.getLogger(__name__)

LOOK_SECONDS = 0.1
MOST_ANSWER = 8 << 20
BASE_MB = 192  # what Python and its libraries map before any content is there
USERS = 30


@dataclass(frozen=True)
class Settings:
    """`folder`: where spooled content lies, nameless and for as long as it is used; `processes`: at most at once;
    `queue_seconds`: how long to wait for one; `first_user`: the first of the 30 user numbers that workers take when
    started as root (0: they stay root); `files`: most members of an archive; `memory_mb` and `written_bytes`: what an
    operation may use when nothing else is said."""

    folder: Path
    processes: int = 2
    queue_seconds: float = 60.0
    first_user: int = 0
    files: int = 10_000
    memory_mb: int = 256
    written_bytes: int = 500 << 20


@dataclass(frozen=True)
class Work:
    """An operation of `operations.OPERATIONS`, its options as JSON, and the open files it reads."""

    operation: str
    options: Mapping[str, Any] = field(default_factory=dict)
    inputs: Sequence[IO[bytes]] = ()


@dataclass(frozen=True)
class Bounds:
    """What the operation may use: time once it runs, memory beside what its libraries take, and bytes it writes."""

    seconds: float
    memory_mb: int
    written_bytes: int


@dataclass(frozen=True)
class Answer:
    """What is known of the content, and what was written: records as NDJSON, or a file.  `output` is at its beginning."""

    facts: Mapping[str, Any]
    output: IO[bytes]
    size: int

    def records(self) -> Iterator[Any]:
        for line in self.output:
            yield json.loads(line)


class _Worker(Protocol):
    """A process that was started, or forked by one that is kept loaded."""

    def kill(self) -> None: ...

    def wait(self) -> int: ...


class Formats:
    """Performs operations; thread-safe.  Nothing runs while nobody asks, but for a while what takes long to load."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._places = threading.BoundedSemaphore(settings.processes)
        self._warm = {name: Warm(name) for name, each in OPERATIONS.items() if each.check is not None}

    def stop(self) -> None:
        """Keep nothing loaded any more."""
        for each in self._warm.values():
            each.stop()

    def scratch(self) -> IO[bytes]:
        """A nameless file in the private folder; gone when it is closed."""
        self.settings.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        return tempfile.TemporaryFile(dir=self.settings.folder)

    @contextmanager
    def perform(self, work: Work, bounds: Bounds, is_cancelled: Callable[[], bool] = bool) -> Iterator[Answer]:
        """The operation's answer; FormatFailed, or Cancelled soon after `is_cancelled` says so."""
        with self.scratch() as output:
            with self._place(is_cancelled):
                check = OPERATIONS[work.operation].check
                if check is not None and self._warm[work.operation].process_id is None:
                    self._run(replace(work, operation=check), bounds, output, is_cancelled)
                facts = self._run(work, bounds, output, is_cancelled)
            size = output.seek(0, os.SEEK_END)
            output.seek(0)
            yield Answer(facts, output, size)

    @contextmanager
    def _place(self, is_cancelled: Callable[[], bool]) -> Iterator[None]:
        ends = clock.monotonic() + self.settings.queue_seconds
        while not self._places.acquire(timeout=LOOK_SECONDS):
            if is_cancelled():
                raise Cancelled
            if clock.monotonic() > ends:
                raise FormatFailed("formats_busy", "system", "other steps read and write files; none was done in time")
        try:
            yield
        finally:
            self._places.release()

    def _run(self, work: Work, bounds: Bounds, output: IO[bytes], is_cancelled: Callable[[], bool]) -> Mapping[str, Any]:
        with ExitStack() as stack:
            errors = stack.enter_context(tempfile.TemporaryFile())
            options = stack.enter_context(self.scratch())
            options.write(json.dumps(dict(work.options)).encode())
            options.seek(0)
            user = stack.enter_context(take_user(self.settings.first_user, USERS))
            answer, theirs = os.pipe()
            try:
                child: _Worker = self._start(work, bounds, (options, output, errors), theirs, user.number or None)
            finally:
                os.close(theirs)
            reader = stack.enter_context(os.fdopen(answer, "rb"))
            try:
                told = _await(reader.fileno(), bounds, is_cancelled)
            finally:
                child.kill()
                status = child.wait()
            errors.seek(0)
            return _facts(told, status, bounds, errors.read(2000).decode("utf8", "replace"))

    def _start(
        self, work: Work, bounds: Bounds, files: tuple[IO[bytes], IO[bytes], IO[bytes]], answer: int, user: int | None
    ) -> _Worker:
        options, output, errors = files
        inputs = [each.fileno() for each in work.inputs]
        extra = OPERATIONS[work.operation].extra_mb
        given = {
            "parent": os.getpid(), "user": user, "operation": work.operation,
            "address_space": (BASE_MB + extra + bounds.memory_mb) << 20, "memory_mb": bounds.memory_mb,
            "written_bytes": bounds.written_bytes, "cpu_seconds": math.ceil(bounds.seconds) * 4 + 5, "files": self.settings.files,
            "inputs": inputs, "output": output.fileno(), "answer": answer,
        }  # fmt: skip
        if warm := self._warm.get(work.operation):
            return warm.fork(given, [options.fileno(), errors.fileno(), output.fileno(), answer, *inputs])
        return start("worker", given, [*inputs, output.fileno(), answer], stdin=options, stderr=errors)


def _await(descriptor: int, bounds: Bounds, is_cancelled: Callable[[], bool]) -> bytes:
    """What the process answers until it ends; nothing when it was lost."""
    ends = clock.monotonic() + bounds.seconds
    waiting = select.poll()
    waiting.register(descriptor, select.POLLIN)
    told = b""
    while True:
        left = ends - clock.monotonic()
        if left <= 0:
            raise FormatFailed(
                "content_timeout", "timeout", f"the content took longer than the {bounds.seconds:g} s this step may use"
            )
        if is_cancelled():
            raise Cancelled
        if not waiting.poll(min(left, LOOK_SECONDS) * 1000):
            continue
        part = os.read(descriptor, 1 << 16)
        if not part:
            return told
        told += part
        if len(told) > MOST_ANSWER:
            raise FormatFailed("content_too_large", "validation", "the content has more parts than can be told")


def _facts(told: bytes, status: int, bounds: Bounds, errors: str) -> Mapping[str, Any]:
    if status == -signal.SIGXCPU:
        raise FormatFailed("content_timeout", "timeout", f"the content took longer than the {bounds.seconds:g} s this step may use")
    if not told:
        log.error("a formats worker was lost with status %d: %s", status, errors)
        if "MemoryError" in errors or "memory" in errors.lower() or "alloc" in errors.lower():
            raise FormatFailed(
                "content_memory", "memory", f"the content takes more than the {bounds.memory_mb} MB this step may use"
            )
        raise FormatFailed(
            "formats_lost", "system", "the process that reads files was lost; the log of the appliance has the reason"
        )
    answer = json.loads(told)
    if "facts" in answer:
        facts: Mapping[str, Any] = answer["facts"]
        return facts
    if "failed" in answer:
        failed = answer["failed"]
        raise FormatFailed(failed["code"], failed["failure_class"], failed["message"])
    log.error("a formats worker failed: %s", answer["fault"])
    raise FormatFailed("formats_fault", "system", "the appliance failed to read or write this content; its log has the reason")
