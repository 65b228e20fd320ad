"""One segment of a run, from its claim to its end or next wait; every step is durable before the next one starts."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from appliance.core import clock
from appliance.core.database import db
from appliance.core.errors import ApplianceError, BudgetExceeded, PolicyDenied
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.governance import SkillUsed, Subject, add_taint, kill_switches, source_of_skill
from appliance.governance.approvals import ActionApprovals
from appliance.governance.policies import Decision, ToolAction, active_policies
from appliance.llm import NANO, Generated
from appliance.monitor import audit
from appliance.processes.engine import LONGEST_RETRY_AFTER_S
from appliance.tenants.grants import check_still_allowed

from . import step_updates, store
from .definition import Definition
from .journal import Entry, Journal
from .skills.trust import current_trust
from .step_grants import allows_action
from .store import Claim, RunCancelled
from .tools.tool import Caller
from .tools.toolbox import Toolbox

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelResponse
    from pydantic_ai.models import Model

    from .model import ModelContext

MOST_TRIES = 5
_PAUSES = ("retry", "call")
_FIRST_PAUSE_MS = 2_000


class RunSuspended(Exception):
    """The run is durably suspended and continues when something wakes it."""


class Stopping(Exception):
    """The appliance is shutting down; the run continues after the next start."""


class PolicyEvaluator(Protocol):
    """Evaluates policies for a tool call that shares its transaction with the run's journal."""

    def evaluate(self, scope: TenantScope, subject: Subject, action: ToolAction) -> Decision:
        """Return the decision without recording it."""

    def evaluate_and_audit(self, scope: TenantScope, subject: Subject, action: ToolAction) -> Decision:
        """Return the decision, and record a refusal in the audit trail."""


@dataclass(frozen=True)
class RunDependencies:
    """The services that runs depend on.  `make_model` returns the model of an LLM profile; `describe_skill` returns a skill's
    description for the system prompt, which must not be tainted and so contains only text that a person approved."""

    toolbox: Toolbox
    governor: PolicyEvaluator
    approvals: ActionApprovals
    make_model: "Callable[[str, ModelContext], Model]"
    describe_skill: Callable[[TenantScope, str], str]


@dataclass
class RunSegment:
    """A claimed run with its journal and definition: checks its limits and commits its steps."""

    claim: Claim
    journal: Journal
    definition: Definition
    lease: Callable[[], int]
    is_stopping: Callable[[], bool]
    generated: Generated | None = field(default=None)

    @property
    def subject(self) -> Subject:
        """The run as policies see it: with the skills it has loaded, at the trust they have now."""
        claim = self.claim
        skills = tuple(current_trust(claim.scope, each["name"], each["digest"]) for each in claim.skills)
        subject = Subject(claim.scope.actor, "agent", claim.agent_id, claim.run_id, skills, tuple(claim.tainted_by))
        return add_taint(subject, *(source_of_skill(each.name) for each in skills if not each.is_trusted))

    @property
    def caller(self) -> Caller:
        return Caller(self.claim.scope, self.subject, execution_id=self.claim.execution_id)

    def model_context(self) -> "ModelContext":
        """The context for model calls, with a deadline from the remaining budget of seconds."""
        from .model import ModelContext

        left = self.definition.budget.seconds - self.claim.active_now() / 1000
        return ModelContext(self.claim.scope, self.claim.run_id, clock.monotonic() + max(1.0, left), record=self._keep_generated)

    def _keep_generated(self, generated: Generated, response: "ModelResponse | None") -> None:
        self.generated = generated

    def may_call(self, integration: str, operation: str) -> bool:
        """Whether the definition lists this operation and the step that started the run has a grant for it."""
        is_granted = allows_action(self.claim.granted, integration, operation)
        return is_granted and self.definition.may_call(integration, operation)

    # -- commits

    def commit(self, *entries: Entry, also: Callable[[], Any] | None = None, changes: Mapping[str, Any] | None = None) -> None:
        """Write the entries, whatever `also` writes, and `changes` of the row in one transaction.  LeaseLost."""

        def write() -> list[Entry]:
            numbered = store.commit(self.claim, self.journal, entries, {"lease_until": self.lease(), **(changes or {})})
            if also is not None:
                also()
            return numbered

        for entry in db.write(write):
            self.journal.add(entry)

    def wait(self, why: Mapping[str, Any], due_at: int | None, entries: Sequence[Entry] = ()) -> list[Entry]:
        """Suspend the run, at the latest until `due_at` (epoch ms).  Inside a transaction; raises RunCancelled after a cancel.

        The end of a pause is a duration and moves with the clock; the deadline for a person's decision is a fixed point in time.
        """
        if store.renew_lease(self.claim, self.lease()):
            raise RunCancelled
        changes = {
            "status": "waiting", "waiting_for": dict(why), "next_run_at": due_at, "owner": None,
            "measured_by": clock.boot_id() if why["reason"] in _PAUSES else None,
        }  # fmt: skip
        if self.claim.execution_id is not None:
            step_updates.show_wait(self.claim.scope, self.claim.run_id, why)
        return store.commit(self.claim, self.journal, entries, changes)

    # -- limits

    def check(self) -> None:
        """Check between two steps that the run may continue.

        Raises Stopping, LeaseLost, RunCancelled, PolicyDenied (a kill switch, its starter lost the permission, or a policy that
        it needs is not active), BudgetExceeded (seconds).
        """
        if self.is_stopping():
            raise Stopping
        if db.write(lambda: store.renew_lease(self.claim, self.lease())):
            raise RunCancelled
        scope = self.claim.scope
        kill_switches.check_not_switched_off(scope, self.subject)
        check_still_allowed(scope, self.claim.starter, scope.scopes)
        if self.definition.policies:
            active = {each.name for each in active_policies(scope)}
            if missing := [name for name in self.definition.policies if name not in active]:
                message = Sentence(
                    "the agent requires the policy %(missing)s, which is not active; activate the policy or change the agent",
                    missing=missing[0],
                )
                raise PolicyDenied(message, extra={"reason": "policy_not_active"})
        self._check_budget("seconds", self.claim.active_now() / 1000, self.definition.budget.seconds)

    def _check_budget(self, what: str, used: float, most: float) -> None:
        if used >= most:
            raise BudgetExceeded(
                Sentence(
                    "the run has used up its budget (%(what)s: %(most)s); raise the agent's budget or give the run a smaller task",
                    what=what.replace("_", " "), most=f"{most:g}",
                ),
                extra={"budget": what},
            )

    # -- turns

    def begin_turn(self, turn: int) -> None:
        """Check the budgets and record that the model is about to be called."""
        self.check()
        used, budget = self.claim.used, self.definition.budget
        self._check_budget("turns", turn - 1, budget.turns)
        self._check_budget("tokens", used.input_tokens + used.output_tokens, budget.tokens)
        self._check_budget("cost", used.cost_nano / NANO, budget.cost)
        used.turns = turn
        self.generated = None
        self.commit(Entry("asked", turn, data={"model": self.definition.model}))

    def note_answer(self, turn: int, data: Mapping[str, Any], response: "ModelResponse") -> None:
        """Record the model's answer, and settle its cost in the same transaction."""
        used, usage = self.claim.used, response.usage
        used.input_tokens += usage.input_tokens
        used.output_tokens += usage.output_tokens
        used.cost_nano += self.generated.used.cost_nano if self.generated else 0
        self.commit(Entry("answered", turn, data=data), also=self._settle)

    def note_failure(self, turn: int, error: ApplianceError) -> None:
        """Record that a model call failed; raises Waits if it will be retried, otherwise the caller raises the error."""
        tries = self.journal.failures.get(turn, 0) + 1
        failure = {"code": error.code, "message": error.message, "try": tries}
        entry = Entry("unanswered", turn, data=failure)
        if self.generated is not None:
            used, cost = self.claim.used, self.generated.used
            used.input_tokens += cost.input_tokens
            used.output_tokens += cost.output_tokens
            used.cost_nano += cost.cost_nano
        if not error.extra.get("retryable") or tries >= MOST_TRIES:
            self.commit(entry, also=self._settle)
            return
        retry_after = min(float(error.extra.get("retry_after") or 0), LONGEST_RETRY_AFTER_S)
        pause = int(retry_after * 1000) or _FIRST_PAUSE_MS * 2 ** (tries - 1)
        due_at = clock.now_ms() + pause

        def write() -> None:
            self.wait({"reason": "retry", "message": error.message}, due_at, [entry])
            self._settle()

        try:
            db.write(write)
        except RunCancelled:
            self.commit(entry, also=self._settle)
            raise
        raise RunSuspended

    def _settle(self) -> None:
        if self.generated is not None:
            self.generated.settle(self.claim.scope)

    # -- calls

    def begin_call(self, turn: int, call: int, data: Mapping[str, Any]) -> None:
        """Check the budget and record that a tool is about to be called, unless the journal has that already."""
        self.check()
        if self.journal.call(turn, call).called is None:
            self._check_budget("tool_calls", self.journal.tool_calls, self.definition.budget.tool_calls)
            self.claim.used.tool_calls = self.journal.tool_calls + 1
            self.commit(Entry("called", turn, call, data))

    def note_refusal(self, tool: str, error: PolicyDenied) -> None:
        """Record in the audit trail a call refused by the definition or by grants, before any policy.  Inside a transaction."""
        claim = self.claim
        about = {"actor": claim.scope.actor, "via": "agent", "agent": claim.agent_id, "run": claim.run_id, "tool": tool[:80]}
        details = {**about, "verdict": "deny", "reason": error.extra.get("reason", ""), "reasons": [error.message]}
        audit.record(claim.scope, "policy.deny", tool[:80], details)

    def note_skill(self, used: SkillUsed) -> None:
        """Note that the run has loaded this skill; a newer digest replaces an older one of the same name."""
        others = [each for each in self.claim.skills if each["name"] != used.name]
        self.claim.skills = [*others, {"name": used.name, "digest": used.digest, "is_trusted": used.is_trusted}]

    def sources_with(self, source: str) -> list[str]:
        """The sources that taint the run once it has read this one too."""
        return list(add_taint(self.subject, source).tainted_by)

    def note_sources(self, sources: list[str]) -> None:
        """Taint the run with these sources, from its next step on."""
        self.claim.tainted_by = sources
