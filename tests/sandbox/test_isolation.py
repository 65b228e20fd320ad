"""Steps see nothing of each other and nothing of the machine."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from appliance.sandbox import Outcome, Pool, Program

Run = Callable[..., Outcome]
Make = Callable[..., Program]

ECMASCRIPT = {
    *("AggregateError", "Array", "ArrayBuffer", "AsyncDisposableStack", "BigInt", "BigInt64Array", "BigUint64Array", "Boolean"),
    *("DataView", "Date", "DisposableStack", "Error", "EvalError", "FinalizationRegistry", "Float16Array", "Float32Array"),
    *("Float64Array", "Function", "Infinity", "Int16Array", "Int32Array", "Int8Array", "Iterator", "JSON", "Map", "Math", "NaN"),
    *("Number", "Object", "Promise", "Proxy", "RangeError", "ReferenceError", "Reflect", "RegExp", "Set", "SharedArrayBuffer"),
    *("String", "SuppressedError", "Symbol", "SyntaxError", "TypeError", "URIError", "Uint16Array", "Uint32Array", "Uint8Array"),
    *("Uint8ClampedArray", "WeakMap", "WeakRef", "WeakSet", "decodeURI", "decodeURIComponent", "encodeURI", "encodeURIComponent"),
    *("escape", "eval", "globalThis", "isFinite", "isNaN", "parseFloat", "parseInt", "undefined", "unescape"),
}
OURS = {"console", "performance", "queueMicrotask", "atob", "btoa", "DOMException", "InternalError"}
REACHING_NOTHING = {
    *("AbortController", "AbortSignal", "Blob", "Crypto", "Event", "EventTarget", "Intl", "TextDecoder", "TextEncoder", "URL"),
    *("URLSearchParams", "crypto", "structuredClone"),
    *(f"{verb}{what}" for verb in ("set", "clear") for what in ("Timeout", "Interval", "Immediate")),
}


def test_the_global_object_holds_the_language_and_a_console(run: Run) -> None:
    assert set(run("return Object.getOwnPropertyNames(globalThis)").output) <= ECMASCRIPT | OURS | REACHING_NOTHING


def test_a_polluted_prototype_is_gone_in_the_next_step(run: Run) -> None:
    body = "(Object.prototype as any).polluted = 1; JSON.stringify = () => 'hacked'; (Promise.prototype as any).then = null;"
    assert run(body + "(Array.prototype as any).map = null; Map.prototype.get = () => { throw 1 }; return {a: 1}").output == {
        "a": 1
    }
    assert run("return [({} as any).polluted, JSON.stringify({a: 1}), typeof [].map]").output == [None, '{"a":1}', "function"]


def test_a_global_does_not_outlive_its_step(run: Run) -> None:
    assert run("(globalThis as any).kept = (globalThis as any).kept ?? 0; return ++(globalThis as any).kept").output == 1
    assert run("(globalThis as any).kept = (globalThis as any).kept ?? 0; return ++(globalThis as any).kept").output == 1


def test_memory_comes_empty(run: Run) -> None:
    run("new Uint8Array(8 << 20).fill(0xAA); return 1")
    assert run("return new Uint8Array(8 << 20).some((byte) => byte !== 0)").output is False


def test_module_state_is_fresh_for_every_run(pool: Pool, make_program: Make) -> None:
    step = make_program("let n = 0;\nexport default () => ++n")
    assert [pool.run(step, {}).output for _ in range(3)] == [1, 1, 1]


def test_equal_text_of_two_namespaces_is_two_programs(make_program: Make) -> None:
    assert make_program("export default 1", namespace="ten_a").digest != make_program("export default 1", namespace="ten_b").digest


def test_programs_cannot_be_made_to_collide(make_program: Make) -> None:
    one = Program("javascript", "a", {"a": "b", "c": "d"})
    assert one.digest != Program("javascript", "a", {"a": "bc", "": "d"}).digest
    assert one.digest != Program("typescript", "a", {"a": "b", "c": "d"}).digest


@pytest.mark.parametrize(
    "name", ["fs", "std", "os", "node:fs", "http://example.com/x.js", "/etc/passwd", "data:text/javascript,export default 1"]
)
def test_nothing_outside_of_the_program_can_be_imported(run: Run, name: str) -> None:
    assert "does not exist" in run(f"try {{ await import({name!r}); return 'imported' }} catch (e) {{ return String(e) }}").output


@pytest.mark.parametrize(
    "expression",
    [
        "typeof (globalThis as any).process",
        "typeof (globalThis as any).require",
        "typeof (globalThis as any).fetch",
        "typeof (globalThis as any).WebAssembly",
        "typeof (globalThis as any).__host",
        "typeof new Function('return this.process')()",
        "typeof eval('globalThis.std')",
        "typeof (api.datapool.find as any).constructor('return this')().Deno",
        "typeof (async () => {}).constructor('return os')",
    ],
)
def test_a_step_cannot_reach_the_machine(run: Run, expression: str) -> None:
    assert run(f"try {{ return {expression} }} catch (e) {{ return 'undefined' }}").output in ("undefined", "function")


def test_the_api_cannot_be_altered(run: Run) -> None:
    body = """const out = [], con: any = console;
    for (const change of [() => { api.datapool.find = 1 }, () => { api.x = 1 }, () => { delete api.log }, () => { con.log = 1 }])
      try { change(); out.push('changed') } catch (e) { out.push(e.name) }
    return out"""
    assert run(body).output == ["TypeError"] * 4
