"""The wasmtime engine of a sandbox process: the pre-initialised QuickJS, which can be instantiated in microseconds."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from ctypes import c_uint8, c_uint32, c_uint64
from typing import Any, Protocol

import wasmtime

from appliance.sandbox.runtimes import Boot
from appliance.sandbox.worker import native
from appliance.sandbox.worker.locales import Locales

# The largest heap that a step may have, and the memory that the engine needs in addition.
MEMORY_MAX_MB = 512
MEMORY_SLACK = 24 << 20
TICK_SECONDS = 0.005
WASM_STACK = 2 << 20
KEEP_RESIDENT = 2 << 20

Arguments = Any  # a ctypes array of u32: argument n is at index 4 n


class Interruptible(Protocol):
    """An instance of any engine that can tell when it must stop."""

    def overdue(self) -> str | None: ...


class Guest(Interruptible, Protocol):
    """The interface of an instance to the host functions it calls."""

    def host_call(self, arguments: Arguments) -> int: ...
    def rejection(self, arguments: Arguments) -> int: ...
    def normalise_module(self, arguments: Arguments) -> int: ...
    def load_module(self, arguments: Arguments) -> int: ...
    def clock(self, arguments: Arguments) -> int: ...
    def random(self, arguments: Arguments) -> int: ...


class _Current(threading.local):
    """The instance that runs on this thread, for the host functions, which all instances share."""

    guest: Interruptible | None = None
    fault: BaseException | None = None


CURRENT = _Current()


def _check_guest(context: int, data: int, delta: int, kind: int) -> int:
    guest = CURRENT.guest
    reason = guest.overdue() if guest is not None else "no guest is running on this thread"
    if reason is not None:
        return int(native.error_new(reason.encode()))
    c_uint64.from_address(delta).value = 1
    c_uint8.from_address(kind).value = 0
    return 0


_on_epoch = native.EPOCH_CALLBACK(_check_guest)


def watch(store: int, context: int) -> None:
    """Check at every tick whether the guest on this thread must stop."""
    native.set_epoch_callback(store, _on_epoch, None, None)
    native.set_epoch_deadline(context, 1)


def _constant(code: int) -> Callable[[Guest, Arguments], int]:
    return lambda guest, arguments: code


# module, name, parameter types (i and I: 32 and 64 bits), result type ("" for none), implementation
Import = tuple[str, str, str, str, Callable[[Any, Arguments], int]]
_WASI, _BAD_DESCRIPTOR = "wasi_snapshot_preview1", 8
_HOST_FUNCTIONS: list[Import] = [
    ("env", "host_call", "iiiii", "i", lambda guest, a: guest.host_call(a)),
    ("env", "host_interrupt", "", "i", _constant(0)),
    ("env", "host_promise_rejection", "iii", "", lambda guest, a: guest.rejection(a)),
    ("env", "host_module_normalize", "ii", "i", lambda guest, a: guest.normalise_module(a)),
    ("env", "host_module_load", "ii", "i", lambda guest, a: guest.load_module(a)),
    ("env", "host_get_timezone_offset", "ii", "i", _constant(0)),
    (_WASI, "clock_time_get", "iIi", "i", lambda guest, a: guest.clock(a)),
    (_WASI, "fd_close", "i", "i", _constant(_BAD_DESCRIPTOR)),
    (_WASI, "fd_fdstat_get", "ii", "i", _constant(_BAD_DESCRIPTOR)),
    (_WASI, "fd_seek", "iIii", "i", _constant(_BAD_DESCRIPTOR)),
    (_WASI, "fd_write", "iiii", "i", _constant(_BAD_DESCRIPTOR)),
    (_WASI, "random_get", "ii", "i", lambda guest, a: guest.random(a)),
]


def _callback(work: Callable[[Any, Arguments], int], answers: bool) -> Any:
    array = c_uint32 * 32

    def run(environment: int, caller: int, arguments: int, count: int) -> int:
        try:
            slots = array.from_address(arguments)
            guest = CURRENT.guest
            if guest is None:
                raise RuntimeError("a host function was called while no guest runs")
            answer = work(guest, slots)
            if answers:
                slots[0], slots[1] = answer & 0xFFFFFFFF, answer >> 32 & 0xFFFFFFFF
            return 0
        except BaseException as fault:  # noqa: BLE001  must not unwind native frames; the caller raises it again
            CURRENT.fault = fault
            return int(native.trap_new(b"host", 4))

    return native.HOST_FUNCTION(run)


def configuration(slots: int = 0) -> wasmtime.Config:
    """The compilation settings and limits of guests; `slots` > 0 preallocates that many instances."""
    config = wasmtime.Config()
    config.epoch_interruption = True
    config.cranelift_opt_level = "speed"
    config.wasm_component_model = False
    config.wasm_threads = False
    config.wasm_memory64 = False
    config.max_wasm_stack = WASM_STACK
    if slots:
        native.use_pooling(config, slots, (MEMORY_MAX_MB << 20) + MEMORY_SLACK, KEEP_RESIDENT)
    return config


class Ticker:
    """Advances the epoch while a guest runs, so that idle processes do not wake up; its thread starts on first use."""

    def __init__(self) -> None:
        self._engines: list[wasmtime.Engine] = []
        self._condition = threading.Condition()
        self._running = 0
        self._started = False

    def add(self, engine: wasmtime.Engine) -> None:
        self._engines.append(engine)

    def start(self) -> None:
        """Start the thread now, for processes that may not create threads later."""
        with self._condition:
            if not self._started:
                threading.Thread(target=self._tick, name="ticker", daemon=True).start()
                self._started = True

    def __enter__(self) -> None:
        if not self._started:
            self.start()
        with self._condition:
            self._running += 1
            if self._running == 1:
                self._condition.notify()

    def __exit__(self, *exception: object) -> None:
        with self._condition:
            self._running -= 1

    def _tick(self) -> None:
        pause = threading.Event()
        while True:
            with self._condition:
                while not self._running:
                    self._condition.wait()
            pause.wait(TICK_SECONDS)
            for each in self._engines:
                each.increment_epoch()


class Linked:
    """A compiled module linked with its host functions, which can be instantiated in microseconds."""

    def __init__(self, wasm: wasmtime.Engine, module: wasmtime.Module, imports: Sequence[Import]) -> None:
        self.wasm, self.module = wasm, module
        self._linker = wasmtime.Linker(wasm)
        self._keep: list[object] = []
        for each in imports:
            self._define(*each)
        self._pre = self._linker.instantiate_pre(module)
        self.pre_address = native.address(self._pre)
        self.engine_address = native.address(wasm)
        self.ticker = Ticker()
        self.ticker.add(wasm)

    def _define(self, space: str, name: str, parameters: str, answer: str, work: Callable[[Any, Arguments], int]) -> None:
        kinds = {"i": wasmtime.ValType.i32, "I": wasmtime.ValType.i64}
        kind = wasmtime.FuncType([kinds[each]() for each in parameters], [kinds[each]() for each in answer])
        callback = _callback(work, bool(answer))
        self._keep += [callback, kind]
        linker, signature = native.address(self._linker), native.address(kind)
        at, called = space.encode(), name.encode()
        error = native.define_function(linker, at, len(at), called, len(called), signature, callback, None, None)
        if error:
            raise RuntimeError(native.describe_error(error))


class Engine(Linked):
    """A compiled QuickJS linked with its host functions; `vm.VM` creates instances. Without `locales` there is no Intl."""

    def __init__(
        self,
        module: Callable[[wasmtime.Engine], wasmtime.Module],
        slots: int = 0,
        boot: Boot | None = None,
        locales: Locales | None = None,
    ) -> None:
        config = configuration(slots)
        # The threads of parallel compilation would stay alive without the confinement of the other threads.
        config.parallel_compilation = False
        wasm = wasmtime.Engine(config)
        self.boot, self.locales = boot, locales
        super().__init__(wasm, module(wasm), _HOST_FUNCTIONS)
