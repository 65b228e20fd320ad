"""The runtimes of an appliance of another version."""

import shutil
from pathlib import Path

import wasmtime

from appliance.sandbox import runtimes
from appliance.sandbox.runtimes import wasmfile
from appliance.sandbox.runtimes.template import KEEP
from appliance.sandbox.worker.engine import Engine, configuration
from appliance.sandbox.worker.freezer import NOBODY
from appliance.sandbox.worker.vm import VM


def make_older(folder: Path) -> None:
    """Runtimes whose template differs from this checkout's: its global `age` is set."""
    now = runtimes.load(runtimes.default_folder())
    binary = (now.folder / runtimes.TEMPLATE).read_bytes()
    with VM(Engine(lambda wasm: wasmtime.Module(wasm, binary), boot=now.boot), NOBODY) as vm:
        vm.evaluate(b"globalThis.age = 'older'", "<test>")
        memory, stack_pointer = vm.snapshot()
    facts = wasmfile.read_custom(binary, runtimes.FACTS)
    other = wasmfile.with_custom(wasmfile.preinitialise(binary, memory, {0: stack_pointer}, KEEP), runtimes.FACTS, facts)
    (folder / runtimes.TEMPLATE).write_bytes(other)
    engine = wasmtime.Engine(configuration(slots=1))
    (folder / runtimes.QUICKJS).write_bytes(wasmtime.Module(engine, other).serialize())
    shutil.copyfile(now.folder / runtimes.SWC, folder / runtimes.SWC)
    shutil.copyfile(now.folder / runtimes.TYPES, folder / runtimes.TYPES)
    shutil.copyfile(now.folder / runtimes.INTL, folder / runtimes.INTL)
    files = runtimes.digests_of(folder, [runtimes.QUICKJS, runtimes.SWC, runtimes.TEMPLATE])
    runtimes.save(folder, {**runtimes.read_manifest(now.folder), "files": files})
