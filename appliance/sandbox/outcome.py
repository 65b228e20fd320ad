"""The results that the sandbox returns."""

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
    """A position in the author's source; lines and columns count from 1."""

    file: str
    line: int
    column: int


@dataclass(frozen=True)
class Failure:
    """Why a run failed; where possible, the message says what to do about it."""

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
        failure_class = wire["class"] if wire["class"] in FAILURE_CLASSES else "system"
        position = wire.get("position")
        return cls(
            failure_class=cast("FailureClass", failure_class),
            name=wire["name"],
            message=wire["message"],
            stack=wire.get("stack", ""),
            code=wire.get("code"),
            retryable=wire.get("retryable") is True,
            position=Position(position[0], int(position[1]), int(position[2])) if position else None,
        )


def _printable(text: str, limit: int) -> str:
    """Shorten the text and replace NUL and lone surrogates, which databases refuse."""
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
    """A suspended step, which can resume once in any process with the same program and memory limit.

    `template` is the digest of the template that `data` is a delta of; `pending` are the ids of unanswered calls.
    `data` is protected against damage but not against forgery, and contains the step's variables: store it encrypted.
    """

    template: str
    data: bytes
    pending: tuple[int, ...]


@dataclass(frozen=True)
class Outcome:
    """The result of one visit to the sandbox: `failure` is None if the step succeeded or, with `snapshot`, was suspended.

    Logs, figures and `clock` (all clock values that were read, in order) belong to this visit only; `random` says whether the
    step has read its seed so far.
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
        """The decoded output, None on failure; use `output_json` where it is only stored."""
        return None if self.failure is not None else json.loads(self.output_json)


@dataclass(frozen=True)
class Evaluated:
    """The value of one expression, or its failure; positions are relative to the expression."""

    value: Any = None
    failure: Failure | None = None


@dataclass(frozen=True)
class Problem:
    """A problem in a decision model; `pointer` is a JSON pointer into it."""

    pointer: str
    message: str
