"""The inputs of the sandbox: a program, its limits, its entropy, and the host that answers its calls."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import Any, Final, Literal, Protocol

from appliance.core.sentences import Sentence

Language = Literal["typescript", "javascript", "php"]


@dataclass(frozen=True)
class Limits:
    """The limits of one step, over all its visits to the sandbox if it is suspended in between.

    At most `in_flight` calls are sent to the host at once; further ones wait in the sandbox. `snapshot_bytes` is the
    compressed size.
    """

    wall_ms: int = 30_000
    cpu_ms: int = 30_000
    memory_mb: int = 64
    output_bytes: int = 1 << 20
    host_calls: int = 1000
    in_flight: int = 64
    log_bytes: int = 256 << 10
    snapshot_bytes: int = 4 << 20

    def as_list(self) -> list[int]:
        """The values in the order of the fields, from which `Limits(*values)` makes the same limits."""
        return list(vars(self).values())


@dataclass(frozen=True)
class Program:
    """Source files by path; `entry` is the file that runs. Modules import each other by relative path.

    `namespace` (the tenant) is part of the cache key, so identical programs of two tenants are compiled separately.
    """

    language: Language
    entry: str
    files: Mapping[str, str]
    namespace: str = ""

    @cached_property
    def digest(self) -> str:
        """A digest of contents and namespace; computed once per object, so reuse the object of a version."""
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
    """A call that the step made to `api`; ids count from 1 in the order of the calls. `raw` is `args` as JSON text."""

    id: int
    method: str
    args: list[Any]
    raw: bytes = b""


@dataclass(frozen=True)
class Settled:
    """The answer to a call; a `value` of type bytes is JSON already.

    If not `ok`, `value` is {"code", "message", "retryable", "failure_class"?, "details"?} and is thrown in the step as an error.
    """

    id: int
    ok: bool
    value: Any


class Suspend(Enum):
    """Returned by a host instead of a `Settled` to suspend the step."""

    SUSPEND = "suspend"


# Store the step and free its process; unanswered calls stay open and are answered after the resume.
SUSPEND: Final = Suspend.SUSPEND


class Host(Protocol):
    """Answers the calls of one step; all methods run on the thread that called `Pool.run`.

    A host that can end a step while it computes also has `poll() -> None`, which is called several times a second: an exception
    ends the step and propagates to the caller of `Pool.run`, as from `wait`.
    """

    def submit(self, call: HostCall, clock: list[int]) -> None:
        """Accept a call; `clock` contains the clock values (ms) that the step read since its previous call."""

    def wait(self, timeout: float) -> Settled | Suspend | None:
        """Return the next answer, in any order; None if there is none yet; SUSPEND to suspend the step.

        A call may take `timeout` seconds in total. The caller checks after each None whether the process is still alive, so
        return it several times a second. An exception ends the step.
        """


class NoHost:
    """A host for programs that must not call anything: it refuses every call."""

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
    """Makes a run repeatable: the seed of its random numbers, and the clock values (ms) that an earlier run read.

    Math.random uses the lower 64 bits of the seed; `crypto` uses all 256 bits and is as hard to predict as they are.
    """

    seed: int = 0
    clock: Sequence[int] = field(default=())
