"""A suspended step as bytes: what differs from the template, and what the host knew of the step.

Layout: magic, version, sha256 of all that follows, length of the head, the head (JSON), one zstd frame. The frame holds the
parts that the head lists by length (the runs of changed pages, the output, the parameters of calls) and then the changed pages,
XOR the template.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from typing import Any, Self

import zstandard

from appliance.sandbox.engine import Engine
from appliance.sandbox.outcome import Failure, Snapshot
from appliance.sandbox.program import Limits, Program
from appliance.sandbox.vm import VM, WASM_PAGE, Stopped

MAGIC, VERSION = b"GOSVM", 1
PAGE, CHUNK = 4096, 1 << 20
LEVEL, WINDOW_BYTES = 3, 8 << 20
PARTS_BYTES = 128 << 20
_START = struct.Struct(">5sB32sI")
_RUN = struct.Struct("<II")


class Unusable(Exception):
    """The step cannot go on from this snapshot; `failure` says why and what to do."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.failure = Failure("system", "SnapshotUnusable", message, code=code)


class TooLarge(Exception):
    """The step holds more than a snapshot may have."""


def damaged(what: str) -> Unusable:
    text = f"The stored state of this step is damaged ({what}); it cannot go on from there, retry the step from its start."
    return Unusable("snapshot_damaged", text)


@dataclass(frozen=True)
class Carried:
    """What the host knows of a step beside its memory. Figures count from the step's beginning, over all visits.

    `pending`: calls without an answer; `calls`: id and method of those not yet shown to the appliance, with their `raws`.
    `clock_count`: values that were recorded; `clock_last`: what was read last. `returned`: the step has its `output` already.
    """

    template: str = ""
    program: str = ""
    memory_mb: int = 0
    seed: int = 0
    wall_ms: float = 0.0
    cpu_ms: float = 0.0
    calls_made: int = 0
    log_bytes: int = 0
    clock_count: int = 0
    clock_last: int = 0
    pending: list[int] = field(default_factory=list)
    calls: list[list[Any]] = field(default_factory=list)
    rejections: list[list[int]] = field(default_factory=list)
    seeded: bool = False
    returned: bool = False
    output: bytes = b""
    raws: list[bytes] = field(default_factory=list)


_HEAD = [each.name for each in fields(Carried) if each.name not in ("output", "raws")]
_KINDS = {"str": str, "int": int, "float": float, "bool": bool}


@dataclass(frozen=True)
class Image:
    """The memory of a fresh instance; below `floor` lie the dead stack and the mailbox, which no sleeping step needs."""

    template: str
    memory: bytes
    floor: int

    @classmethod
    def of(cls, engine: Engine, template: str) -> Self:
        with VM(engine, _Nobody()) as vm:
            memory, floor = vm.snapshot()
        if floor % PAGE:
            raise RuntimeError("the stack of the template does not begin at a page")
        return cls(template, memory, floor)

    def part(self, at: int, length: int) -> bytes:
        return self.memory[at : at + length].ljust(length, b"\0")


class _Nobody:
    """The owner of an instance that never runs."""

    def on_message(self, message: bytes) -> bytes | None:
        raise RuntimeError("nobody runs here")

    def read_clock(self) -> int:
        return 0

    def module_source(self, name: str) -> str | None:
        return None

    def resolve_module(self, importer: str, specifier: str) -> str:
        return specifier

    def overdue(self) -> str | None:
        return None


# ---- writing


def freeze(vm: VM, image: Image, carried: Carried, limit: int) -> bytes:
    """The sleeping step as bytes; TooLarge beyond `limit`, Stopped when it takes longer than the step may."""
    size, pointer = vm.measure(), vm.stack_pointer()
    if pointer != image.floor:
        raise RuntimeError("the step is not at rest")
    runs = _changed_runs(vm, image, size)
    parts = [b"".join(_RUN.pack(*each) for each in runs), carried.output, *carried.raws]
    total = sum(map(len, parts)) + sum(count for _, count in runs) * PAGE
    pressed = zstandard.ZstdCompressor(level=LEVEL).compressobj(size=total)
    out, length = [], 0
    for each in (*parts, *_differences(vm, image, runs)):
        out.append(pressed.compress(each))
        length += len(out[-1])
        if length > limit:
            raise TooLarge
    out.append(pressed.flush())
    head = {name: getattr(carried, name) for name in _HEAD}
    head |= {"size": size, "parts": [len(each) for each in parts], "bytes": total}
    text = json.dumps(head, separators=(",", ":")).encode()
    rest = b"".join((len(text).to_bytes(4, "big"), text, *out))
    data = b"".join((MAGIC, bytes([VERSION]), hashlib.sha256(rest).digest(), rest))
    if len(data) > limit:
        raise TooLarge
    return data


def _go_on(vm: VM) -> None:
    reason = vm.overdue()
    if reason is not None:
        raise Stopped(reason)


def _changed_runs(vm: VM, image: Image, size: int) -> list[list[int]]:
    """First page and number of pages of each stretch that differs from the template."""
    runs: list[list[int]] = []
    for at in range(image.floor, size, CHUNK):
        _go_on(vm)
        length = min(CHUNK, size - at)
        now, then = vm.read(at, length), image.part(at, length)
        for offset in range(0, length, PAGE):
            if now[offset : offset + PAGE] == then[offset : offset + PAGE]:
                continue
            page = (at + offset) // PAGE
            if runs and sum(runs[-1]) == page:
                runs[-1][1] += 1
            else:
                runs.append([page, 1])
    return runs


def _stretches(runs: list[list[int]]) -> Iterator[tuple[int, int]]:
    """Address and length of what is copied at once."""
    for page, count in runs:
        for at in range(page * PAGE, (page + count) * PAGE, CHUNK):
            yield at, min(CHUNK, (page + count) * PAGE - at)


def _differences(vm: VM, image: Image, runs: list[list[int]]) -> Iterator[bytes]:
    for at, length in _stretches(runs):
        _go_on(vm)
        yield _xor(vm.read(at, length), image, at)


def _xor(data: bytes, image: Image, at: int) -> bytes:
    then = image.memory[at : at + len(data)]
    if not then:
        return data
    return (int.from_bytes(data, "little") ^ int.from_bytes(then, "little")).to_bytes(len(data), "little")


# ---- reading


@dataclass(frozen=True)
class Stored:
    """A snapshot whose seal of integrity holds; nothing of its frame is unpacked yet."""

    carried: Carried
    size: int
    parts: list[int]
    total: int
    frame: bytes

    @classmethod
    def parse(cls, data: bytes) -> Self:
        """Unusable when it is not, to the byte, what `freeze` wrote."""
        if len(data) < _START.size:
            raise damaged("it is too short")
        magic, version, expected, length = _START.unpack_from(data)
        if magic != MAGIC or version != VERSION:
            raise damaged("it has a form that this version does not know")
        if hashlib.sha256(data[_START.size - 4 :]).digest() != expected:
            raise damaged("its checksum is wrong")
        end = _START.size + length
        try:
            head = json.loads(data[_START.size : end])
            carried = Carried(**{name: _typed(name, head[name]) for name in _HEAD})
            lengths = [_length(each) for each in head["parts"]]
            stored = cls(carried, _length(head["size"]), lengths, _length(head["bytes"]), data[end:])
            stored._check()
        except (ValueError, KeyError, TypeError, RecursionError, zstandard.ZstdError) as fault:
            raise damaged("its head is not understood") from fault
        return stored

    def _check(self) -> None:
        """Every length fits the others, before anything is unpacked."""
        frame = zstandard.get_frame_parameters(self.frame)
        least = sum(self.parts)
        fits = (
            len(self.parts) == 2 + len(self.carried.calls)
            and least <= PARTS_BYTES
            and self.parts[0] % _RUN.size == 0
            and least <= self.total <= least + self.size
            and frame.content_size == self.total
            and frame.window_size <= WINDOW_BYTES
            and self.size % WASM_PAGE == 0
        )
        if not fits:
            raise ValueError("the lengths contradict each other")

    def matches(self, program: Program, limits: Limits) -> None:
        """Unusable for another program than the one that was suspended, for another tenant's, or for another size of heap."""
        if self.carried.program != program.digest:
            text = "The code of this step is not the code that was suspended; retry the step from its start."
            raise Unusable("snapshot_program_changed", text)
        if self.carried.memory_mb != limits.memory_mb:
            text = f"The step was suspended with {self.carried.memory_mb} MB of memory and cannot go on with {limits.memory_mb} MB"
            raise Unusable("snapshot_program_changed", f"{text}; set limits.memory_mb back, or retry the step from its start.")

    def restore(self, vm: VM, image: Image) -> Carried:
        """Make a fresh instance what the suspended one was; answers what was carried, complete."""
        if self.carried.template != image.template:
            raise RuntimeError("the snapshot is one of another template")
        reader = zstandard.ZstdDecompressor(max_window_size=WINDOW_BYTES).stream_reader(self.frame)
        try:
            parts = [_exactly(reader, length) for length in self.parts]
            runs = self._checked_runs(parts[0], image.floor)
            if not vm.grow_to(self.size):
                raise damaged("its memory is larger than the step may have")
            for at, length in _stretches(runs):
                _go_on(vm)
                vm.write(at, _xor(_exactly(reader, length), image, at))
        except zstandard.ZstdError as fault:
            raise damaged("it cannot be unpacked") from fault
        return replace(self.carried, output=parts[1], raws=parts[2:])

    def _checked_runs(self, packed: bytes, floor: int) -> list[list[int]]:
        """The runs, if they ascend within the memory and are as long together as the frame says."""
        runs, free = [list(each) for each in _RUN.iter_unpack(packed)], floor // PAGE
        for page, count in runs:
            if page < free or count < 1:
                raise damaged("its pages overlap")
            free = page + count
        if free * PAGE > self.size or sum(count for _, count in runs) * PAGE != self.total - sum(self.parts):
            raise damaged("its pages do not fit its size")
        return runs


def _exactly(reader: Any, length: int) -> bytes:
    data: bytes = reader.read(length) if length else b""
    if len(data) != length:
        raise damaged("it ends too early")
    return data


def _length(value: Any) -> int:
    if not isinstance(value, int) or value < 0:
        raise TypeError("no length")
    return value


def _typed(name: str, value: Any) -> Any:
    kind = str(Carried.__annotations__[name])
    wanted = _KINDS.get(kind, list)
    if not isinstance(value, (int, float) if wanted is float else wanted):
        raise TypeError(f"{name} is no {kind}")
    return value


def check(given: Snapshot, program: Program, limits: Limits, template: str) -> Stored:
    """The snapshot read, if this program may go on from it under these limits; else Unusable."""
    stored = Stored.parse(given.data)
    if given.template != template:
        raise Unusable("snapshot_template_missing", "This step was suspended under another version of the appliance.")
    if stored.carried.template != given.template or stored.carried.pending != list(given.pending):
        raise damaged("it does not fit its own description")
    stored.matches(program, limits)
    return stored
