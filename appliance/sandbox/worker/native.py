"""Direct bindings to wasmtime's C functions for hot paths, without the copies and checks of the Python package."""

from __future__ import annotations

import ctypes
from ctypes import CFUNCTYPE, POINTER, byref, c_bool, c_char_p, c_int64, c_size_t, c_uint64, c_void_p, cast
from typing import Any

import wasmtime
from wasmtime import _ffi

_path = str(_ffi.filename)
# Calls into the guest can take long and release the interpreter lock; the others are shorter than releasing it would take.
_slow = ctypes.CDLL(_path)
_quick = ctypes.PyDLL(_path)


def _bind(library: ctypes.CDLL, name: str, result: Any, *arguments: Any) -> Any:
    function = library[name]
    function.restype = result
    function.argtypes = list(arguments)
    return function


func_call = _bind(_slow, "wasmtime_func_call_unchecked", c_void_p, c_void_p, c_void_p, c_void_p, c_size_t, c_void_p)
instantiate = _bind(_slow, "wasmtime_instance_pre_instantiate", c_void_p, c_void_p, c_void_p, c_void_p, c_void_p)
module_new = _bind(_slow, "wasmtime_module_new", c_void_p, c_void_p, c_char_p, c_size_t, c_void_p)
store_delete = _bind(_slow, "wasmtime_store_delete", None, c_void_p)

store_new = _bind(_quick, "wasmtime_store_new", c_void_p, c_void_p, c_void_p, c_void_p)
store_context = _bind(_quick, "wasmtime_store_context", c_void_p, c_void_p)
store_limiter = _bind(_quick, "wasmtime_store_limiter", None, c_void_p, c_int64, c_int64, c_int64, c_int64, c_int64)
set_epoch_deadline = _bind(_quick, "wasmtime_context_set_epoch_deadline", None, c_void_p, c_uint64)
export_get = _bind(_quick, "wasmtime_instance_export_get", c_bool, c_void_p, c_void_p, c_char_p, c_size_t, c_void_p)
memory_data = _bind(_quick, "wasmtime_memory_data", c_void_p, c_void_p, c_void_p)
memory_size = _bind(_quick, "wasmtime_memory_data_size", c_size_t, c_void_p, c_void_p)
global_get = _bind(_quick, "wasmtime_global_get", None, c_void_p, c_void_p, c_void_p)
memory_grow = _bind(_quick, "wasmtime_memory_grow", c_void_p, c_void_p, c_void_p, c_uint64, c_void_p)
trap_new = _bind(_quick, "wasmtime_trap_new", c_void_p, c_char_p, c_size_t)
error_new = _bind(_quick, "wasmtime_error_new", c_void_p, c_char_p)

HOST_FUNCTION = CFUNCTYPE(c_size_t, c_void_p, c_void_p, c_void_p, c_size_t)
define_function = _bind(
    _quick,
    "wasmtime_linker_define_func_unchecked",
    c_void_p,
    *(c_void_p, c_char_p, c_size_t, c_char_p, c_size_t, c_void_p, HOST_FUNCTION, c_void_p, c_void_p),
)
EPOCH_CALLBACK = CFUNCTYPE(c_size_t, c_void_p, c_void_p, c_void_p, c_void_p)
set_epoch_callback = _bind(_quick, "wasmtime_store_epoch_deadline_callback", None, c_void_p, EPOCH_CALLBACK, c_void_p, c_void_p)


def address(managed: Any) -> int:
    """The C address behind an object of the wasmtime package."""
    value = cast(managed.ptr(), c_void_p).value
    if value is None:
        raise ValueError("the object is closed")
    return value


def compile_module(engine: wasmtime.Engine, binary: bytes) -> wasmtime.Module:
    """What `wasmtime.Module` does, without its copy of the binary; raises WasmtimeError like it."""
    module = POINTER(_ffi.wasmtime_module_t)()
    error = module_new(address(engine), binary, len(binary), byref(module))
    if error:
        raise wasmtime.WasmtimeError._from_ptr(cast(c_void_p(error), POINTER(_ffi.wasmtime_error_t)))
    return wasmtime.Module._from_ptr(module)


def describe_trap(pointer: int) -> str:
    """Take ownership of a trap and return wasmtime's message in one line."""
    trap = wasmtime.Trap._from_ptr(cast(c_void_p(pointer), POINTER(_ffi.wasm_trap_t)))
    return str(trap).strip().splitlines()[-1].strip()


def describe_error(pointer: int) -> str:
    """Take ownership of an error and return wasmtime's message in one line."""
    error = wasmtime.WasmtimeError._from_ptr(cast(c_void_p(pointer), POINTER(_ffi.wasmtime_error_t)))
    return str(error).strip().splitlines()[-1].strip()


def use_pooling(config: wasmtime.Config, slots: int, memory_bytes: int, keep_resident: int) -> None:
    """Preallocate `slots` instances, which makes instantiation take microseconds."""
    name = "wasmtime_pooling_allocation_config_"
    new, delete = getattr(_ffi, name + "new"), getattr(_ffi, name + "delete")
    pooling = new()
    settings = {
        "total_memories": slots,
        "total_tables": slots,
        "total_core_instances": slots,
        "max_memory_size": memory_bytes,
        "table_elements": 2000,
        "linear_memory_keep_resident": keep_resident,
        "max_unused_warm_slots": slots,
    }
    for key, value in settings.items():
        getattr(_ffi, f"{name}{key}_set")(pooling, value)
    _ffi.wasmtime_pooling_allocation_strategy_set(config.ptr(), pooling)
    delete(pooling)
