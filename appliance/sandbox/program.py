"""What is given to the sandbox: a program, its limits, its entropy, and the host that answers its calls."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import Any, Final, Literal, Protocol, runtime_checkable

from appliance.core.sentences import Sentence

Language = Literal["typescript", "javascript", "php"]


@dataclass(frozen=True)
class Limits:
    """What one step may use, over all its visits to the sandbox when it is suspended in between.

    `in_flight` calls are before the host at once; further ones wait in the sandbox. `snapshot_bytes`: compressed.
    """

    wall_ms: int = 30_000
    cpu_ms: int = 30_000
    memory_mb: int = 64
    output_bytes: int = 1 << 20
    host_calls: int = 1000
    in_flight: int = 64
    log_bytes: int = 256 << 10
    snapshot_bytes: int = 4 << 20


@dataclass(frozen=True)
class Program:
    """Files by path; `entry` is the one that is run. Modules import each other by relative path.

    `namespace` (the tenant) is part of the key of the compiled form: equal text of two tenants is compiled twice.
    """

    language: Language
    entry: str
    files: Mapping[str, str]
    namespace: str = ""

    @cached_property
    def digest(self) -> str:
        """Identifies content and namespace; computed once per object, so keep the object as long as its version."""
        out = hashlib.sha256()
        for part in (
            self.namespace,
            self.language,
            self.entry,
            *(text for pair in sorted(self.files.items()) for text in pair),
        ):
            data = part.encode("utf-8", "surrogatepass")
            out.update(b"%d:" % len(data))
            out.update(data)
        return out.hexdigest()


@dataclass(frozen=True)
class HostCall:
    """One call of `api`; ids are 1, 2, 3 … in the order of the calls. `raw` is `args` as JSON text."""

    id: int
    method: str
    args: list[Any]
    raw: bytes = b""


@dataclass(frozen=True)
class Settled:
    """The answer to a call; bytes are JSON already.

    Not ok: `value` is {"code", "message", "retryable", "failure_class"?, "details"?}, thrown at the caller as an error.
    """

    id: int
    ok: bool
    value: Any


class Suspend(Enum):
    """What a host answers instead of a `Settled` when the step shall sleep."""

    SUSPEND = "suspend"


# Store the step and free its process; calls that have no answer yet stay open, their answers are given after the resume.
SUSPEND: Final = Suspend.SUSPEND


class Host(Protocol):
    """Answers the calls of one step; both methods run on the thread that called `Pool.run`."""

    def submit(self, call: HostCall, clock: list[int]) -> None:
        """Take a call; `clock` are the clock values (ms) that the step read since the previous call."""

    def wait(self, timeout: float) -> Settled | Suspend | None:
        """The next answer, in the order the host chooses; None when there is none yet; SUSPEND stores the step.

        A call may take `timeout` seconds. Whenever None is said it is looked whether the process still lives, so a host
        says it several times a second. An exception ends the step.
        """


@runtime_checkable
class WatchfulHost(Protocol):
    """A host that may end a step while it computes: `poll` is called several times a second, on the thread of the run."""

    def poll(self) -> None:
        """Raise to end the step; the exception passes through, as from `wait`."""


class NoHost:
    """A host for programs that call nothing: it refuses."""

    def __init__(self) -> None:
        self._refused: list[Settled] = []

    def submit(self, call: HostCall, clock: list[int]) -> None:
        fault = {
            "code": "policy_denied",
            "message": Sentence("%(method)s is not available here", method=call.method),
            "retryable": False,
        }
        self._refused.append(Settled(call.id, False, fault))

    def wait(self, timeout: float) -> Settled | None:
        return self._refused.pop(0) if self._refused else None


@dataclass(frozen=True)
class Entropy:
    """What makes a run repeatable: the seed of random numbers, and the clock values (ms) that a former run read.

    Math.random has the lower 64 bits of the seed; `crypto` has all of its 256, and is as hard to guess as they are.
    """

    seed: int = 0
    clock: Sequence[int] = field(default=())
