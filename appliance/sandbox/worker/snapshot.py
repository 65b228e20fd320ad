"""A suspended step as bytes: what differs from the template, and what the host knew of the step.

Layout: magic, version, sha256 of all that follows, length of the head, the head (JSON), one zstd frame. The frame holds the
parts that the head lists by length (the runs of changed pages, the output, the parameters of calls) and then the changed pages,
XOR the template.
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
    """The step cannot go on from this snapshot; `failure` says why and what to do."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.failure = Failure("system", "SnapshotUnusable", message, code=code)


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
    system_failed: bool = False
    returned: bool = False
    output: bytes = b""
    raws: list[bytes] = field(default_factory=list)


_HEAD = [each.name for each in fields(Carried) if each.name not in ("output", "raws")]
_KINDS = {"str": str, "int": int, "float": float, "bool": bool}


def seal(carried: Carried, size: int, parts: list[int], total: int, frame: bytes) -> bytes:
    """The bytes of a snapshot: `size` of the memory, lengths of `parts` before the pages, `total` length of the frame unpacked."""
    head = {name: getattr(carried, name) for name in _HEAD} | {"size": size, "parts": parts, "bytes": total}
    text = json.dumps(head, separators=(",", ":")).encode()
    rest = b"".join((len(text).to_bytes(4, "big"), text, frame))
    return b"".join((MAGIC, bytes([VERSION]), hashlib.sha256(rest).digest(), rest))


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
            and self.parts[0] % RUN.size == 0
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


def check(given: Snapshot, program: Program, limits: Limits) -> Stored:
    """The snapshot read, if this program may go on from it under these limits; else Unusable."""
    stored = Stored.parse(given.data)
    if stored.carried.template != given.template or stored.carried.pending != list(given.pending):
        raise damaged("it does not fit its own description")
    stored.matches(program, limits)
    return stored
