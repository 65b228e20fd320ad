"""PHP under wasmtime: how its module is compiled, and the few functions through which it reaches its host."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import wasmtime

from appliance.sandbox.worker.engine import Arguments, Import, Linked

if TYPE_CHECKING:
    from appliance.sandbox.php.machine import Machine

# Part of what compiled code depends on: whoever changes `configuration` counts this up.
CONFIGURATION = "php-1"
WASM_STACK = 2 << 20


def _signed(arguments: Arguments, index: int) -> int:
    """A 64-bit argument, of which two 32-bit halves arrive."""
    value = int(arguments[4 * index]) | int(arguments[4 * index + 1]) << 32
    return value - (1 << 64) if value >> 63 else value


def _imports() -> list[Import]:
    def define(name: str, parameters: str, answer: str, work: Callable[[Machine, Arguments], int]) -> Import:
        return ("host", name, parameters, answer, work)

    return [
        define("now", "i", "I", lambda php, a: php.now()),
        define("random", "ii", "", lambda php, a: php.fill_random(a[0], a[4])),
        define("msg", "i", "i", lambda php, a: php.send_message(a[0])),
        define("take", "i", "", lambda php, a: php.take_answer(a[0])),
        define("sleep", "i", "", lambda php, a: php.sleep(a[0])),
        define("exit", "i", "", lambda php, a: php.exit()),
        define("gmtime", "Ii", "", lambda php, a: php.split_time(_signed(a, 0), a[4])),
        define("timegm", "i", "I", lambda php, a: php.join_time(a[0])),
        define("fd_write", "iiii", "i", lambda php, a: php.write_file(a[0], a[4], a[8], a[12])),
        define("fd_read", "iiii", "i", lambda php, a: php.read_file(a[0], a[4], a[8], a[12])),
        define("fd_seek", "iIii", "i", lambda php, a: php.seek_file(a[0], _signed(a, 1), a[8], a[12])),
        define("fd_close", "i", "i", lambda php, a: php.close_file(a[0])),
        define("open", "ii", "i", lambda php, a: php.open_file(a[0], a[4])),
        define("stat", "ii", "i", lambda php, a: php.stat_path(a[0], a[4])),
        define("fstat", "ii", "i", lambda php, a: php.stat_file(a[0], a[4])),
        define("access", "i", "i", lambda php, a: php.access_path(a[0])),
        define("unlink", "i", "i", lambda php, a: php.remove_path(a[0])),
        define("rename", "ii", "i", lambda php, a: php.rename_path(a[0], a[4])),
        define("ftruncate", "iI", "i", lambda php, a: php.truncate_file(a[0], _signed(a, 1))),
    ]


IMPORTS = _imports()
IMPORTED = frozenset(name for _, name, *_ in IMPORTS)


def configuration() -> wasmtime.Config:
    """How PHP is compiled and confined; instances are mapped when they are needed, none is prepared."""
    config = wasmtime.Config()
    config.wasm_exceptions = True
    config.epoch_interruption = True
    config.cranelift_opt_level = "speed"
    config.wasm_component_model = False
    config.wasm_threads = False
    config.wasm_memory64 = False
    config.max_wasm_stack = WASM_STACK
    return config


class PhpEngine(Linked):
    """Compiled PHP with its host functions linked."""

    def __init__(self, module: Callable[[wasmtime.Engine], wasmtime.Module]) -> None:
        wasm = wasmtime.Engine(configuration())
        super().__init__(wasm, module(wasm), IMPORTS)
