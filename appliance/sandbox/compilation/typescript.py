"""Translates TypeScript to JavaScript with swc (npm @swc/wasm-typescript) under wasmtime.

The module uses wasm-bindgen: values that JavaScript would own are in a table here, and the imports below do with them what the
package's own JavaScript does. Stripping types preserves lines and columns; syntax that cannot be stripped (enum, namespace,
parameter property) is transformed and has a source map.
"""

from __future__ import annotations

import re
import struct
import threading
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import wasmtime

from appliance.sandbox.worker.engine import TICK_SECONDS, Ticker, configuration

MEMORY = 512 << 20


class Undefined:
    """JavaScript's undefined, as distinct from null (None)."""


UNDEFINED = Undefined()
_FIXED: tuple[Any, ...] = (UNDEFINED, None, True, False)
_RESERVED = 128


class SyntaxFault(Exception):
    """The source is not valid TypeScript; line and column count from 1."""

    def __init__(self, message: str, line: int = 1, column: int = 1) -> None:
        super().__init__(message)
        self.message, self.line, self.column = message, line, column


class Occupied(Exception):
    """Other translations used up the time; this one can be retried."""


class _Refused(Exception):
    """An error that swc threw."""

    def __init__(self, value: Any) -> None:
        super().__init__(str(value))
        self.value = value


@dataclass(frozen=True)
class Translation:
    code: str
    map: str | None = None


class _Table:
    """The values that swc refers to by number."""

    def __init__(self) -> None:
        self._values: list[Any] = [UNDEFINED] * _RESERVED + list(_FIXED)

    def __getitem__(self, index: int) -> Any:
        return self._values[index]

    def add(self, value: Any) -> int:
        self._values.append(value)
        return len(self._values) - 1

    def drop(self, index: int) -> None:
        if index >= _RESERVED + len(_FIXED):
            self._values[index] = UNDEFINED


class _Instance:
    """One fresh instance of swc, for a single translation."""

    def __init__(self, engine: wasmtime.Engine, module: wasmtime.Module, seconds: float) -> None:
        self._table = _Table()
        self._store = wasmtime.Store(engine)
        self._store.set_limits(memory_size=MEMORY)
        self._store.set_epoch_deadline(max(1, int(seconds / TICK_SECONDS)))
        self._linker = wasmtime.Linker(engine)
        for each in module.imports:
            name = str(each.name)
            self._linker.define_func(each.module, name, cast("wasmtime.FuncType", each.type), self._import(name))
        exports = self._linker.instantiate(self._store, module).exports(self._store)
        self._exports: Any = exports
        self._memory: Any = exports["memory"]

    def close(self) -> None:
        """Free the memory now: the imports refer to this object, so the garbage collector would free it much later."""
        self._linker.close()
        self._store.close()

    def _import(self, name: str) -> Callable[..., Any]:
        work: Callable[..., Any] | None = getattr(self, "_js_" + re.sub(r"_[0-9a-f]{16}$", "", name).strip("_"), None)

        def run(*arguments: Any) -> Any:
            if work is None:
                raise NotImplementedError(f"swc asked for {name}")
            value = work(*arguments)
            return int(value) if isinstance(value, bool) else value

        return run

    # ---- memory

    def _read(self, pointer: int, length: int) -> bytes:
        pointer &= 0xFFFFFFFF
        return bytes(self._memory.read(self._store, pointer, pointer + length))

    def _write(self, pointer: int, data: bytes) -> None:
        self._memory.write(self._store, bytearray(data), pointer & 0xFFFFFFFF)

    def _text(self, pointer: int, length: int) -> str:
        return self._read(pointer, length).decode("utf-8", "replace")

    def _give(self, target: int, text: str) -> None:
        data = text.encode("utf-8", "replace")
        pointer = self._exports["__wbindgen_export_2"](self._store, len(data), 1)
        if data:
            self._write(pointer, data)
        self._write(target, struct.pack("<II", pointer & 0xFFFFFFFF, len(data)))

    # ---- imports, with wasm-bindgen's names

    def _js_wbindgen_object_drop_ref(self, index: int) -> None:
        self._table.drop(index)

    def _js_wbindgen_object_clone_ref(self, index: int) -> int:
        return self._table.add(self._table[index])

    def _js_wbindgen_string_new(self, pointer: int, length: int) -> int:
        return self._table.add(self._text(pointer, length))

    def _js_wbindgen_error_new(self, pointer: int, length: int) -> int:
        return self._table.add({"message": self._text(pointer, length)})

    def _js_wbindgen_throw(self, pointer: int, length: int) -> int:
        raise _Refused({"message": self._text(pointer, length)})

    def _js_wbindgen_string_get(self, target: int, index: int) -> None:
        value = self._table[index]
        if isinstance(value, str):
            self._give(target, value)
        else:
            self._write(target, bytes(8))

    def _js_wbindgen_debug_string(self, target: int, index: int) -> None:
        self._give(target, repr(self._table[index]))

    def _js_wbindgen_boolean_get(self, index: int) -> int:
        value = self._table[index]
        return int(value) if isinstance(value, bool) else 2

    def _js_wbindgen_number_get(self, target: int, index: int) -> None:
        value = self._table[index]
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        self._write(target, struct.pack("<I4xd", int(is_number), float(value) if is_number else 0.0))

    def _js_wbindgen_number_new(self, value: float) -> int:
        return self._table.add(value)

    def _js_wbindgen_is_undefined(self, index: int) -> bool:
        return self._table[index] is UNDEFINED

    def _js_wbindgen_is_object(self, index: int) -> bool:
        return isinstance(self._table[index], (dict, list))

    def _js_wbindgen_is_string(self, index: int) -> bool:
        return isinstance(self._table[index], str)

    def _js_wbindgen_is_function(self, index: int) -> bool:
        return False

    def _js_wbindgen_is_bigint(self, index: int) -> bool:
        return False

    def _js_wbindgen_is_falsy(self, index: int) -> bool:
        value = self._table[index]
        return value is UNDEFINED or value is None or value is False or value in ("", 0)

    def _js_wbindgen_in(self, key: int, index: int) -> bool:
        return self._table[key] in self._table[index]

    def _js_wbindgen_jsval_eq(self, left: int, right: int) -> bool:
        return self._table[left] is self._table[right] or bool(self._table[left] == self._table[right])

    def _js_wbindgen_jsval_loose_eq(self, left: int, right: int) -> bool:
        one, other = self._table[left], self._table[right]
        if one in (None, UNDEFINED) or other in (None, UNDEFINED):
            return one in (None, UNDEFINED) and other in (None, UNDEFINED)
        return bool(one == other)

    def _js_wbindgen_memory(self) -> int:
        return self._table.add(object())

    def _js_wbg_buffer(self, index: int) -> int:
        return self._table.add(object())

    def _js_wbg_getwithrefkey(self, index: int, key: int) -> int:
        return self._table.add(self._table[index].get(self._table[key], UNDEFINED))

    def _js_wbg_get(self, index: int, at: int) -> int:
        return self._table.add(self._table[index][at])

    def _js_wbg_set(self, index: int, key: int, value: int) -> None:
        self._table[index][self._table[key]] = self._table[value]
        self._table.drop(key)
        self._table.drop(value)

    def _js_wbg_new(self, *ignored: int) -> int:
        return self._table.add({})

    def _js_wbg_entries(self, index: int) -> int:
        return self._table.add([[key, value] for key, value in self._table[index].items()])

    def _js_wbg_length(self, index: int) -> int:
        return len(self._table[index])

    def _js_wbg_isArray(self, index: int) -> bool:  # noqa: N802  the name is wasm-bindgen's
        return isinstance(self._table[index], list)

    def _js_wbg_instanceof_Uint8Array(self, index: int) -> bool:  # noqa: N802
        return False

    def _js_wbg_instanceof_ArrayBuffer(self, index: int) -> bool:  # noqa: N802
        return False

    def _js_wbg_instanceof_Map(self, index: int) -> bool:  # noqa: N802
        return False

    def _js_wbg_isSafeInteger(self, index: int) -> bool:  # noqa: N802
        return False

    def translate(self, source: str, options: dict[str, Any]) -> Translation:
        move = self._exports["__wbindgen_add_to_stack_pointer"]
        answer = move(self._store, -16)
        self._exports["transformSync"](self._store, answer, self._table.add(source), self._table.add(options))
        value, thrown, failed = struct.unpack("<III", self._read(answer, 12))
        if failed:
            raise _Refused(self._table[thrown])
        result = self._table[value]
        source_map = result.get("map", UNDEFINED)
        return Translation(result["code"], source_map if isinstance(source_map, str) else None)


class TypeScript:
    """The compiled swc of this process; performs one translation at a time."""

    def __init__(self, path: Path, ticker: Ticker) -> None:
        self._lock = threading.Lock()
        self._ticker = ticker
        self._engine = wasmtime.Engine(configuration())
        self._module = wasmtime.Module.deserialize_file(self._engine, str(path))
        ticker.add(self._engine)

    def translate(self, source: str, name: str, end: float) -> Translation:
        """Translate one file to JavaScript by the monotonic time `end`.

        Raises SyntaxFault if it is not valid TypeScript or takes longer, Occupied if other files used up the time.
        """
        if not self._lock.acquire(timeout=max(0.0, end - time.monotonic())):
            raise Occupied
        try:
            return self._translate(source, name, end)
        finally:
            self._lock.release()

    def _translate(self, source: str, name: str, end: float) -> Translation:
        try:
            return self._run(source, {"mode": "strip-only", "filename": name, "module": True}, end)
        except _Refused as refused:
            if not (isinstance(refused.value, dict) and refused.value.get("code") == "UnsupportedSyntax"):
                raise _syntax_fault(refused.value) from None
        try:
            return self._run(source, {"mode": "transform", "filename": name, "module": True, "sourceMap": True}, end)
        except _Refused as refused:
            raise _syntax_fault(refused.value) from None

    def _run(self, source: str, options: dict[str, Any], end: float) -> Translation:
        seconds = end - time.monotonic()
        try:
            with self._ticker, closing(_Instance(self._engine, self._module, seconds)) as instance:
                return instance.translate(source, options)
        except (wasmtime.Trap, wasmtime.WasmtimeError) as fault:
            raise SyntaxFault(_explain(str(fault))) from None


def _explain(text: str) -> str:
    if "interrupt" in text:
        return "The file takes too long to compile; split it"
    return "The file is nested too deeply or too large to compile; split it"


def _syntax_fault(value: Any) -> SyntaxFault:
    """Convert swc's error object {code, message, snippet, filename, startLine, startColumn, …}."""
    if not isinstance(value, dict):
        return SyntaxFault(str(value))
    message = str(value.get("message", "The file is not TypeScript"))
    line, column = value.get("startLine", 1), value.get("startColumn", 0)
    return SyntaxFault(message, int(line), int(column) + 1)
