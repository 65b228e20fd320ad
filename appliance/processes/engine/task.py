"""The input and the result of a step's attempt, and the services it may use."""

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from appliance.core.crypto import Sealer
from appliance.documents import Documents
from appliance.formats import Formats
from appliance.processes.definitions.compiled import CompiledVersion
from appliance.processes.definitions.nodes import Grants, Step
from appliance.processes.host.agent_runs import Agents
from appliance.processes.host.model_calls import ModelCalls
from appliance.processes.host.protocols import Actions, PreparedData
from appliance.sandbox import LogLine, Pool

from .failures import StepFailed
from .store import Claim, JournalEntry
from .suspension import StoredVM
from .tracing import span_key
from .waits import Children


@dataclass(frozen=True)
class StepServices:
    """The services and limits that steps use.  `submit_io` runs work of a tenant in a thread, `submit_call` the same with a
    deadline, for host calls of step code."""

    pool: Pool
    data: PreparedData
    actions: Actions
    submit_io: Callable[[str, Callable[[], Any]], "Future[Any]"]
    submit_call: Callable[[str, Callable[[], Any]], "Future[Any]"]
    default_time_ms: int
    default_memory_mb: int
    output_bytes: int
    answer_bytes: int
    host_calls: int
    max_wait_ms: int
    max_items: int
    sealer: Sealer
    children: Children
    documents: Documents
    models: ModelCalls
    formats: Formats
    agents: Agents


@dataclass(frozen=True)
class Task:
    """One attempt of a step run: the names it can use, its filled-in settings and its time limit.

    `is_rerun`: this attempt may have been started before, so its journal is loaded.
    """

    step: Step
    iteration: str
    attempt: int
    claim: Claim
    compiled: CompiledVersion
    names: Mapping[str, Any]
    filled: Mapping[str, Any]
    input: Any
    now: int
    time_ms: int
    is_cancelled: Callable[[], bool]
    is_rerun: bool = False

    @property
    def run_key(self) -> tuple[str, str, int]:
        return self.step.path, self.iteration, self.attempt

    @property
    def grants(self) -> Grants:
        """What the step may access: its own grants, or those of the process."""
        return self.step.grants or self.compiled.definition.grants

    def wall_ms(self, default_ms: int, used_ms: int = 0) -> int:
        """The step's total time limit: its own or the default, but no more than the execution has left beyond the `used_ms`
        already spent."""
        return min(self.time_ms + used_ms, self.step.limits.time_ms or default_ms)

    @property
    def idempotency_scope(self) -> str:
        """Identifies this step run in idempotency keys; the same for every attempt."""
        return ".".join(part for part in (self.step.path, self.iteration) if part)

    @property
    def span_key(self) -> str:
        """Identifies this step run in traces."""
        return span_key(self.step.path, self.iteration)


@dataclass(frozen=True)
class Suspension:
    """A step to suspend: its VM, when it is due at the latest (called inside the commit), and clock values to record with its
    last call."""

    stored: StoredVM
    next_due: Callable[[], int]
    clock: list[int]


@dataclass
class Result:
    """The result of an attempt.

    `in_commit` runs inside the commit that records it and returns the output; `settle` runs there too and returns the whole
    result (`is_own`: it changes rows of this execution only).  `is_cached`: it comes from an earlier execution; `cache_digest` is
    the digest under which to cache it.  `measured_by`: the boot id of the machine that measures the duration until `next_run_at`.
    """

    output: Any = None
    status: str = "succeeded"
    state: Any = None
    next_run_at: int | None = None
    measured_by: str | None = None
    in_commit: Callable[[], Any] | None = None
    journal: list[JournalEntry] = field(default_factory=list)
    logs: list[LogLine] = field(default_factory=list)
    suspending: Suspension | None = None
    is_cached: bool = False
    cache_digest: str | None = None
    settle: "Callable[[], Result | StepFailed] | None" = None
    is_own: bool = False

    @property
    def is_shared(self) -> bool:
        """Whether its commit may be a shared write."""
        return self.settle is None or self.is_own

    @property
    def is_open(self) -> bool:
        """Whether the result is only known after its commit."""
        return self.in_commit is not None or self.settle is not None
