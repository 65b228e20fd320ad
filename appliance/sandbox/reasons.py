"""The failure messages of steps: what went wrong, which limit was exceeded, and what to do about it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from appliance.sandbox.compilation.artefact import Artefact
from appliance.sandbox.outcome import FAILURE_CLASSES, STACK_CHARACTERS, Failure, Position
from appliance.sandbox.program import Limits

# Codes that only the appliance may set, because its retries depend on them.
_OURS = ("sandbox_lost", "sandbox_busy", "sandbox_fault", "runtime_preparing", "runtime_unavailable", "aborted")
OVER_WALL, OVER_CPU, ABORTED = "timeout", "cpu", "aborted"
# Globals of browsers and Node.js that steps lack, and what to use instead.
_INSTEAD = {
    **dict.fromkeys(("fetch", "XMLHttpRequest", "WebSocket"), "call a foreign system by api.integrations.execute"),
    **dict.fromkeys(("setTimeout", "setInterval"), "await api.wait.for('10s'), or put a wait step into the process"),
    **dict.fromkeys(("require", "module", "exports"), "import the files of the process, as in import { f } from './lib'"),
    **dict.fromkeys(("process", "Deno", "Bun"), "a step has no environment; what it needs comes as input"),
    "Buffer": "use Uint8Array, TextEncoder and TextDecoder, atob and btoa",
}
_UNDEFINED = re.compile(r"'?(\w+)'? is not defined")
_INTERNAL_SOURCES = ("<prelude>", "<intl>", "(native)")


class Reasons:
    """Builds the failures of one step, with its limits in their messages."""

    def __init__(self, limits: Limits, *, system_failed: bool = False) -> None:
        self._limits = limits
        self.system_failed = system_failed

    def hear(self, ok: bool, answer: bytes) -> None:
        """Note whether the host answered with a system failure: code may rethrow such a failure, but not fake one."""
        self.system_failed |= not ok and b'"system"' in answer

    # ---- limits

    def memory(self) -> Failure:
        text = f"The step used more than {self._limits.memory_mb} MB of memory; raise limits.memory_mb"
        return Failure("memory", "OutOfMemory", f"{text} or work on less data at once.", code="memory_limit")

    def stopped(self, reason: str) -> Failure:
        if reason == OVER_WALL:
            text = f"The step took longer than {self._limits.wall_ms / 1000:g} s; raise limits.time"
            return _overdue(f"{text} or do less in one step.", "time_limit")
        if reason == OVER_CPU:
            text = f"The step computed for more than {self._limits.cpu_ms / 1000:g} s; raise limits.cpu"
            return _overdue(f"{text} or do less in one step.", "cpu_limit")
        return Failure("system", "Aborted", "The step was ended by the appliance.", code="aborted", retryable=True)

    def trapped(self, text: str, engine: str = "JavaScript") -> Failure:
        if "stack" in text:
            return Failure("user_code", "StackOverflow", "The step recurses too deeply; use a loop.", code="stack_limit")
        return Failure("system", "SandboxFault", f"The {engine} engine stopped: {text}", code="sandbox_fault")

    def too_many_calls(self) -> Failure:
        text = f"The step made more than {self._limits.host_calls:,} calls; use api.datapool.batch"
        return _limit("host_call_limit", f"{text} or split the work over several steps.")

    def call_too_large(self, method: str) -> Failure:
        text = f"The parameters of {method} are larger than {_size(self._limits.output_bytes)}"
        return _limit("host_call_size", f"{text}, or all calls in flight together are too large; send less at once.")

    def too_much_log(self) -> Failure:
        text = f"The step logged more than {_size(self._limits.log_bytes)}; log less"
        return _limit("log_limit", f"{text}, or return the data as output.")

    def output_too_large(self, count: int) -> Failure:
        text = f"The step returned {_size(count)}, more than {_size(self._limits.output_bytes)}"
        return _limit("output_limit", f"{text}; store the data in DataPool and return a reference.")

    def snapshot_too_large(self) -> Failure:
        text = f"The step holds more than {_size(self._limits.snapshot_bytes)}, compressed, while it waits; keep less in variables"
        return Failure("memory", "LimitReached", f"{text}, such as a reference to data in DataPool.", code="snapshot_too_large")

    # ---- mistakes

    def too_deep(self, what: str) -> Failure:
        return _limit("nesting_limit", f"{what} is nested too deeply; flatten it.")

    def not_json(self, what: str) -> Failure:
        return _limit("invalid_output", f"{what} is not plain JSON data.")

    def unknown_method(self) -> Failure:
        return _limit("unknown_method", "The step called a method that api does not have.")

    def never_settled(self) -> Failure:
        text = "The step waits for a promise that nothing will settle; await only calls of api and your own functions."
        return Failure("user_code", "NeverSettled", text, code="never_settled")

    def thrown(self, fault: dict[str, Any], artefact: Artefact) -> Failure:
        """The failure for an error that the code threw, with positions in the author's source."""
        name, message = str(fault.get("name", "Error")), str(fault.get("message", ""))
        if name == "InternalError" and message.startswith("out of memory"):  # also "… in regexp execution"
            return self.memory()
        lines = str(fault.get("stack") or "")[:STACK_CHARACTERS].splitlines()
        own = "\n".join(line for line in lines if line and not any(each in line for each in _INTERNAL_SOURCES))
        stack, position = artefact.locate(own)
        if fault.get("cause") is not None:
            stack += f"\ncaused by {fault['cause']}"
        if name == "ReferenceError":
            message += _hint(message)
        return self.passed_on(fault, (name, message), stack, position)

    def passed_on(self, fault: Mapping[str, Any], summary: tuple[str, str], stack: str, position: Position | None) -> Failure:
        """A failure with the class and code of the thrown error, except those reserved for the appliance.

        `summary` is the name and message of the error.
        """
        failure_class, code = fault.get("failure_class"), fault.get("code")
        if code in _OURS or (failure_class == "system" and not self.system_failed):
            failure_class, code = "user_code", None if code in _OURS else code
        return Failure(
            failure_class if failure_class in FAILURE_CLASSES else "user_code",
            *summary,
            stack,
            code if isinstance(code, str) and code else None,
            fault.get("retryable") is True,
            position,
        )


def instead_of(name: str) -> str | None:
    """What to use in a step instead of a global of browsers or Node.js, or None."""
    return _INSTEAD.get(name)


def _hint(message: str) -> str:
    match = _UNDEFINED.match(message)
    return f" in a step; {_INSTEAD[match[1]]}" if match and match[1] in _INSTEAD else ""


def _limit(code: str, message: str) -> Failure:
    return Failure("user_code", "LimitReached", message, code=code)


def _overdue(message: str, code: str) -> Failure:
    return Failure("timeout", "TimedOut", message, code=code, retryable=True)


def _size(count: int) -> str:
    if count >= 1 << 20:
        return f"{count / (1 << 20):.3g} MB"
    return f"{count / 1024:.3g} KB"
