"""The format of a suspended step: its difference from the template, and the host's state of the step.

Layout: magic, version, SHA-256 of everything that follows, length of the head, the head (JSON), one zstd frame. The frame
contains the parts whose lengths the head lists (the runs of changed pages, the output, the parameters of calls), followed by
the changed pages XOR the template.
"""

from __future__ import annotations

import hashlib
import json
import struct
from dataclasses import dataclass, field, fields
from typing import Any, Self

import zstandard

from appliance.sandbox.outcome import Failure, Snapshot
from appliance.sandbox.program import Limits, Program

MAGIC, VERSION = b"GOSVM", 1
PAGE, WASM_PAGE, WINDOW_BYTES = 4096, 65536, 8 << 20
PARTS_BYTES = 128 << 20
_START = struct.Struct(">5sB32sI")
RUN = struct.Struct("<II")


class Unusable(Exception):
    """The step cannot resume from this snapshot; `failure` says why and what to do."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.failure = Failure("system", "SnapshotUnusable", message, code=code)


def damaged(what: str) -> Unusable:
    text = f"The stored state of this step is damaged ({what}); it cannot go on from there, retry the step from its start."
    return Unusable("snapshot_damaged", text)


@dataclass(frozen=True)
class HostState:
    """The host's state of a suspended step. Figures count from the step's start, over all visits.

    `pending`: ids of unanswered calls; `calls`: id and method of calls not yet sent to the appliance, with parameters in `raws`.
    `clock_count`: number of recorded clock values; `clock_last`: the last one. `returned`: whether `output` is already set.
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
    system_failed: bool = False
    returned: bool = False
    output: bytes = b""
    raws: list[bytes] = field(default_factory=list)


_HEAD = [each.name for each in fields(HostState) if each.name not in ("output", "raws")]
_KINDS = {"str": str, "int": int, "float": float, "bool": bool}


def seal(carried: HostState, size: int, parts: list[int], total: int, frame: bytes) -> bytes:
    """The bytes of a snapshot; `size` is that of the memory, `parts` are lengths, `total` that of the uncompressed frame."""
    head = {name: getattr(carried, name) for name in _HEAD} | {"size": size, "parts": parts, "bytes": total}
    text = json.dumps(head, separators=(",", ":")).encode()
    rest = b"".join((len(text).to_bytes(4, "big"), text, frame))
    return b"".join((MAGIC, bytes([VERSION]), hashlib.sha256(rest).digest(), rest))


@dataclass(frozen=True)
class ParsedSnapshot:
    """A parsed snapshot with a verified checksum; its frame is still compressed."""

    carried: HostState
    size: int
    parts: list[int]
    total: int
    frame: bytes

    @classmethod
    def parse(cls, data: bytes) -> Self:
        """Parse a snapshot; raises Unusable unless it is exactly what `freeze` wrote."""
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
            carried = HostState(**{name: _typed(name, head[name]) for name in _HEAD})
            lengths = [_length(each) for each in head["parts"]]
            stored = cls(carried, _length(head["size"]), lengths, _length(head["bytes"]), data[end:])
            stored._check()
        except (ValueError, KeyError, TypeError, RecursionError, zstandard.ZstdError) as fault:
            raise damaged("its head is not understood") from fault
        return stored

    def _check(self) -> None:
        """Raise ValueError if the lengths contradict each other; checked before anything is decompressed."""
        frame = zstandard.get_frame_parameters(self.frame)
        least = sum(self.parts)
        fits = (
            len(self.parts) == 2 + len(self.carried.calls)
            and least <= PARTS_BYTES
            and self.parts[0] % RUN.size == 0
            and least <= self.total <= least + self.size
            and frame.content_size == self.total
            and frame.window_size <= WINDOW_BYTES
            and self.size % WASM_PAGE == 0
        )
        if not fits:
            raise ValueError("the lengths contradict each other")

    def matches(self, program: Program, limits: Limits) -> None:
        """Raise Unusable if the program (or its tenant) or the memory limit is not that of the suspended step."""
        if self.carried.program != program.digest:
            text = "The code of this step is not the code that was suspended; retry the step from its start."
            raise Unusable("snapshot_program_changed", text)
        if self.carried.memory_mb != limits.memory_mb:
            text = f"The step was suspended with {self.carried.memory_mb} MB of memory and cannot go on with {limits.memory_mb} MB"
            raise Unusable("snapshot_program_changed", f"{text}; set limits.memory_mb back, or retry the step from its start.")


def _length(value: Any) -> int:
    if not isinstance(value, int) or value < 0:
        raise TypeError("a length must be a non-negative integer")
    return value


def _typed(name: str, value: Any) -> Any:
    kind = str(HostState.__annotations__[name])
    expected = _KINDS.get(kind, list)
    if not isinstance(value, (int, float) if expected is float else expected):
        raise TypeError(f"{name} must be of type {kind}")
    return value


def check(snapshot: Snapshot, program: Program, limits: Limits) -> ParsedSnapshot:
    """Parse the snapshot; raises Unusable if this program cannot resume from it under these limits."""
    stored = ParsedSnapshot.parse(snapshot.data)
    if stored.carried.template != snapshot.template or stored.carried.pending != list(snapshot.pending):
        raise damaged("it does not fit its own description")
    stored.matches(program, limits)
    return stored
