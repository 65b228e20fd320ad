"""One instance of a WebAssembly module: its store, its memory, the calls into it, and the faults that end it."""

from __future__ import annotations

from ctypes import addressof, c_uint32, c_uint64, c_void_p, memmove, string_at
from typing import Any, Protocol, Self

from appliance.sandbox.worker import native
from appliance.sandbox.worker.engine import CURRENT, Linked, watch


class Stopped(Exception):
    """The host ended the guest: it ran out of something, or its owner gave up."""


class OutOfMemory(Stopped):
    """The guest's heap has no room for what the host wants to give it."""


class Trapped(Exception):
    """WebAssembly refused to go on; the message is wasmtime's."""


class Owner(Protocol):
    """Whoever runs an instance says how long."""

    def overdue(self) -> str | None: ...


class Instance:
    """A fresh instance with at most `memory` bytes; use as a context manager on one thread."""

    def __init__(self, linked: Linked, owner: Owner, memory: int) -> None:
        self._linked, self._owner = linked, owner
        self._buffer = (c_uint32 * 32)()
        self._arguments = addressof(self._buffer)
        self._trap = c_void_p()
        self._instance = (c_uint64 * 2)()
        self._functions: dict[str, Any] = {}
        self._export = (c_uint64 * 8)()
        self._base = self.size = 0
        self._store = native.store_new(linked.engine_address, None, None)
        self._context = native.store_context(self._store)
        self.bound_memory(memory)
        watch(self._store, self._context)

    def __enter__(self) -> Self:
        CURRENT.guest = self
        try:
            error = native.instantiate(self._linked.pre_address, self._context, addressof(self._instance), addressof(self._trap))
            if error or self._trap.value:
                self._fail(error)
            self._memory = self._look_up("memory")
            self._base = native.memory_data(self._context, addressof(self._memory))
            self.measure()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        native.store_delete(self._store)
        CURRENT.guest = None

    def bound_memory(self, size: int) -> None:
        """Let it have at most so many bytes from now on."""
        native.store_limiter(self._store, size, -1, 1, 1, 1)

    def overdue(self) -> str | None:
        return self._owner.overdue()

    # ---- calls

    def _look_up(self, name: str) -> Any:
        encoded = name.encode()
        is_found = native.export_get(self._context, addressof(self._instance), encoded, len(encoded), addressof(self._export))
        if not is_found:
            raise KeyError(name)
        return (c_uint64 * 4)(*self._export[1:5])

    def call(self, name: str, *arguments: int) -> int:
        """Call an exported function of i32 parameters; answers its i32."""
        function = self._functions.get(name)
        if function is None:
            function = self._functions[name] = self._look_up(name)
        buffer, at = self._buffer, 0
        for each in arguments:
            buffer[at] = each
            at += 4
        error = native.func_call(self._context, addressof(function), self._arguments, len(arguments) or 1, addressof(self._trap))
        if error or self._trap.value:
            self._fail(error)
        return int(buffer[0])

    def _fail(self, error: int | None) -> None:
        fault, CURRENT.fault = CURRENT.fault, None
        text = "the guest stopped"
        if self._trap.value:
            text = native.describe_trap(self._trap.value)
            self._trap.value = None
        elif error:
            text = native.describe_error(error)
        if fault is not None:
            try:
                raise fault
            finally:
                del fault  # its traceback holds this frame: together they would wait for the garbage collector
        reason = self._owner.overdue()
        if reason is not None:
            raise Stopped(reason)
        raise Trapped(text)

    # ---- memory: the base never moves, the size only grows

    def within(self, pointer: int, length: int) -> None:
        """Trapped unless the instance has all that memory."""
        if pointer + length > self.size and pointer + length > self.measure():
            raise Trapped("the guest named memory that it does not have")

    def read(self, pointer: int, length: int) -> bytes:
        self.within(pointer, length)
        return string_at(self._base + pointer, length)

    def write(self, pointer: int, data: bytes) -> None:
        self.within(pointer, len(data))
        memmove(self._base + pointer, data, len(data))

    def measure(self) -> int:
        """Bytes of linear memory; it never shrinks, so this is also the most that was used."""
        self.size = int(native.memory_size(self._context, addressof(self._memory)))
        return self.size

    def global_value(self, name: str) -> int:
        """An exported i32 global."""
        is_found, value = self._look_up(name), (c_uint64 * 4)()
        native.global_get(self._context, addressof(is_found), addressof(value))
        return int(value[1]) & 0xFFFFFFFF
