"""Makes the template: QuickJS booted once, with the prelude evaluated, frozen into a module that starts there."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import wasmtime

from appliance.sandbox.runtimes import FACTS, PROTOCOL, Boot, wasmfile
from appliance.sandbox.runtimes.entrypoints import add_entrypoints
from appliance.sandbox.worker.engine import Engine
from appliance.sandbox.worker.vm import DEFAULT_HEAP, STACK, VM

# In the order in which they run: each uses what those before it made.
PRELUDES = tuple(Path(__file__).parents[1] / name for name in ("web.js", "url.js", "prelude.js"))
# The functions that `vm.VM` calls; everything else loses its export, which makes instances cheaper.
KEEP = frozenset(
    [
        "qjs_call",
        "qjs_compile",
        "qjs_dup_value",
        "qjs_eval",
        "qjs_eval_bytecode",
        "qjs_free_cstring",
        "qjs_free_value",
        "qjs_get_exception",
        "qjs_get_prop_string",
        "qjs_get_string_len",
        "qjs_is_exception",
        "qjs_new_error",
        "qjs_new_string",
        "qjs_run_gc",
        "qjs_set_memory_limit",
        "qjs_set_prop_string",
        "qjs_throw",
        "wasm_free",
        "wasm_malloc",
        "x_drain",
        "x_msg",
        "x_start",
    ]
)


class _Booting:
    """The owner of the instance that becomes the template: it grants nothing."""

    def on_message(self, message: bytes) -> bytes | None:
        raise RuntimeError(f"the prelude sent {message!r} while the template was made")

    def read_clock(self) -> int:
        return 0

    def module_source(self, name: str) -> str | None:
        return None

    def resolve_module(self, importer: str, specifier: str) -> str:
        return specifier

    def overdue(self) -> str | None:
        return None


def make_template(quickjs: bytes) -> tuple[bytes, Boot]:
    """The pre-initialised module and where to find things in it."""
    binary = add_entrypoints(quickjs)
    engine = Engine(lambda wasm: wasmtime.Module(wasm, binary))
    with VM(engine, _Booting()) as vm:
        vm.call("_initialize")
        if vm.call("qjs_init"):
            raise RuntimeError("QuickJS did not start")
        undefined = vm.call("qjs_get_undefined")
        vm.call("qjs_set_max_stack_size", STACK)
        vm.call("qjs_set_memory_limit", DEFAULT_HEAP)
        vm.call("qjs_set_module_loader", 1)
        vm.call("qjs_set_promise_rejection_handler", 1)
        scope = vm.call("qjs_get_global")
        name = vm.allocate(b"__host")
        vm.call("qjs_set_prop_string", scope, name, vm.call("qjs_new_host_function", name, 6, 0))
        for each in PRELUDES:
            vm.evaluate(each.read_bytes(), "<prelude>")
        start, settle, evaluate = (vm.property(scope, each) for each in ("__start", "__settle", "__evaluate"))
        vm.evaluate(b"delete globalThis.__start; delete globalThis.__settle; delete globalThis.__evaluate", "<prelude>")
        vm.call("x_drain")
        vm.scrub()
        memory, stack_pointer = vm.snapshot()
    boot = Boot(undefined=undefined, start=start, message=settle, evaluate=evaluate)
    facts = json.dumps({"protocol": PROTOCOL, "boot": asdict(boot)}, sort_keys=True).encode()
    return wasmfile.with_custom(wasmfile.preinitialise(binary, memory, {0: stack_pointer}, KEEP), FACTS, facts), boot
