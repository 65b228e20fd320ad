"""Adds to the QuickJS module the few functions that make one step a handful of crossings between host and guest."""

from __future__ import annotations

from appliance.sandbox.runtimes import wasmfile
from appliance.sandbox.runtimes.wasmfile import Export, MalformedWasm, Section, signed, unsigned

I32 = 0x7F
END, LOOP, IF, BR, RETURN, EQZ, LT_S = b"\x0b", b"\x03\x40", b"\x04\x40", b"\x0c", b"\x0f", b"\x45", b"\x48"
STORE, LOAD = b"\x36\x02", b"\x28\x02"


def _get(local: int) -> bytes:
    return b"\x20" + unsigned(local)


def _set(local: int) -> bytes:
    return b"\x21" + unsigned(local)


def _const(value: int) -> bytes:
    return b"\x41" + signed(value)


class _Functions:
    """Calls by export name."""

    def __init__(self, exports: list[Export]) -> None:
        self._index = {each.name: each.index for each in exports if each.kind == wasmfile.FUNCTION_EXPORT}

    def __call__(self, name: str) -> bytes:
        if name not in self._index:
            raise MalformedWasm(f"the module does not export {name}")
        return b"\x10" + unsigned(self._index[name])


def _drain(call: _Functions) -> bytes:
    """x_drain() -> 0 when the job queue is empty, -1 when a job threw."""
    leave_when_idle = call("qjs_is_job_pending") + EQZ + IF + _const(0) + RETURN + END
    leave_when_thrown = call("qjs_execute_pending_job") + _const(0) + LT_S + IF + _const(-1) + RETURN + END
    return LOOP + leave_when_idle + leave_when_thrown + BR + unsigned(0) + END + b"\x00"


def _finish(call: _Functions, drain: int) -> bytes:
    """With the call's answer in local 0: 1 when it threw, else what draining the jobs answers."""
    return (
        _get(0)
        + call("qjs_is_exception")
        + IF
        + _const(1)
        + RETURN
        + END
        + _get(0)
        + call("qjs_free_value")
        + b"\x10"
        + unsigned(drain)
    )


def _message(call: _Functions, drain: int) -> bytes:
    """x_msg(function, undefined, text, length, argv): function(text), then all jobs."""
    argument = _get(4) + _get(2) + _get(3) + call("qjs_new_string") + STORE + unsigned(0)
    run = _get(0) + _get(1) + _const(1) + _get(4) + call("qjs_call") + _set(0)
    release = _get(4) + LOAD + unsigned(0) + call("qjs_free_value")
    return argument + run + release + _finish(call, drain)


def _start(call: _Functions, drain: int) -> bytes:
    """x_start(function, undefined, promise, text, length, argv): function(promise, text), then all jobs."""
    first = _get(5) + _get(2) + STORE + unsigned(0)
    second = _get(5) + _get(3) + _get(4) + call("qjs_new_string") + STORE + unsigned(4)
    run = _get(0) + _get(1) + _const(2) + _get(5) + call("qjs_call") + _set(0)
    return first + second + run + _finish(call, drain)


def _grow(body: bytes, more: list[bytes]) -> bytes:
    """A vector section with `more` elements at its end."""
    count, at = wasmfile.read_unsigned(body, 0)
    return unsigned(count + len(more)) + body[at:] + b"".join(more)


def add_entrypoints(binary: bytes) -> bytes:
    """The module with x_drain, x_msg and x_start exported beside its own functions."""
    sections = {each.id: each.body for each in wasmfile.read_sections(binary)}
    exports = wasmfile.read_exports(sections[wasmfile.EXPORT])
    call = _Functions(exports)
    imported, _ = wasmfile.read_unsigned(sections[wasmfile.IMPORT], 0)
    own, _ = wasmfile.read_unsigned(sections[wasmfile.FUNCTION], 0)
    types, _ = wasmfile.read_unsigned(sections[wasmfile.TYPE], 0)
    first = imported + own
    bodies = [_drain(call), _message(call, first), _start(call, first)]
    coded = [b"\0" + each + END for each in bodies]
    added = {
        wasmfile.TYPE: [b"\x60" + unsigned(count) + bytes([I32]) * count + b"\x01" + bytes([I32]) for count in (0, 5, 6)],
        wasmfile.FUNCTION: [unsigned(types + number) for number in range(3)],
        wasmfile.CODE: [unsigned(len(each)) + each for each in coded],
    }
    names = [Export(name, wasmfile.FUNCTION_EXPORT, first + number) for number, name in enumerate(("x_drain", "x_msg", "x_start"))]
    out = []
    for section in wasmfile.read_sections(binary):
        body = section.body
        if section.id in added:
            body = _grow(body, added[section.id])
        elif section.id == wasmfile.EXPORT:
            body = wasmfile.write_exports(exports + names)
        out.append(Section(section.id, body))
    return wasmfile.write_sections(out)
