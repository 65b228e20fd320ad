"""One stretch of a run: from its claim to its end or its next wait; every step is durable before the next begins."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from appliance.core import clock
from appliance.core.database import db
from appliance.core.errors import ApplianceError, BudgetExceeded, PolicyDenied
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.governance import SkillUsed, Subject, source_of_skill, switches, tainted
from appliance.governance.approvals import ActionApprovals
from appliance.governance.policies import Decision, ToolAction, active_policies
from appliance.llm import NANO, Generated
from appliance.monitor import audit
from appliance.processes.engine import LONGEST_RETRY_AFTER_S
from appliance.tenants.grants import refuse_departed

from . import answers, store
from .definition import Definition
from .granting import allows_action
from .journal import Entry, Journal
from .skills.trust import used_now
from .store import Claim, RunCancelled
from .tools.tool import Caller
from .tools.toolbox import Toolbox

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelResponse
    from pydantic_ai.models import Model

    from .model import Asker

MOST_TRIES = 5
_PAUSES = ("retry", "call")
_FIRST_PAUSE_MS = 2_000


class Waits(Exception):
    """The run waits, durably; whatever wakes it drives it on."""


class Stopping(Exception):
    """The appliance stops; the run goes on after the next start."""


class Judges(Protocol):
    """The governor, as runs ask it before a call that shares their write."""

    def consider(self, scope: TenantScope, subject: Subject, action: ToolAction) -> Decision:
        """What would be decided; it leaves no trace."""

    def judge(self, scope: TenantScope, subject: Subject, action: ToolAction) -> Decision:
        """What holds, and a refusal is in the audit trail."""


@dataclass(frozen=True)
class Means:
    """What runs are driven with.  `make_model` gives the model behind an LLM profile; `describe_skill` what stands of a
    skill above the conversation, which nothing taints: only words that a person has approved."""

    toolbox: Toolbox
    governor: Judges
    approvals: ActionApprovals
    make_model: "Callable[[str, Asker], Model]"
    describe_skill: Callable[[TenantScope, str], str]


@dataclass
class Stretch:
    """A claimed run, its journal and its definition."""

    claim: Claim
    journal: Journal
    definition: Definition
    lease: Callable[[], int]
    is_stopping: Callable[[], bool]
    generated: Generated | None = field(default=None)

    @property
    def subject(self) -> Subject:
        """The run as policies see it now: with the skills of then, and the trust that people have in them now."""
        claim = self.claim
        skills = tuple(used_now(claim.scope, each["name"], each["digest"]) for each in claim.skills)
        subject = Subject(claim.scope.actor, "agent", claim.agent_id, claim.run_id, skills, tuple(claim.tainted_by))
        return tainted(subject, *(source_of_skill(each.name) for each in skills if not each.is_trusted))

    @property
    def caller(self) -> Caller:
        return Caller(self.claim.scope, self.subject, execution_id=self.claim.execution_id)

    def asker(self) -> "Asker":
        """Who asks the model, as long as the budget of seconds lasts."""
        from .model import Asker

        left = self.definition.budget.seconds - self.claim.active_now() / 1000
        return Asker(self.claim.scope, self.claim.run_id, clock.monotonic() + max(1.0, left), record=self._keep_generated)

    def _keep_generated(self, generated: Generated, response: "ModelResponse | None") -> None:
        self.generated = generated

    def may_call(self, integration: str, operation: str) -> bool:
        """Whether the definition lists this operation, and the step that started the run is granted it."""
        is_granted = allows_action(self.claim.granted, integration, operation)
        return is_granted and self.definition.may_call(integration, operation)

    # -- what is durable

    def commit(self, *entries: Entry, also: Callable[[], Any] | None = None, changes: Mapping[str, Any] | None = None) -> None:
        """The entries, whatever `also` writes, and `changes` of the row, at once or not at all.  Fenced."""

        def write() -> list[Entry]:
            numbered = store.commit(self.claim, self.journal, entries, {"lease_until": self.lease(), **(changes or {})})
            if also is not None:
                also()
            return numbered

        for entry in db.write(write):
            self.journal.add(entry)

    def wait(self, why: Mapping[str, Any], due_at: int | None, entries: Sequence[Entry] = ()) -> list[Entry]:
        """Inside a write: the run waits from now on, at the latest until `due_at`.  RunCancelled when a cancel has come.

        The end of a pause is a duration; until when people may decide is a point in time.
        """
        if store.prolong(self.claim, self.lease()):
            raise RunCancelled
        changes = {
            "status": "waiting", "waiting_for": db.dump_json(why), "next_run_at": due_at, "owner": None,
            "measured_by": clock.boot_id() if why["reason"] in _PAUSES else None,
        }  # fmt: skip
        if self.claim.execution_id is not None:
            answers.tell_wait(self.claim.scope, self.claim.run_id, why)
        return store.commit(self.claim, self.journal, entries, changes)

    # -- what may stop it

    def check(self) -> None:
        """Between two steps: Stopping, Fenced, RunCancelled, PolicyDenied (switched off, whoever started it may no longer, or a
        policy it needs is not active), BudgetExceeded (seconds)."""
        if self.is_stopping():
            raise Stopping
        if db.write(lambda: store.prolong(self.claim, self.lease())):
            raise RunCancelled
        scope = self.claim.scope
        switches.refuse_switched_off(scope, self.subject)
        refuse_departed(scope, self.claim.starter, scope.scopes)
        if self.definition.policies:
            active = {each.name for each in active_policies(scope)}
            if missing := [name for name in self.definition.policies if name not in active]:
                told = Sentence(
                    "the agent needs the policy %(missing)s, which is not active; activate it, or change the agent",
                    missing=missing[0],
                )
                raise PolicyDenied(told, extra={"reason": "policy_not_active"})
        self._within("seconds", self.claim.active_now() / 1000, self.definition.budget.seconds)

    def _within(self, what: str, used: float, most: float) -> None:
        if used >= most:
            raise BudgetExceeded(
                Sentence(
                    "the run has used its budget (%(what)s: %(most)s); give the agent more, or the run less to do",
                    what=what.replace("_", " "), most=f"{most:g}",
                ),
                extra={"budget": what},
            )

    # -- turns

    def begin_turn(self, turn: int) -> None:
        """A model is about to be asked."""
        self.check()
        used, budget = self.claim.used, self.definition.budget
        self._within("turns", turn - 1, budget.turns)
        self._within("tokens", used.input_tokens + used.output_tokens, budget.tokens)
        self._within("cost", used.cost_nano / NANO, budget.cost)
        used.turns = turn
        self.generated = None
        self.commit(Entry("asked", turn, data={"model": self.definition.model}))

    def note_answer(self, turn: int, data: Mapping[str, Any], response: "ModelResponse") -> None:
        """A model has answered; what it cost is settled with it."""
        used, usage = self.claim.used, response.usage
        used.input_tokens += usage.input_tokens
        used.output_tokens += usage.output_tokens
        used.cost_nano += self.generated.used.cost_nano if self.generated else 0
        self.commit(Entry("answered", turn, data=data), also=self._settle)

    def note_failure(self, turn: int, error: ApplianceError) -> None:
        """A model has not answered: Waits where asking again may help; otherwise nothing, and the error stands."""
        tries = self.journal.failures.get(turn, 0) + 1
        told = {"code": error.code, "message": error.message, "try": tries}
        entry = Entry("unanswered", turn, data=told)
        if self.generated is not None:
            used, cost = self.claim.used, self.generated.used
            used.input_tokens += cost.input_tokens
            used.output_tokens += cost.output_tokens
            used.cost_nano += cost.cost_nano
        if not error.extra.get("retryable") or tries >= MOST_TRIES:
            self.commit(entry, also=self._settle)
            return
        asked = min(float(error.extra.get("retry_after") or 0), LONGEST_RETRY_AFTER_S)
        pause = int(asked * 1000) or _FIRST_PAUSE_MS * 2 ** (tries - 1)
        due_at = clock.now_ms() + pause

        def write() -> None:
            self.wait({"reason": "retry", "message": error.message}, due_at, [entry])
            self._settle()

        try:
            db.write(write)
        except RunCancelled:
            self.commit(entry, also=self._settle)
            raise
        raise Waits

    def _settle(self) -> None:
        if self.generated is not None:
            self.generated.settle(self.claim.scope)

    # -- calls

    def begin_call(self, turn: int, call: int, data: Mapping[str, Any]) -> None:
        """A tool is about to be called, unless it was before."""
        self.check()
        if self.journal.call(turn, call).begun is None:
            self._within("tool_calls", self.journal.tool_calls, self.definition.budget.tool_calls)
            self.claim.used.tool_calls = self.journal.tool_calls + 1
            self.commit(Entry("called", turn, call, data))

    def note_refusal(self, tool: str, error: PolicyDenied) -> None:
        """Inside a write: a call that came before no policy, as its definition or its grants refuse it, in the audit trail."""
        claim = self.claim
        about = {"actor": claim.scope.actor, "via": "agent", "agent": claim.agent_id, "run": claim.run_id, "tool": tool[:80]}
        told = {**about, "verdict": "deny", "reason": error.extra.get("reason", ""), "reasons": [error.message]}
        audit.record(claim.scope, "policy.deny", tool[:80], told)

    def note_skill(self, used: SkillUsed) -> None:
        """From its next step on the run follows this skill; the newest digest of a name is the one that counts."""
        others = [each for each in self.claim.skills if each["name"] != used.name]
        self.claim.skills = [*others, {"name": used.name, "digest": used.digest, "is_trusted": used.is_trusted}]

    def note_sources(self, subject: Subject) -> None:
        """From its next step on the run counts as having read what this subject has."""
        self.claim.tainted_by = list(subject.tainted_by)
