"""One PHP: an instance with files, a clock and random numbers of its own, that runs or checks one script."""

from __future__ import annotations

import calendar
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol, Self

from appliance.sandbox.php.engine import PhpEngine
from appliance.sandbox.php.files import FileFault, Files
from appliance.sandbox.worker.instance import Instance, OutOfMemory, Stopped, Trapped

# PHP's code, its stack and what its own start took, before a step uses any of its memory.
BASE_BYTES = 64 << 20
# PHP takes its memory in blocks that must lie on multiples of their size: half of what it asks for can be lost.
SPREAD = 2
PATH_BYTES, MESSAGE_BYTES, RANDOM_BYTES, VECTORS = 4096, 64 << 20, 1 << 20, 1024
PIECE_BYTES = 64 << 10
SLEEP_SLICE = 0.02
# zend_ini.h: as the administrator's php.ini says it, so that the script cannot say otherwise.
INI_SYSTEM, INI_STAGE_ACTIVATE = 4, 4
# zend_file_handle of PHP 8.4 on wasm32: where a source that is in memory already is named.
HANDLE_BYTES, SOURCE_AT = 64, 32
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Exited(Exception):
    """The C library was asked to end the process; a script's own exit() does not come here."""


class Owner(Protocol):
    """What a PHP asks of whoever runs it."""

    def overdue(self) -> str | None: ...
    def on_message(self, message: bytes) -> bytes | None: ...
    def on_output(self, stream: int, data: bytes) -> None: ...
    def read_clock(self) -> int: ...


@dataclass(frozen=True)
class PhpBoot:
    """Where things are in the memory of the template; valid for exactly the template it was made with."""

    main: int
    memory_limit: int


def memory_for(heap: int) -> int:
    """How much linear memory PHP may need so that a script can use `heap` bytes."""
    return BASE_BYTES + SPREAD * heap


class Machine(Instance):
    """A fresh PHP; use as a context manager on one thread. Its sources lie under `files.ROOT`."""

    def __init__(self, engine: PhpEngine, owner: Owner, heap: int, files: Files) -> None:
        super().__init__(engine, owner, memory_for(heap))
        self._host, self._heap, self._files = owner, heap, files
        self._answer = b""
        self._last_ms = self._reads = 0

    def __enter__(self) -> Self:
        super().__enter__()
        self._first_size = self.size
        return self

    # ---- what the appliance asks

    def limit_memory(self, boot: PhpBoot) -> None:
        """Give the script its own limit, which ini_set cannot lift."""
        text = b"%d" % self._heap
        value = self.allocate(text)
        if self.call("zend_alter_ini_entry_chars", boot.memory_limit, value, len(text), INI_SYSTEM, INI_STAGE_ACTIVATE):
            raise OutOfMemory("memory")

    def execute(self, handle: int) -> None:
        """Run a script to its end, then let out what it has printed."""
        self.call("php_execute_script", handle)
        self.call("php_output_end_all")
        self.call("fflush", 0)

    def check(self, path: str, source: bytes) -> None:
        """Compile a script without running it; faults go to the second output stream."""
        self.call("php_lint_script", self.script(path, source))
        self.call("fflush", 0)

    def peak(self) -> int:
        """The most memory that the script had at once, in bytes."""
        return self.call("zend_memory_peak_usage", 0)

    def grown(self) -> int:
        """How much memory it took beyond what it began with; all that can be told when it ended in the middle."""
        return self.measure() - self._first_size

    def allocate(self, data: bytes) -> int:
        pointer = self.call("malloc", len(data) + 1)
        if not pointer:
            raise OutOfMemory("memory")
        self.write(pointer, data + b"\0")
        return pointer

    def script(self, path: str, source: bytes) -> int:
        """A script whose source is in memory already: nothing is opened to run it."""
        handle, slack = self.allocate(bytes(HANDLE_BYTES)), bytes(HANDLE_BYTES)
        self.call("zend_stream_init_filename", handle, self.allocate(path.encode()))
        buffer = self.call("_emalloc", len(source) + len(slack))
        self.write(buffer, source + slack)
        self.write(handle + SOURCE_AT, struct.pack("<II", buffer, len(source)))
        return handle

    # ---- memory

    def _text(self, pointer: int, limit: int) -> bytes:
        """A C string; Trapped when it does not end."""
        chunks: list[bytes] = []
        length, step = 0, 256
        while length < limit:
            step = min(step, self.measure() - pointer - length)
            if step <= 0:
                break
            chunk = self.read(pointer + length, step)
            end = chunk.find(b"\0")
            if end >= 0:
                return b"".join((*chunks, chunk[:end]))
            chunks.append(chunk)
            length, step = length + step, min(step * 8, 1 << 20)
        raise Trapped("a text has no end")

    def _path(self, pointer: int) -> str:
        return self._text(pointer, PATH_BYTES).decode("utf-8", "surrogateescape")

    def _vectors(self, pointer: int, count: int) -> Iterator[tuple[int, int]]:
        if count > VECTORS:
            raise Trapped("too many buffers at once")
        numbers = struct.unpack(f"<{2 * count}I", self.read(pointer, 8 * count))
        return zip(numbers[::2], numbers[1::2], strict=True)

    # ---- what the guest asks: clock, random numbers, messages

    def now(self) -> int:
        """Nanoseconds; within a millisecond every reading is a microsecond later, for some code waits for time to pass."""
        at = self._host.read_clock()
        self._reads = min(self._reads + 1, 999) if at == self._last_ms else 0
        self._last_ms = at
        return at * 1_000_000 + self._reads * 1000

    def fill_random(self, pointer: int, count: int) -> int:
        if self._files.draw is None:
            raise Trapped("random numbers were asked for before the step began")
        if count > RANDOM_BYTES:
            raise Trapped("too many random bytes at once")
        self.write(pointer, self._files.draw(count))
        return 0

    def send_message(self, pointer: int) -> int:
        self._answer = self._host.on_message(self._text(pointer, MESSAGE_BYTES)) or b""
        return len(self._answer)

    def take_answer(self, pointer: int) -> int:
        self.write(pointer, self._answer)
        self._answer = b""
        return 0

    def sleep(self, milliseconds: int) -> int:
        end, pause = time.monotonic() + milliseconds / 1000, threading.Event()
        while (left := end - time.monotonic()) > 0:
            reason = self._host.overdue()
            if reason is not None:
                raise Stopped(reason)
            pause.wait(min(left, SLEEP_SLICE))
        return 0

    def exit(self) -> int:
        raise Exited

    def split_time(self, seconds: int, pointer: int) -> int:
        """gmtime(3); a time beyond the calendar becomes its beginning."""
        try:
            at = (_EPOCH + timedelta(seconds=seconds)).timetuple()
        except OverflowError:
            at = _EPOCH.timetuple()
        day = (at.tm_wday + 1) % 7
        fields = (at.tm_sec, at.tm_min, at.tm_hour, at.tm_mday, at.tm_mon - 1, at.tm_year - 1900, day, at.tm_yday - 1, 0, 0)
        self.write(pointer, struct.pack("<10i", *fields))
        return 0

    def join_time(self, pointer: int) -> int:
        second, minute, hour, day, month, year = struct.unpack("<6i", self.read(pointer, 24))
        years, month = divmod(month, 12)
        try:
            return calendar.timegm((year + years + 1900, month + 1, day, hour, minute, second))
        except (ValueError, OverflowError):
            return -1

    # ---- what the guest asks: files. WASI calls answer an error's number, system calls its negative.

    def write_file(self, descriptor: int, vectors: int, count: int, written: int) -> int:
        parts = list(self._vectors(vectors, count))
        if descriptor in (1, 2):
            self._print(descriptor, parts)
        else:
            try:
                self._files.write(descriptor, b"".join(self.read(at, size) for at, size in parts))
            except FileFault as fault:
                return fault.number
        self.write(written, struct.pack("<I", sum(size for _, size in parts)))
        return 0

    def _print(self, descriptor: int, parts: list[tuple[int, int]]) -> None:
        """In pieces: hundreds of megabytes at once would take longer than the limits of log and time allow."""
        for at, size in parts:
            for begin in range(0, size, PIECE_BYTES):
                reason = self._host.overdue()
                if reason is not None:
                    raise Stopped(reason)
                self._host.on_output(descriptor, self.read(at + begin, min(PIECE_BYTES, size - begin)))

    def read_file(self, descriptor: int, vectors: int, count: int, done: int) -> int:
        total = 0
        try:
            for at, size in self._vectors(vectors, count):
                data = self._files.read(descriptor, min(size, RANDOM_BYTES))
                self.write(at, data)
                total += len(data)
                if len(data) < size:
                    break
        except FileFault as fault:
            return fault.number
        self.write(done, struct.pack("<I", total))
        return 0

    def seek_file(self, descriptor: int, offset: int, whence: int, position: int) -> int:
        def work() -> None:
            self.write(position, struct.pack("<Q", self._files.seek(descriptor, offset, whence)))

        return _number(work)

    def close_file(self, descriptor: int) -> int:
        return _number(lambda: self._files.close(descriptor))

    def open_file(self, path: int, flags: int) -> int:
        try:
            return self._files.open(self._path(path), flags)
        except FileFault as fault:
            return -fault.number

    def stat_path(self, path: int, target: int) -> int:
        return -_number(lambda: self.write(target, self._files.stat(self._path(path))))

    def stat_file(self, descriptor: int, target: int) -> int:
        return -_number(lambda: self.write(target, self._files.stat_open(descriptor)))

    def access_path(self, path: int) -> int:
        return -_number(lambda: self._files.access(self._path(path)))

    def remove_path(self, path: int) -> int:
        return -_number(lambda: self._files.unlink(self._path(path)))

    def rename_path(self, path: int, target: int) -> int:
        return -_number(lambda: self._files.rename(self._path(path), self._path(target)))

    def truncate_file(self, descriptor: int, size: int) -> int:
        return -_number(lambda: self._files.truncate(descriptor, size))


def _number(work: Callable[[], Any]) -> int:
    try:
        work()
    except FileFault as fault:
        return fault.number
    return 0


def sources(files: Mapping[str, str], root: str) -> dict[str, bytes]:
    """The texts of a program as PHP finds them on its disk."""
    return {root + path: text.encode("utf-8", "replace") for path, text in files.items()}
