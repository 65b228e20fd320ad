"""Reads and writes the sections of a WebAssembly binary (core specification 2, § 5), to pre-initialise one."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import chain

MAGIC = b"\0asm\1\0\0\0"
CUSTOM, TYPE, IMPORT, FUNCTION, MEMORY, GLOBAL, EXPORT, START, CODE, DATA, DATA_COUNT = (
    0,
    1,
    2,
    3,
    5,
    6,
    7,
    8,
    10,
    11,
    12,
)
PAGE = 65536
FUNCTION_EXPORT = 0


class MalformedWasm(ValueError):
    """The binary is not one that this module understands."""


@dataclass(frozen=True)
class Section:
    id: int
    body: bytes


@dataclass(frozen=True)
class Export:
    name: str
    kind: int
    index: int


def read_unsigned(data: bytes, at: int) -> tuple[int, int]:
    """Decode an unsigned LEB128 number at `at`; answers the number and the position after it."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at


def unsigned(value: int) -> bytes:
    """Encode `value` as unsigned LEB128."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def signed(value: int) -> bytes:
    """Encode `value` as signed LEB128."""
    out = bytearray()
    while True:
        byte = value & 0x7F
        value >>= 7
        if (value == 0 and not byte & 0x40) or (value == -1 and byte & 0x40):
            out.append(byte)
            return bytes(out)
        out.append(byte | 0x80)


def read_sections(binary: bytes) -> list[Section]:
    if binary[:8] != MAGIC:
        raise MalformedWasm("the file is not a WebAssembly 1 binary")
    sections, at = [], 8
    while at < len(binary):
        size, body = read_unsigned(binary, at + 1)
        sections.append(Section(binary[at], bytes(binary[body : body + size])))
        at = body + size
    return sections


def write_sections(sections: list[Section]) -> bytes:
    parts = ((bytes([each.id]), unsigned(len(each.body)), each.body) for each in sections)
    return b"".join([MAGIC, *chain.from_iterable(parts)])


def with_custom(binary: bytes, name: str, data: bytes) -> bytes:
    """The module with a custom section at its end, which no engine looks at."""
    label = name.encode()
    return binary + write_sections([Section(CUSTOM, unsigned(len(label)) + label + data)])[len(MAGIC) :]


def read_custom(binary: bytes, name: str) -> bytes:
    """What `with_custom` put there; MalformedWasm when it is not."""
    label = name.encode()
    start = unsigned(len(label)) + label
    for section in read_sections(binary):
        if section.id == CUSTOM and section.body.startswith(start):
            return section.body[len(start) :]
    raise MalformedWasm(f"there is no section {name}")


def read_exports(body: bytes) -> list[Export]:
    count, at = read_unsigned(body, 0)
    exports = []
    for _ in range(count):
        length, at = read_unsigned(body, at)
        name = body[at : at + length].decode()
        kind = body[at + length]
        index, at = read_unsigned(body, at + length + 1)
        exports.append(Export(name, kind, index))
    return exports


def write_exports(exports: list[Export]) -> bytes:
    out = [unsigned(len(exports))]
    for each in exports:
        name = each.name.encode()
        out.append(unsigned(len(name)) + name + bytes([each.kind]) + unsigned(each.index))
    return b"".join(out)


def _skip_constant(body: bytes, at: int) -> int:
    """The position after a constant expression of one numeric instruction."""
    opcode = body[at]
    if opcode in (0x41, 0x42):
        _, at = read_unsigned(body, at + 1)
    elif opcode == 0x44:
        at += 9
    elif opcode == 0x43:
        at += 5
    else:
        raise MalformedWasm(f"instruction {opcode:#x} in a constant expression is not understood")
    if body[at] != 0x0B:
        raise MalformedWasm("a constant expression of more than one instruction is not understood")
    return at + 1


def set_global(body: bytes, index: int, value: int) -> bytes:
    """The global section with the initial value of i32 global `index` replaced."""
    count, at = read_unsigned(body, 0)
    for number in range(count):
        after = _skip_constant(body, at + 2)
        if number == index:
            return body[: at + 2] + b"\x41" + signed(value - (1 << 32) if value >> 31 else value) + b"\x0b" + body[after:]
        at = after
    raise MalformedWasm(f"there is no global {index}")


def _memory_with(body: bytes, pages: int) -> bytes:
    count, at = read_unsigned(body, 0)
    flags, at = read_unsigned(body, at)
    least, at = read_unsigned(body, at)
    if count != 1:
        raise MalformedWasm("exactly one memory is understood")
    return unsigned(1) + unsigned(flags) + unsigned(max(least, pages)) + body[at:]


_NOT_ZERO = re.compile(rb"[^\0]")


def _data_segments(memory: bytes, gap: int) -> list[tuple[int, int]]:
    """Where the stretches of `memory` that are not zero begin and end; those closer than `gap` bytes are one."""
    segments = []
    begin = _NOT_ZERO.search(memory)
    while begin is not None:
        end = memory.find(bytes(gap), begin.start())
        segments.append((begin.start(), len(memory) if end < 0 else end))
        begin = _NOT_ZERO.search(memory, segments[-1][1])
    return segments


def preinitialise(binary: bytes, memory: bytes, global_values: dict[int, int], keep: frozenset[str], gap: int = 64) -> bytes:
    """A module that starts with `memory` and `global_values`; of its functions only `keep` stay exported."""
    segments = _data_segments(memory, gap)
    out = []
    for section in read_sections(binary):
        body = section.body
        if section.id == START:
            raise MalformedWasm("a module with a start function would initialise itself twice")
        if section.id == CUSTOM:
            continue
        if section.id == MEMORY:
            body = _memory_with(body, len(memory) // PAGE)
        elif section.id == GLOBAL:
            for index, value in global_values.items():
                body = set_global(body, index, value)
        elif section.id == EXPORT:
            body = write_exports([each for each in read_exports(body) if each.kind != FUNCTION_EXPORT or each.name in keep])
        elif section.id == DATA_COUNT:
            body = unsigned(len(segments))
        elif section.id == DATA:
            whole = memoryview(memory)  # a copy of each stretch would take as much again
            parts: list[bytes | memoryview] = [unsigned(len(segments))]
            for begin, end in segments:
                parts += [b"\0\x41" + signed(begin) + b"\x0b" + unsigned(end - begin), whole[begin:end]]
            body = b"".join(parts)
        out.append(Section(section.id, body))
    return write_sections(out)
