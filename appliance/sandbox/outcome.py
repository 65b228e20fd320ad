"""What comes back from the sandbox."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, cast

FailureClass = Literal["user_code", "connector", "policy", "memory", "timeout", "validation", "system"]
FAILURE_CLASSES = ("user_code", "connector", "policy", "memory", "timeout", "validation", "system")
NAME_CHARACTERS, MESSAGE_CHARACTERS, STACK_CHARACTERS = 200, 8_000, 16_000


@dataclass(frozen=True)
class Position:
    """Where in the source as it was written; lines and columns count from 1."""

    file: str
    line: int
    column: int


@dataclass(frozen=True)
class Failure:
    """Why a run did not succeed; the message says what to do where something can be done."""

    failure_class: FailureClass
    name: str
    message: str
    stack: str = ""
    code: str | None = None
    retryable: bool = False
    position: Position | None = None

    def to_wire(self) -> dict[str, Any]:
        position = self.position
        return {
            "class": self.failure_class,
            "name": _printable(self.name, NAME_CHARACTERS),
            "message": _printable(self.message, MESSAGE_CHARACTERS),
            "stack": _printable(self.stack, STACK_CHARACTERS),
            "code": None if self.code is None else _printable(self.code, NAME_CHARACTERS),
            "retryable": self.retryable,
            "position": None if position is None else [position.file, position.line, position.column],
        }

    @classmethod
    def from_wire(cls, wire: dict[str, Any]) -> Failure:
        known = wire["class"] if wire["class"] in FAILURE_CLASSES else "system"
        position = wire.get("position")
        return cls(
            failure_class=cast("FailureClass", known),
            name=wire["name"],
            message=wire["message"],
            stack=wire.get("stack", ""),
            code=wire.get("code"),
            retryable=wire.get("retryable") is True,
            position=Position(position[0], int(position[1]), int(position[2])) if position else None,
        )


def _printable(text: str, limit: int) -> str:
    """No lone surrogates and no NUL, which stores refuse, and not endless."""
    if len(text) > limit:
        text = text[: limit - 1] + "…"
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode()


@dataclass(frozen=True)
class LogLine:
    at_ms: int
    level: str
    message: str
    fields: Any = None


@dataclass(frozen=True)
class Snapshot:
    """A suspended step: goes on in any process, once, with the same program and memory limit.

    `template`: the digest of the template that `data` is a delta of; `pending`: the calls without an answer.
    `data` checks itself against damage, not against forgery, and holds what the step knows: keep it sealed.
    """

    template: str
    data: bytes
    pending: tuple[int, ...]


@dataclass(frozen=True)
class Outcome:
    """How a visit to the sandbox ended: `failure` is None exactly when the step succeeded or, with `snapshot`, sleeps.

    Logs, figures and `clock`, all clock values that were read, in order, are of this visit;
    `random` says whether the step has asked for its seed by then.
    """

    failure: Failure | None
    output_json: bytes = b"null"
    logs: list[LogLine] = field(default_factory=list)
    clock: list[int] = field(default_factory=list)
    cpu_ms: float = 0.0
    wall_ms: float = 0.0
    memory_bytes: int = 0
    host_calls: int = 0
    snapshot: Snapshot | None = None
    random: bool = False

    @cached_property
    def output(self) -> Any:
        """The output decoded, None on failure; whoever only stores it takes `output_json`."""
        return None if self.failure is not None else json.loads(self.output_json)


@dataclass(frozen=True)
class Evaluated:
    """The value of one expression, or why it has none; positions count within the expression."""

    value: Any = None
    failure: Failure | None = None


@dataclass(frozen=True)
class Problem:
    """Something wrong in a decision model; `pointer` is a JSON pointer into it."""

    pointer: str
    message: str
