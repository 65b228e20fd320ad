"""One QuickJS instance: its values, the messages of its prelude, and what it asks for."""

from __future__ import annotations

from ctypes import addressof, c_uint32, c_uint64, memmove, memset, string_at
from typing import Any, Protocol, Self

from appliance.sandbox.runtimes import Boot
from appliance.sandbox.worker import instance, native
from appliance.sandbox.worker.engine import MEMORY_SLACK, Arguments, Engine
from appliance.sandbox.worker.instance import Instance, OutOfMemory

DEFAULT_HEAP = 64 << 20
# QuickJS stops at STACK below the top of its 1 MiB shadow stack; what lies under it is free for messages.
STACK = 256 << 10
SCRATCH, ARGV, NAME, MAILBOX, MAILBOX_END = 64, 80, 512, 4096, 640 << 10
TYPE_SCRIPT, TYPE_MODULE = 0, 1
WASM_PAGE = 65536
# Free memory is scrubbed in blocks of these sizes, the largest first, and no more of them.
SCRUBBED, SCRUBBED_BLOCKS = (1 << 20, 65536, 4096, 512, 64, 16), 16384


class Thrown(Exception):
    """JavaScript threw at the host; `fault` has name, message and stack."""

    def __init__(self, fault: dict[str, Any]) -> None:
        super().__init__(f"{fault.get('name')}: {fault.get('message')}")
        self.fault = fault


class Owner(instance.Owner, Protocol):
    """What a QuickJS instance asks of whoever runs it."""

    def on_message(self, message: bytes) -> bytes | None: ...
    def read_clock(self) -> int: ...
    def module_source(self, name: str) -> str | None: ...
    def resolve_module(self, importer: str, specifier: str) -> str: ...


class VM(Instance):
    """A fresh QuickJS instance; use as a context manager on one thread."""

    _owner: Owner

    def __init__(self, engine: Engine, owner: Owner, heap: int = DEFAULT_HEAP) -> None:
        super().__init__(engine, owner, heap + MEMORY_SLACK)
        self._heap, self._booted = heap, engine.boot is not None
        self._locales = engine.locales
        self.boot = engine.boot or Boot(0, 0, 0, 0)
        self.rejections: dict[int, tuple[int, int]] = {}

    def __enter__(self) -> Self:
        super().__enter__()
        try:
            if self._booted and self._heap != DEFAULT_HEAP:
                self.call("qjs_set_memory_limit", self._heap)
        except BaseException:
            self.__exit__()
            raise
        return self

    def read_u32(self, pointer: int) -> int:
        self.within(pointer, 4)
        return c_uint32.from_address(self._base + pointer).value

    def read_name(self, pointer: int) -> str:
        self.within(pointer, 1)
        return self.read(pointer, min(4096, self.size - pointer)).split(b"\0", 1)[0].decode("utf-8", "replace")

    def allocate(self, data: bytes) -> int:
        pointer = self.call("wasm_malloc", len(data) + 1)
        if not pointer:
            raise OutOfMemory("memory")
        self.write(pointer, data + b"\0")
        return pointer

    def put(self, data: bytes) -> int:
        """Copy bytes into the guest: into the mailbox, which the next message overwrites, or else onto its heap."""
        if len(data) < MAILBOX_END - MAILBOX:
            memmove(self._base + MAILBOX, data + b"\0", len(data) + 1)
            return MAILBOX
        return self.allocate(data)

    def scrub(self) -> None:
        """Collect what nobody holds and write zeros over it: by taking all that the allocator has free, and giving it back."""
        self.call("qjs_run_gc")
        self.bound_memory(self.measure())  # so that it gives what it has, and does not grow
        blocks: list[int] = []
        for length in SCRUBBED:
            while len(blocks) < SCRUBBED_BLOCKS and (pointer := self.call("wasm_malloc", length)):
                blocks.append(pointer)
                self.within(pointer, length)
                memset(self._base + pointer, 0, length)
        for pointer in blocks:
            self.call("wasm_free", pointer)
        self.bound_memory(self._heap + MEMORY_SLACK)

    def grow_to(self, size: int) -> bool:
        """Give the instance that much memory, if it may have it; memory never shrinks."""
        missing = size - self.measure()
        if missing <= 0:
            return missing == 0
        former = c_uint64()
        error = native.memory_grow(self._context, addressof(self._memory), missing // WASM_PAGE, addressof(former))
        if error:
            native.describe_error(error)
        return self.measure() == size

    def stack_pointer(self) -> int:
        pointer, value = self._look_up("__stack_pointer"), (c_uint64 * 4)()
        native.global_get(self._context, addressof(pointer), addressof(value))
        return int(value[1]) & 0xFFFFFFFF

    def snapshot(self) -> tuple[bytes, int]:
        """All memory, and the stack pointer: below it lies nothing that an instance at rest needs, and so it is zero."""
        pointer = self.stack_pointer()
        return bytes(pointer) + string_at(self._base + pointer, self.measure() - pointer), pointer

    # ---- values

    def text(self, value: int) -> bytes:
        """A JavaScript value as UTF-8."""
        pointer = self.call("qjs_get_string_len", value, SCRATCH)
        if not pointer:
            raise Thrown(self.exception())
        data = self.read(pointer, self.read_u32(SCRATCH))
        self.call("qjs_free_cstring", pointer)
        return data

    def property(self, value: int, name: str) -> int:
        key = self.allocate(name.encode())
        member = self.call("qjs_get_prop_string", value, key)
        self.call("wasm_free", key)
        return member

    def exception(self) -> dict[str, Any]:
        """What was thrown last, described without running the prelude."""
        return self.describe(self.call("qjs_get_exception"))

    def describe(self, value: int) -> dict[str, Any]:
        fault = {}
        for name in ("name", "message", "stack", "code"):
            text = self._to_text(self.property(value, name))
            if text is not None:
                fault[name] = text
        return fault if "message" in fault else {"name": "Thrown", "message": self._to_text(value) or "undefined"}

    def _to_text(self, value: int) -> str | None:
        """A value as text, unless it is undefined or refuses."""
        pointer = self.call("qjs_get_string_len", value, SCRATCH)
        text = self.read(pointer, self.read_u32(SCRATCH)).decode("utf-8", "replace") if pointer else None
        return None if text == "undefined" else text

    # ---- the protocol of the prelude

    def compile(self, source: bytes, name: str, kind: int = TYPE_MODULE) -> bytes:
        """Bytecode of a module, or of a script; its imports are resolved through the owner, nothing runs."""
        code, label = self.allocate(source), self.allocate(name.encode())
        answer = self.call("qjs_compile", code, len(source), label, kind, 0, SCRATCH)
        if not answer:
            raise Thrown(self.exception())
        return self.read(answer, self.read_u32(SCRATCH))

    def evaluate(self, source: bytes, name: str) -> None:
        code, label = self.allocate(source), self.allocate(name.encode())
        answer = self.call("qjs_eval", code, len(source), label, 0)
        self.call("wasm_free", code)
        self.call("wasm_free", label)
        if self.call("qjs_is_exception", answer):
            raise Thrown(self.exception())

    def load(self, bytecode: bytes) -> int:
        """Evaluate a compiled module; answers the promise of its namespace."""
        promise = self.call("qjs_eval_bytecode", self.put(bytecode), len(bytecode))
        if self.call("qjs_is_exception", promise):
            raise Thrown(self.exception())
        return promise

    def load_source(self, source: bytes, name: str) -> int:
        """Evaluate a module from its text, with what it imports; answers the promise of its namespace."""
        promise = self.call("qjs_eval", self.allocate(source), len(source), self.allocate(name.encode()), TYPE_MODULE)
        if self.call("qjs_is_exception", promise):
            raise Thrown(self.exception())
        return promise

    def start(self, promise: int, text: bytes) -> None:
        pointer = self.put(text)
        boot = self.boot
        if self.call("x_start", boot.start, boot.undefined, promise, pointer, len(text), ARGV):
            raise Thrown(self.exception())

    def send(self, function: int, text: bytes) -> None:
        """Give a text to a function of the prelude and run every job that follows from it."""
        pointer = self.put(text)
        if self.call("x_msg", function, self.boot.undefined, pointer, len(text), ARGV):
            raise Thrown(self.exception())
        if pointer != MAILBOX:
            self.call("wasm_free", pointer)

    # ---- what the guest asks for

    def host_call(self, arguments: Arguments) -> int:
        message = self.text(self.read_u32(arguments[16])) if arguments[12] else b""
        answer = self._international(message[1:]) if message[:1] == b"i" else self._owner.on_message(message)
        if answer is None:
            return self.call("qjs_dup_value", self.boot.undefined)
        pointer = self.allocate(answer)
        value = self.call("qjs_new_string", pointer, len(answer))
        self.call("wasm_free", pointer)
        return value

    def _international(self, name: bytes) -> bytes | None:
        """Data of `Intl` by its name; without a name its code is evaluated, which then asks for data."""
        if self._locales is None:
            return None
        if name:
            return self._locales.find(name.decode("utf-8", "replace"))
        # A script, for a module would be held as long as the instance lives.
        if self._locales.compiled:
            self.call("qjs_free_value", self.load(self._locales.code))
        else:
            self.evaluate(self._locales.code, "<intl>")
        return None

    def rejection(self, arguments: Arguments) -> int:
        """QuickJS tells of a promise rejected without a handler, and takes it back when one arrives."""
        promise, reason, handled = arguments[0], arguments[4], arguments[8]
        self.within(promise, 8)
        identity = c_uint64.from_address(self._base + promise).value
        if handled:
            for each in (promise, reason, *self.rejections.pop(identity, ())):
                self.call("qjs_free_value", each)
        else:
            self.rejections[identity] = (promise, reason)
        return 0

    def normalise_module(self, arguments: Arguments) -> int:
        name = self._owner.resolve_module(self.read_name(arguments[0]), self.read_name(arguments[4]))
        return self.allocate(name.encode())

    def load_module(self, arguments: Arguments) -> int:
        name, length_at = self.read_name(arguments[0]), arguments[4]
        source = self._owner.module_source(name)
        if source is None:
            self._throw(f"module '{name}' does not exist; a step can import only files of its own process")
            return 0
        data = source.encode("utf-8", "replace")
        pointer = self.allocate(data)
        self.write(length_at, len(data).to_bytes(4, "little"))
        return pointer

    def _throw(self, message: str) -> None:
        error, text = self.call("qjs_new_error"), message.encode()
        value = self.call("qjs_new_string", self.allocate(text), len(text))
        self.call("qjs_set_prop_string", error, self.allocate(b"message"), value)
        self.call("qjs_throw", error)

    def clock(self, arguments: Arguments) -> int:
        nanoseconds = self._owner.read_clock() * 1_000_000
        self.write(arguments[8], nanoseconds.to_bytes(8, "little"))
        return 0

    def random(self, arguments: Arguments) -> int:
        """Nothing in the guest may differ between two runs; Math.random is seeded through a message."""
        self.write(arguments[0], bytes(min(arguments[4], 256)))
        return 0
