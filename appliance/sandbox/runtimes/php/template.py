"""Makes PHP's template: started once, with the prelude run, frozen into a module that goes on from there."""

from __future__ import annotations

import struct
from pathlib import Path

import wasmtime

from appliance.sandbox import php
from appliance.sandbox.php.engine import PhpEngine
from appliance.sandbox.php.files import Files
from appliance.sandbox.php.machine import Machine, PhpBoot
from appliance.sandbox.runtimes import wasmfile
from appliance.sandbox.runtimes.php.module import GLOBAL, read_globals, write_globals
from appliance.sandbox.runtimes.php.translate import ENTRY
from appliance.sandbox.runtimes.wasmfile import Export, MalformedWasm, Section, signed, unsigned

SOURCES = Path(php.__file__).parent
HEAP = 64 << 20
PAGE = 4096
# Extensions that reach files, networks and databases which a step does not have, or that only take up memory.
LEFT_OUT = (
    *("curl", "dns_polyfill", "imagick", "mysqli", "mysqlnd", "opcache", "pdo", "pdo_mysql", "pdo_sqlite", "phar", "session"),
    *("soap", "sqlite3"),
)
# Extensions that PHP's build lists first; there the list is found.
FIRST = ("date", "libxml")
# How many extensions the list may have beside those whose data is named after them, as PHP's core is not.
UNNAMED = 4
MEMORY_LIMIT = b"memory_limit"


class _Booting:
    """The owner of the instance that becomes the template: it grants nothing."""

    def overdue(self) -> str | None:
        return None

    def on_message(self, message: bytes) -> bytes | None:
        raise RuntimeError(f"PHP sent {message!r} while the template was made")

    def on_output(self, stream: int, data: bytes) -> None:
        raise RuntimeError(f"PHP said {data!r} while the template was made")

    def read_clock(self) -> int:
        return 0


def make_template(translated: bytes) -> tuple[bytes, PhpBoot]:
    """The pre-initialised module and where to find things in it."""
    sections = {each.id: each for each in wasmfile.read_sections(translated)}
    exports = wasmfile.read_exports(sections[wasmfile.EXPORT].body)
    variables = read_globals(sections[wasmfile.GLOBAL].body)
    indexes = {each.name: each.index for each in exports if each.kind == GLOBAL}
    entries = {name.removesuffix(ENTRY): variables[index].value or 0 for name, index in indexes.items() if name.endswith(ENTRY)}
    mutable = {name: index for name, index in indexes.items() if variables[index].mutable}
    engine = PhpEngine(lambda wasm: wasmtime.Module(wasm, translated))
    # No random numbers: whatever PHP seeds now would be every step's seed.
    files = Files({"/php.ini": (SOURCES / "php.ini").read_bytes()}, None)
    with Machine(engine, _Booting(), HEAP, files) as machine:
        machine.call("__wasm_call_ctors")
        _leave_out(machine, entries)
        boot = _boot(machine)
        if not files.is_untouched:
            raise RuntimeError("PHP left files open while the template was made")
        values = {index: machine.global_value(name) for name, index in mutable.items()}
        memory = machine.read(0, machine.measure())
    return _freeze(wasmfile.read_sections(translated), memory, values, exports), boot


def _leave_out(machine: Machine, entries: dict[str, int]) -> None:
    """Strike extensions from the list that PHP starts, before it does."""
    memory = machine.read(0, machine.measure())
    beginning = struct.pack("<II", *(entries[each] for each in FIRST))
    at = memory.find(beginning)
    if at < 0 or memory.find(beginning, at + 1) >= 0:
        raise MalformedWasm("the list of PHP's extensions is not where it is expected")
    names, left_out = {address: name for name, address in entries.items()}, set(LEFT_OUT)
    for place in range(at, at + 4 * (len(entries) + UNNAMED), 4):
        name = names.get(struct.unpack_from("<I", memory, place)[0])
        if name in left_out:
            machine.write(place, bytes(4))
            left_out.discard(name)
    if left_out:
        raise MalformedWasm(f"PHP has no extension {', '.join(sorted(left_out))}; is it the version that the lock names?")


def _boot(machine: Machine) -> PhpBoot:
    machine.call("wasm_set_phpini_path", machine.allocate(b"/php.ini"))
    if machine.call("php_wasm_init") or machine.call("php_request_startup"):
        raise RuntimeError("PHP did not start")
    prelude = machine.script("/prelude.php", (SOURCES / "prelude.php").read_bytes())
    machine.call("php_execute_script", prelude)
    name = machine.allocate(_zend_string(MEMORY_LIMIT))
    boot = PhpBoot(machine.script("/main.php", b"<?php \\Gos\\main();"), name)
    machine.limit_memory(boot)
    return boot


def _zend_string(text: bytes) -> bytes:
    """zend_string of PHP 8.4 on wasm32: references, kind (persistent), no hash yet, length, text."""
    persistent = 1 << 7
    return struct.pack("<IIQI", 1, 0x16 | persistent, 0, len(text)) + text


def _freeze(sections: list[Section], memory: bytes, values: dict[int, int], exports: list[Export]) -> bytes:
    """The module with all of its memory as one stretch of data: wasmtime maps that, and copies only what a step writes."""
    data = memory.rstrip(b"\0")
    data += bytes(-len(data) % PAGE)
    remaining = [each for each in exports if each.kind != GLOBAL]
    changed = {
        wasmfile.MEMORY: _memory(len(memory) // wasmfile.PAGE, sections),
        wasmfile.GLOBAL: write_globals(read_globals(_body(sections, wasmfile.GLOBAL)), values),
        wasmfile.EXPORT: wasmfile.write_exports(remaining),
        wasmfile.DATA_COUNT: unsigned(1),
        wasmfile.DATA: unsigned(1) + b"\0\x41" + signed(0) + b"\x0b" + unsigned(len(data)) + data,
    }
    if any(each.id == wasmfile.START for each in sections):
        raise MalformedWasm("a module with a start function would initialise itself twice")
    return wasmfile.write_sections([Section(each.id, changed.get(each.id, each.body)) for each in sections])


def _body(sections: list[Section], kind: int) -> bytes:
    return next(each.body for each in sections if each.id == kind)


def _memory(pages: int, sections: list[Section]) -> bytes:
    """The memory section with `pages` to begin with, its other limits as they were."""
    body = _body(sections, wasmfile.MEMORY)
    _, at = wasmfile.read_unsigned(body, 2)
    return body[:2] + unsigned(pages) + body[at:]
