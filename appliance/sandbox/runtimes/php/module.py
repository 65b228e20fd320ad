"""The parts of a WebAssembly binary (core specification 3, § 5) that PHP's preparation reads and rewrites."""

from __future__ import annotations

from dataclasses import dataclass

from appliance.sandbox.runtimes.wasmfile import MalformedWasm, read_unsigned, signed, unsigned

FUNCTION, GLOBAL = 0, 3
I32_CONST, END = 0x41, 0x0B
_NUMBERS = {0x7F: "i32", 0x7E: "i64", 0x7D: "f32", 0x7C: "f64"}
_REFERENCES = (0x63, 0x64)
# Instructions of constant expressions: one number follows in LEB128, or this many bytes.
_LEB, _FIXED = (0x41, 0x42, 0x23, 0xD0, 0xD2), {0x43: 4, 0x44: 8}


@dataclass(frozen=True)
class Signature:
    parameters: tuple[str, ...]
    results: tuple[str, ...]


@dataclass(frozen=True)
class ImportedFunction:
    space: str
    name: str
    type: int


@dataclass(frozen=True)
class Variable:
    """A global: `raw` is all of it, `value` what it begins with when that is an i32 constant."""

    mutable: bool
    raw: bytes
    value: int | None


def _name(data: bytes, at: int) -> tuple[str, int]:
    length, at = read_unsigned(data, at)
    return data[at : at + length].decode(), at + length


def _kinds(body: bytes, at: int) -> tuple[tuple[str, ...], int]:
    count, at = read_unsigned(body, at)
    kinds = []
    for _ in range(count):
        if body[at] in _REFERENCES:
            _, at = read_unsigned(body, at + 1)
            kinds.append("reference")
            continue
        kinds.append(_NUMBERS.get(body[at], "reference"))
        at += 1
    return tuple(kinds), at


def read_types(body: bytes) -> list[Signature]:
    """The type section; only function types are understood."""
    count, at = read_unsigned(body, 0)
    out = []
    for _ in range(count):
        if body[at] != 0x60:  # func
            raise MalformedWasm("a type is not that of a function")
        parameters, at = _kinds(body, at + 1)
        results, at = _kinds(body, at)
        out.append(Signature(parameters, results))
    return out


def read_imports(body: bytes) -> list[ImportedFunction]:
    count, at = read_unsigned(body, 0)
    out = []
    for _ in range(count):
        space, at = _name(body, at)
        name, at = _name(body, at)
        if body[at] != FUNCTION:
            raise MalformedWasm(f"{space}.{name} is imported and no function")
        kind, at = read_unsigned(body, at + 1)
        out.append(ImportedFunction(space, name, kind))
    return out


def write_imports(imports: list[ImportedFunction]) -> bytes:
    out = [unsigned(len(imports))]
    for each in imports:
        space, name = each.space.encode(), each.name.encode()
        out.append(unsigned(len(space)) + space + unsigned(len(name)) + name + bytes([FUNCTION]) + unsigned(each.type))
    return b"".join(out)


def _signed_at(data: bytes, at: int) -> int:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value - (1 << shift) if byte & 0x40 else value


def read_globals(body: bytes) -> list[Variable]:
    count, at = read_unsigned(body, 0)
    out = []
    for _ in range(count):
        start = at
        _, at = read_unsigned(body, at + 1) if body[at] in _REFERENCES else (0, at + 1)
        mutable, opcode, at = body[at] == 1, body[at + 1], at + 2
        value = _signed_at(body, at) if opcode == I32_CONST else None
        if opcode in _LEB:
            _, at = read_unsigned(body, at)
        elif opcode in _FIXED:
            at += _FIXED[opcode]
        else:
            raise MalformedWasm(f"instruction {opcode:#x} in a constant expression is not understood")
        if body[at] != END:
            raise MalformedWasm("a constant expression of more than one instruction is not understood")
        at += 1
        out.append(Variable(mutable, body[start:at], value))
    return out


def write_globals(variables: list[Variable], values: dict[int, int]) -> bytes:
    """The section, with other first values for some i32 globals."""
    out = [unsigned(len(variables))]
    for number, each in enumerate(variables):
        if number not in values:
            out.append(each.raw)
            continue
        value = values[number]
        constant = signed(value - (1 << 32) if value >> 31 else value)
        out.append(each.raw[:2] + bytes([I32_CONST]) + constant + bytes([END]))
    return b"".join(out)
