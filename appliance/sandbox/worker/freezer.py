"""Serializes a suspended step and restores it: the pages of its memory that differ from the template."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Self

import zstandard

from appliance.sandbox.worker.engine import Engine
from appliance.sandbox.worker.instance import Stopped
from appliance.sandbox.worker.snapshot import PAGE, RUN, WINDOW_BYTES, HostState, ParsedSnapshot, damaged, seal
from appliance.sandbox.worker.vm import VM

CHUNK = 1 << 20
LEVEL = 3


class TooLarge(Exception):
    """The step's state is larger than a snapshot may be."""


@dataclass(frozen=True)
class Image:
    """The memory of a fresh instance; the unused stack and the mailbox below `floor` are not part of snapshots."""

    template: str
    memory: bytes
    floor: int

    @classmethod
    def of(cls, engine: Engine, template: str) -> Self:
        with VM(engine, NOBODY) as vm:
            memory, floor = vm.snapshot()
        if floor % PAGE:
            raise RuntimeError("the stack of the template does not start at a page boundary")
        return cls(template, memory, floor)

    def part(self, at: int, length: int) -> bytes:
        return self.memory[at : at + length].ljust(length, b"\0")


class _IdleOwner:
    """The owner of an instance that never runs code."""

    def on_message(self, message: bytes) -> bytes | None:
        raise RuntimeError("this instance must not run code")

    def read_clock(self) -> int:
        return 0

    def module_source(self, name: str) -> str | None:
        return None

    def resolve_module(self, importer: str, specifier: str) -> str:
        return specifier

    def overdue(self) -> str | None:
        return None


NOBODY = _IdleOwner()


# ---- writing


def freeze(vm: VM, image: Image, carried: HostState, limit: int) -> bytes:
    """Serialize a suspended step; raises TooLarge beyond `limit` bytes, Stopped if the step's time runs out."""
    size, pointer = vm.measure(), vm.stack_pointer()
    if pointer != image.floor:
        raise RuntimeError("the step is not at rest")
    runs = _find_changed_runs(vm, image, size)
    parts = [b"".join(RUN.pack(*each) for each in runs), carried.output, *carried.raws]
    total = sum(map(len, parts)) + sum(count for _, count in runs) * PAGE
    pressed = zstandard.ZstdCompressor(level=LEVEL).compressobj(size=total)
    out, length = [], 0
    for each in (*parts, *_differences(vm, image, runs)):
        out.append(pressed.compress(each))
        length += len(out[-1])
        if length > limit:
            raise TooLarge
    out.append(pressed.flush())
    data = seal(carried, size, [len(each) for each in parts], total, b"".join(out))
    if len(data) > limit:
        raise TooLarge
    return data


def _check_time(vm: VM) -> None:
    reason = vm.overdue()
    if reason is not None:
        raise Stopped(reason)


def _find_changed_runs(vm: VM, image: Image, size: int) -> list[list[int]]:
    """The runs of pages that differ from the template, as first page and number of pages."""
    runs: list[list[int]] = []
    for at in range(image.floor, size, CHUNK):
        _check_time(vm)
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


def _chunks(runs: list[list[int]]) -> Iterator[tuple[int, int]]:
    """The address and length of each chunk to copy."""
    for page, count in runs:
        for at in range(page * PAGE, (page + count) * PAGE, CHUNK):
            yield at, min(CHUNK, (page + count) * PAGE - at)


def _differences(vm: VM, image: Image, runs: list[list[int]]) -> Iterator[bytes]:
    for at, length in _chunks(runs):
        _check_time(vm)
        yield _xor(vm.read(at, length), image, at)


def _xor(data: bytes, image: Image, at: int) -> bytes:
    then = image.memory[at : at + len(data)]
    if not then:
        return data
    return (int.from_bytes(data, "little") ^ int.from_bytes(then, "little")).to_bytes(len(data), "little")


def thaw(stored: ParsedSnapshot, vm: VM, image: Image) -> HostState:
    """Restore a suspended step into a fresh instance; returns its complete host state."""
    if stored.carried.template != image.template:
        raise RuntimeError("the snapshot belongs to another template")
    reader = zstandard.ZstdDecompressor(max_window_size=WINDOW_BYTES).stream_reader(stored.frame)
    try:
        parts = [_read_exactly(reader, length) for length in stored.parts]
        runs = _parse_runs(stored, parts[0], image.floor)
        if not vm.grow_to(stored.size):
            raise damaged("its memory is larger than the step may have")
        for at, length in _chunks(runs):
            _check_time(vm)
            vm.write(at, _xor(_read_exactly(reader, length), image, at))
    except zstandard.ZstdError as fault:
        raise damaged("it cannot be unpacked") from fault
    return replace(stored.carried, output=parts[1], raws=parts[2:])


def _parse_runs(stored: ParsedSnapshot, packed: bytes, floor: int) -> list[list[int]]:
    """Unpack and validate the runs: ascending, within the memory, and of the total length that the frame declares."""
    runs, free = [list(each) for each in RUN.iter_unpack(packed)], floor // PAGE
    for page, count in runs:
        if page < free or count < 1:
            raise damaged("its pages overlap")
        free = page + count
    if free * PAGE > stored.size or sum(count for _, count in runs) * PAGE != stored.total - sum(stored.parts):
        raise damaged("its pages do not fit its size")
    return runs


def _read_exactly(reader: Any, length: int) -> bytes:
    data: bytes = reader.read(length) if length else b""
    if len(data) != length:
        raise damaged("it ends too early")
    return data
