"""What a sandbox process for type checks does: every check in a fresh instance of the warm compiler."""

from __future__ import annotations

import json
import time
from typing import Any

import wasmtime

from appliance.sandbox.outcome import Failure
from appliance.sandbox.runtimes import Boot
from appliance.sandbox.typecheck import SECONDS
from appliance.sandbox.wire import Channel, Header, Verb
from appliance.sandbox.worker.engine import Engine
from appliance.sandbox.worker.instance import OutOfMemory, Stopped, Trapped
from appliance.sandbox.worker.vm import VM, Thrown

HEAP = 400 << 20
LATE = Failure(
    "timeout", "TimedOut", f"The types were not checked: it takes longer than {SECONDS:g} s; put `// @ts-nocheck` at the beginning "
    "of large files, or a `.d.ts` beside large libraries", code="types_unchecked",
)  # fmt: skip
_TOO_MUCH = "The code could not be type-checked: it is too large, or its types are nested too deeply; split it"


class _Check:
    """The owner of one instance."""

    def __init__(self) -> None:
        self._end = time.thread_time() + SECONDS
        self.answer = b""

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
        return "timeout" if time.thread_time() > self._end else None


class Checks:
    """The compiled checker of this process."""

    def __init__(self, settings: dict[str, Any]) -> None:
        path = settings["checker"]
        self._engine = Engine(lambda wasm: wasmtime.Module.deserialize_file(wasm, path), boot=Boot(**settings["boot"]))
        self.verbs: dict[str, Verb] = {"types": self._types}

    def begin(self) -> None:
        """Start the thread that measures time."""
        self._engine.ticker.start()

    def _types(self, channel: Channel, header: Header, parts: list[bytes]) -> None:
        owner, failure = _Check(), None
        try:
            with self._engine.ticker, VM(self._engine, owner, HEAP) as vm:
                vm.send(vm.boot.evaluate, parts[0])
        except (OutOfMemory, Thrown, Trapped):
            failure = _failure(b"")
        except Stopped:
            failure = LATE
        if failure is None and owner.answer[:1] != b"r":
            failure = _failure(owner.answer)
        if failure is None:
            channel.send({"op": "end"}, owner.answer[1:])
        else:
            channel.send({"op": "fault", "failure": failure.to_wire()})


def _failure(answer: bytes) -> Failure:
    """Out of memory, out of time and a fault of the compiler itself: what was given is too much for it."""
    message = json.loads(answer[1:]) if answer else {}
    if message.get("name") not in (None, "InternalError", "RangeError"):
        text = f"The type checker failed: {message.get('message')}"
        return Failure("system", "CheckerFault", text, str(message.get("stack")), "sandbox_fault")
    return Failure("validation", "TooLarge", _TOO_MUCH, code="types_too_large")
