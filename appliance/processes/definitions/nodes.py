"""A process definition as typed data, built by the parser and walked by the engine; pure, no database."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from .template import Template

BLOCK_KINDS = ("branch", "for_each", "parallel")
KINDS = (
    "rule", "code", "integration", "datapool", "file", "ocr", "llm", "agent", "human", "process", "wait", "stop", *BLOCK_KINDS,
)  # fmt: skip
# Kinds that may wait for an answer from outside; the wait must be closed when the step ends.
WAITING_KINDS = ("agent", "code", "human", "llm", "process", "wait")
FAILURE_CLASSES = ("user_code", "connector", "timeout", "memory", "system", "policy", "validation")
AFTER_FAILURE = "on_failure"  # the path prefix of its steps
MAX_STEPS = 1000
MAX_DEPTH = 8
MAX_BRANCHES = 50
MAX_EVENT_NAME = 200


Severity = Literal["error", "warning"]


@dataclass(frozen=True)
class Problem:
    """A problem in a definition: where (JSON pointer; file, line and column where known), a code and a sentence.

    A warning does not prevent publishing.
    """

    pointer: str
    code: str
    message: str
    file: str | None = None
    line: int | None = None
    column: int | None = None
    severity: Severity = "error"


@dataclass(frozen=True)
class Retry:
    """The retry policy for attempts that failed with one of `classes`; times in milliseconds."""

    max_attempts: int = 1
    backoff: Literal["constant", "exponential"] = "exponential"
    initial_ms: int = 1_000
    max_ms: int = 60_000
    jitter: bool = True
    classes: tuple[str, ...] = ("connector", "timeout", "system")

    def delay_ms(self, attempt: int, fraction: float) -> int:
        """The delay after attempt number `attempt`; `fraction` in [0, 1) spreads it over the upper half (jitter)."""
        delay = self.initial_ms * (2 ** min(attempt - 1, 30) if self.backoff == "exponential" else 1)
        delay = min(delay, self.max_ms)
        return int(delay * (0.5 + fraction / 2)) if self.jitter else delay


@dataclass(frozen=True)
class Cache:
    """How long an output is cached across executions; `key` is what it depends on (None: the step's whole input)."""

    ttl_ms: int
    key: Template | None = None


@dataclass(frozen=True)
class StepLimits:
    """Resource limits of a step; None means the appliance's default."""

    time_ms: int | None = None
    cpu_ms: int | None = None
    memory_mb: int | None = None


@dataclass(frozen=True)
class Block:
    """A list of steps that run in order: an option of a branch, the body of a for_each, a named branch of a parallel."""

    steps: tuple["Step", ...]
    when: Template | None = None
    collect: Template | None = None
    name: str = ""


@dataclass(frozen=True)
class Step:
    """One step.  `path` joins the ids of the enclosing steps; `settings` and `templates` are the parsed member of its kind.

    `mock` replaces its output, in tests only.
    """

    id: str
    kind: str
    path: str
    pointer: str
    settings: Mapping[str, Any]
    templates: Mapping[str, Template]
    when: Template | None = None
    retry: tuple[Retry, ...] = ()
    limits: StepLimits = field(default_factory=StepLimits)
    blocks: tuple[Block, ...] = ()
    grants: "Grants | None" = None
    mock: Template | None = None
    continue_on_error: tuple[str, ...] = ()
    cache: Cache | None = None
    undo: tuple["Step", ...] = ()

    @cached_property
    def is_volatile(self) -> bool:
        """Whether evaluating the settings again may give another value because they use the clock (they have no randomness)."""
        return any("Date" in expression.text for template in self.templates.values() for expression in template.expressions)

    @property
    def option_templates(self) -> tuple[Template | None, ...]:
        """The templates of the options any step may have, without those of its kind."""
        return self.when, self.mock, self.cache.key if self.cache else None

    def continues_after(self, error: Mapping[str, Any] | None) -> bool:
        """Whether the process continues although this step failed with `error`; the step still counts as failed."""
        return error is not None and error.get("failure_class") in self.continue_on_error

    @property
    def keeps_errors(self) -> bool:
        """Whether later expressions find the step in `errors`, with its error or null."""
        return bool(self.continue_on_error) or (self.kind == "for_each" and self.settings["on_error"] != "stop")


@dataclass(frozen=True)
class Grants:
    """What code may access; everything else is denied.  `*` stands for every action of an integration."""

    integrations: Mapping[str, frozenset[str]] = field(default_factory=dict)
    datapool: Mapping[str, frozenset[str]] = field(default_factory=dict)
    processes: frozenset[str] = frozenset()
    secrets: frozenset[str] = frozenset()
    human: bool = False
    llm: frozenset[str] = frozenset()
    documents: frozenset[str] = frozenset()

    def allows_action(self, integration: str, action: str) -> bool:
        actions = self.integrations.get(integration, frozenset())
        return "*" in actions or action in actions

    def allows_data(self, collection: str, access: str) -> bool:
        return access in self.datapool.get(collection, frozenset())


@dataclass(frozen=True)
class Trigger:
    """Starts executions automatically.  `settings` is the member of its kind without `input`, with all defaults filled in;
    `sources` is what it listens to: a path, collections, processes."""

    id: str
    kind: str
    pointer: str
    settings: Mapping[str, Any]
    sources: tuple[str, ...] = ()
    input: Template | None = None


@dataclass(frozen=True)
class OnFailure:
    """What happens when an execution fails or times out: a process is started, or steps run in the same execution."""

    process: str | None = None
    steps: tuple[Step, ...] = ()


@dataclass(frozen=True)
class Definition:
    """A valid definition."""

    id: str
    name: str
    steps: tuple[Step, ...]
    input_schema: Mapping[str, Any] | None
    output: Template | None
    grants: Grants
    timeout_ms: int | None
    triggers: tuple[Trigger, ...] = ()
    on_failure: OnFailure = OnFailure()

    def all_steps(self) -> Iterator[Step]:
        """Every step, outer before inner, in order; those of `on_failure` last."""
        yield from _walk((*self.steps, *self.on_failure.steps))

    @cached_property
    def compensation_paths(self) -> frozenset[str]:
        """The paths of steps that run only once the execution has failed or is cancelled."""
        roots = [*self.on_failure.steps, *(inner for step in self.all_steps() for inner in step.undo)]
        return frozenset(step.path for step in _walk(tuple(roots)))


def _walk(steps: tuple[Step, ...]) -> Iterator[Step]:
    for step in steps:
        yield step
        for block in step.blocks:
            yield from _walk(block.steps)
        yield from _walk(step.undo)


class DefinitionProblems(Exception):
    """Every problem of a definition; `partial` is what could be parsed, so that further checks can run on it."""

    def __init__(self, problems: list[Problem], partial: Definition | None = None) -> None:
        super().__init__(problems[0].message if problems else "")
        self.problems = problems
        self.partial = partial
