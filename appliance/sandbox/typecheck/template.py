"""Makes the type checker's template: QuickJS with the TypeScript compiler loaded, its library parsed, and one check done."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import wasmtime

from appliance.sandbox.runtimes import Boot, wasmfile
from appliance.sandbox.runtimes.entrypoints import add_entrypoints
from appliance.sandbox.worker.engine import Engine
from appliance.sandbox.worker.vm import VM

CHECKER = Path(__file__).parent / "checker.js"
HEAP = 900 << 20
# The compiler recurses deeply; the shadow stack of QuickJS is 1 MiB, and below it only the addresses of `vm` are in use.
STACK = 900 << 10
# A check is shorter than collecting what it leaves would be; its instance is thrown away.
COLLECT_AT = 700 << 20
LIBRARY = "lib.esnext.d.ts"
# Data segments are counted, and their number is limited: what lies this close together is one.
GAP = 4096
KEEP = frozenset(
    [
        "qjs_call",
        "qjs_dup_value",
        "qjs_free_cstring",
        "qjs_free_value",
        "qjs_get_exception",
        "qjs_get_prop_string",
        "qjs_get_string_len",
        "qjs_is_exception",
        "qjs_new_string",
        "qjs_set_memory_limit",
        "wasm_free",
        "wasm_malloc",
        "x_drain",
        "x_msg",
    ]
)
_REFERENCE = re.compile(r'^/// <reference lib="([^"]+)"', re.MULTILINE)
# What makes the compiler go through the parts of itself that a step needs, so that their lazy work is in the template.
_SAMPLE = {
    "files": {
        "steps/a.ts": "import { f } from './b';\ninterface Row { id: string; n?: number }\n"
        "export default async function (input, api: Api) {\n  const rows: Row[] = [];\n  for (const each of input.rows ?? []) "
        "rows.push({ ...each, n: Number(each.n) });\n  const page = await api.find('x', { id: 1 });\n"
        "  return { rows: rows.map((row) => f(row.id)), by: Object.fromEntries(rows.map((row) => [row.id, row])), page };\n}\n",
        "steps/b.ts": "export function f<T extends string>(id: T): `x-${T}` { return `x-${id}`; }\n",
    },
    "declarations": 'interface Steps { "a": { input: { rows?: any[] }; api: Api } }\n'
    "interface Api { find<C extends 'x'>(collection: C, query?: { id?: number }): Promise<{ items: any[] }> }\n",
    "steps": [{"id": "a", "file": "steps/a.ts", "grants": {}}],
    "grants": {},
    "expressions": [{"key": "0", "text": "input.rows?.length > 0", "names": {"input": '{ "rows"?: any[] }'}}],
}


class CheckerBroken(Exception):
    """The compiler does not work as this release expects; is it the version that the lock names?"""


class _Booting:
    """The owner of the instance that becomes the template."""

    def __init__(self) -> None:
        self.answer: bytes | None = None

    def on_message(self, message: bytes) -> bytes | None:
        self.answer = message
        return None

    def read_clock(self) -> int:
        return 0

    def module_source(self, name: str) -> str | None:
        return None

    def resolve_module(self, importer: str, specifier: str) -> str:
        return specifier

    def overdue(self) -> str | None:
        return None


def _library(folder: Path, name: str, seen: set[str]) -> Iterator[Path]:
    """The file with everything it refers to, each once, what is referred to first."""
    if name in seen:
        return
    seen.add(name)
    path = folder / name
    for each in _REFERENCE.findall(path.read_text()):
        yield from _library(folder, f"lib.{each}.d.ts", seen)
    yield path


def make_template(quickjs: bytes, compiler: Path) -> tuple[bytes, Boot]:
    """The pre-initialised module and where to find things in it; `compiler` is the package's folder lib."""
    binary = add_entrypoints(quickjs)
    engine = Engine(lambda wasm: wasmtime.Module(wasm, binary))
    owner = _Booting()
    with engine.ticker, VM(engine, owner, HEAP) as vm:
        vm.call("_initialize")
        if vm.call("qjs_init"):
            raise CheckerBroken("QuickJS did not start")
        undefined = vm.call("qjs_get_undefined")
        vm.call("qjs_set_max_stack_size", STACK)
        vm.call("qjs_set_memory_limit", HEAP)
        vm.call("qjs_set_gc_threshold", COLLECT_AT)
        scope = vm.call("qjs_get_global")
        name = vm.allocate(b"__host")
        vm.call("qjs_set_prop_string", scope, name, vm.call("qjs_new_host_function", name, 6, 0))
        vm.evaluate((compiler / "typescript.js").read_bytes(), "<typescript>")
        vm.evaluate(CHECKER.read_bytes(), "<checker>")
        vm.boot = Boot(undefined, 0, 0, vm.property(scope, "__check"))
        library = vm.property(scope, "__library")
        for path in _library(compiler, LIBRARY, set()):
            vm.send(library, f"{path.name}\n{path.read_text()}".encode())
        vm.send(vm.boot.evaluate, json.dumps(_SAMPLE).encode())
        if owner.answer != b"r[]":
            raise CheckerBroken(f"the sample of the type checker gave {owner.answer!r}")
        vm.evaluate(b"delete globalThis.__check; delete globalThis.__library; delete globalThis.ts", "<checker>")
        vm.call("x_drain")
        vm.call("qjs_run_gc")
        memory, stack_pointer = vm.snapshot()
    return wasmfile.preinitialise(binary, memory, {0: stack_pointer}, KEEP, GAP), vm.boot
