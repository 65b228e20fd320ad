"""Preparing a runtime beside a running appliance takes little more memory than the compilation itself."""

from __future__ import annotations

import ctypes
import tracemalloc
from pathlib import Path

import pytest
import wasmtime

from appliance.sandbox import runtimes
from appliance.sandbox.runtimes import background, prepare
from appliance.sandbox.worker import native
from appliance.sandbox.worker.engine import configuration
from tests.sandbox.paused_steps import until

BLOCK, BLOCKS = 4096, 8000
SETTINGS = {b"MALLOC_ARENA_MAX=1", b"MALLOC_MMAP_THRESHOLD_=65536", b"MALLOC_TRIM_THRESHOLD_=131072"}


def test_the_process_in_the_background_returns_freed_memory(tmp_path: Path) -> None:
    with runtimes.lock(tmp_path), background.launch(tmp_path, "php") as child:
        path = Path(f"/proc/{child.pid}/environ")
        try:  # `env` starts the program with them; the kernel shows them from then on
            until(lambda: set(path.read_bytes().split(b"\0")) >= SETTINGS)
        finally:
            child.kill()


def test_a_compilation_holds_the_binary_once(prepared: None) -> None:
    binary = (runtimes.default_folder() / runtimes.TEMPLATE).read_bytes()
    engine = wasmtime.Engine(configuration(slots=1))
    tracemalloc.start()
    try:
        module = native.compile_module(engine, binary)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < len(binary) / 2  # other threads allocate, too
    assert {each.name for each in module.exports} >= {"memory", "x_msg"}


def test_what_is_no_module_is_refused_with_the_reason() -> None:
    with pytest.raises(wasmtime.WasmtimeError, match="magic header"):
        native.compile_module(wasmtime.Engine(), b"MZ\0\0\0\0\0\0")


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def test_memory_freed_in_pieces_is_released() -> None:
    library = ctypes.CDLL(None)
    library.malloc.restype, library.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    library.free.argtypes = [ctypes.c_void_p]
    # Every tenth block stays, so that the blocks between are free and yet in the middle of the heap.
    blocks = [library.malloc(BLOCK * 3) for _ in range(BLOCKS)]
    for block in blocks:
        ctypes.memset(block, 1, BLOCK * 3)
    for number, block in enumerate(blocks):
        if number % 10:
            library.free(block)
    before = _resident_bytes()
    prepare._release_memory()
    released = before - _resident_bytes()
    for block in blocks[::10]:
        library.free(block)
    assert released > BLOCK * BLOCKS
