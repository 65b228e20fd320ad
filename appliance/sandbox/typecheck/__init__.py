"""Type checking of step code by the TypeScript compiler, inside the sandbox: what is asked, and what is found."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, Literal

from appliance.sandbox.wire import encode_json

# How long one check may compute; what needs more stays unchecked, and nobody waits for it.
SECONDS = 4.0
# How long whoever publishes waits at most, for a place and with what others compute meanwhile, before the process is ended.
LONGEST_SECONDS = 5.0
Severity = Literal["error", "warning"]


@dataclass(frozen=True)
class Reach:
    """What code may call, as literals of calls are held against it: names, and what is allowed of each (`*`: all)."""

    integrations: Mapping[str, Sequence[str]] = field(default_factory=dict)
    datapool: Mapping[str, Sequence[str]] = field(default_factory=dict)
    secrets: Sequence[str] = ()
    processes: Sequence[str] = ()
    human: bool = False
    documents: Sequence[str] = ()


@dataclass(frozen=True)
class CodeStep:
    """A step and the file whose default export it runs."""

    id: str
    file: str
    grants: Reach = field(default_factory=Reach)


@dataclass(frozen=True)
class TypedExpression:
    """A JavaScript expression and the TypeScript type of every name it sees."""

    key: str
    text: str
    names: Mapping[str, str]


@dataclass(frozen=True)
class TypeCheck:
    """All code of a process, checked in one program.

    `declarations` declare `interface Steps {[id]: {input, api}}`, the types of what a step's function is given; in a
    step's own file the names StepInput and Api stand for its own, elsewhere for what `declarations` say.
    `grants` are those of modules that no step runs itself; `namespace` is the tenant, for a fair queue.
    """

    files: Mapping[str, str]
    declarations: str
    steps: Sequence[CodeStep]
    grants: Reach = field(default_factory=Reach)
    expressions: Sequence[TypedExpression] = ()
    namespace: str = ""

    @cached_property
    def wire(self) -> bytes:
        return encode_json(
            {
                "files": dict(self.files),
                "declarations": self.declarations,
                "steps": [asdict(each) for each in self.steps],
                "grants": asdict(self.grants),
                "expressions": [asdict(each) for each in self.expressions],
            }
        )

    @cached_property
    def digest(self) -> str:
        return hashlib.sha256(self.namespace.encode() + b"\0" + self.wire).hexdigest()


@dataclass(frozen=True)
class Finding:
    """Something the compiler does not accept; lines and columns count from 1.

    `file` is empty and `expression` a key where it is in an expression. `missing` is the (kind, name, detail) of a call
    beyond its grants; `code` is the compiler's number, 0 for such calls.
    """

    file: str
    line: int
    column: int
    code: int
    message: str
    severity: Severity
    expression: str | None = None
    missing: tuple[str, str, str] | None = None

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> Finding:
        missing = wire.get("missing")
        return cls(
            file=str(wire.get("file", "")),
            line=int(wire["line"]),
            column=int(wire["column"]),
            code=int(wire["code"]),
            message=str(wire["message"])[:4000],
            severity="warning" if wire["severity"] == "warning" else "error",
            expression=wire.get("expression"),
            missing=(str(missing[0]), str(missing[1]), str(missing[2])) if missing else None,
        )


class FindingsCache:
    """The answers to the most recent checks: what validates a draft and then publishes it asks twice."""

    def __init__(self, most: int = 64) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._findings: OrderedDict[str, list[Finding]] = OrderedDict()

    def get(self, digest: str) -> list[Finding] | None:
        with self._lock:
            return self._findings.get(digest)

    def put(self, digest: str, findings: list[Finding]) -> None:
        with self._lock:
            self._findings[digest] = findings
            while len(self._findings) > self._most:
                self._findings.popitem(last=False)
