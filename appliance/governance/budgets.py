"""What runs and rules have used up: counted in the write that begins a call, so that many at once cannot exceed a cap."""

from dataclasses import dataclass

from appliance.core import clock, db
from appliance.core.errors import BudgetExceeded, PolicyDenied
from appliance.core.scope import TenantScope
from appliance.governance.policies.decision import Decision, Obligations
from appliance.governance.subjects import Subject

HOUR_MS = 3_600_000
PREVIEW_MS = 24 * HOUR_MS
"""For so long a preview counts as one that was made before."""
_KEPT_MS = 100 * 24 * HOUR_MS
_MICRO = 1_000_000
_SPENT = "spending"
_ADD = (
    "INSERT INTO governed_use (tenant_id, name, span, calls, tokens, micro_usd, used_at) VALUES (?, ?, ?, ?, ?, ?, ?) "
    "ON CONFLICT (tenant_id, name, span) DO UPDATE SET calls = governed_use.calls + excluded.calls, "
    "tokens = governed_use.tokens + excluded.tokens, micro_usd = governed_use.micro_usd + excluded.micro_usd, "
    "used_at = excluded.used_at RETURNING calls, tokens, micro_usd"
)


@dataclass(frozen=True)
class Used:
    """What was used up in a span: calls, tokens, and what they cost in US dollars."""

    calls: int = 0
    tokens: int = 0
    cost: float = 0.0


@dataclass(frozen=True)
class Budget:
    """What an agent, or whatever else has a name, may use up in one run and in one hour; None is no bound."""

    calls_per_run: int | None = None
    calls_per_hour: int | None = None
    tokens_per_run: int | None = None
    tokens_per_hour: int | None = None
    cost_per_run: float | None = None
    cost_per_hour: float | None = None


def has_caps(owed: Obligations) -> bool:
    """Whether calls under these obligations are counted or depend on what came before."""
    caps = (owed.calls_per_hour, owed.calls_per_run, owed.cost_per_run)
    return owed.dry_run_first or any(cap is not None for cap in caps)


def run_of(subject: Subject) -> str:
    """The run a subject acts in: an agent's, or the execution."""
    return subject.run_id or (subject.actor.removeprefix("execution:") if subject.actor.startswith("execution:") else "")


def count(scope: TenantScope, subject: Subject, decision: Decision) -> None:
    """Inside the write that begins a call: count it for each rule that holds, against that rule's own caps; BudgetExceeded
    undoes that with the write.  Who acts in no run has no caps of a run."""
    owed, run = decision.obligations, run_of(subject)
    for caps in decision.caps:
        if caps.calls_per_hour is not None:
            _count_one(scope, caps.rule, _this_hour(), caps.calls_per_hour, "hour")
        if caps.calls_per_run is not None and run:
            _count_one(scope, caps.rule, f"run:{run}", caps.calls_per_run, "run")
    if owed.cost_per_run is not None and used(scope, _SPENT, f"run:{run}").cost >= owed.cost_per_run:
        told = f"this run has spent the {owed.cost_per_run:g} US dollars that its rules allow"
        raise _exceeded(told, "cost_per_run", decision.rules)


def _count_one(scope: TenantScope, rule: str, span: str, cap: int, per: str) -> None:
    if _add(scope, rule, span, Used(calls=1)).calls > cap:
        raise _exceeded(f"the rule {rule} allows {cap} calls in one {per}", f"calls_per_{per}", (rule,))


def charge(scope: TenantScope, subject: Subject, *, tokens: int = 0, cost: float = 0.0, calls: int = 0) -> None:
    """Inside a write: what the run of an agent has used up, on its own account and on its agent's of this hour."""
    spent = Used(calls, tokens, cost)
    _add(scope, _SPENT, f"run:{run_of(subject)}", spent)
    if subject.agent:
        _add(scope, f"agent:{subject.agent}", _this_hour(), spent)


def refuse_spent(scope: TenantScope, subject: Subject, budget: Budget) -> None:
    """BudgetExceeded once the run, or its agent in this hour, has used up what it may."""
    run, hour = used(scope, _SPENT, f"run:{run_of(subject)}"), used(scope, f"agent:{subject.agent}", _this_hour())
    caps = (
        ("calls_per_run", run.calls, budget.calls_per_run), ("calls_per_hour", hour.calls, budget.calls_per_hour),
        ("tokens_per_run", run.tokens, budget.tokens_per_run), ("tokens_per_hour", hour.tokens, budget.tokens_per_hour),
        ("cost_per_run", run.cost, budget.cost_per_run), ("cost_per_hour", hour.cost, budget.cost_per_hour),
    )  # fmt: skip
    for name, spent, cap in caps:
        if cap is not None and spent >= cap:
            raise _exceeded(f"the budget {name} of {subject.agent or subject.actor} is used up ({spent:g} of {cap:g})", name, ())


def used(scope: TenantScope, name: str, span: str) -> Used:
    """What was used up under a name in a span."""
    sql = "SELECT calls, tokens, micro_usd FROM governed_use WHERE tenant_id = ? AND name = ? AND span = ?"
    rows = db.rows(sql, (scope.tenant_id, name, span))
    return Used(int(rows[0][0]), int(rows[0][1]), rows[0][2] / _MICRO) if rows else Used()


def note_preview(scope: TenantScope, subject: Subject, digest: str) -> None:
    """Inside a write: this subject has seen what the action would do."""
    db.execute(
        "INSERT INTO action_preview (tenant_id, digest, actor, at) VALUES (?, ?, ?, ?) "
        "ON CONFLICT (tenant_id, digest, actor) DO UPDATE SET at = excluded.at",
        (scope.tenant_id, digest, subject.actor, clock.now_ms()),
    )


def refuse_unseen(scope: TenantScope, subject: Subject, digest: str) -> None:
    """PolicyDenied unless the same subject has had a preview of exactly this action within a day."""
    sql = "SELECT 1 FROM action_preview WHERE tenant_id = ? AND digest = ? AND actor = ? AND at > ?"
    if not db.rows(sql, (scope.tenant_id, digest, subject.actor, clock.now_ms() - PREVIEW_MS)):
        raise PolicyDenied(
            "a rule wants a preview of exactly this action first; send it with mode: preview, look at it, and send it again",
            extra={"reason": "dry_run_first", "action_digest": digest},
        )


def purge() -> int:
    """Forget what counts no more, in every tenant; answers how much that was."""
    now = clock.now_ms()

    def forget() -> int:
        gone = db.execute("DELETE FROM governed_use WHERE span LIKE 'hour:%' AND used_at < ?", (now - 2 * HOUR_MS,))
        gone += db.execute("DELETE FROM governed_use WHERE used_at < ?", (now - _KEPT_MS,))
        return gone + db.execute("DELETE FROM action_preview WHERE at < ?", (now - PREVIEW_MS,))

    return db.write(forget)


def _add(scope: TenantScope, name: str, span: str, more: Used) -> Used:
    given = (scope.tenant_id, name, span, more.calls, more.tokens, round(more.cost * _MICRO), clock.now_ms())
    ((calls, tokens, micro),) = db.rows(_ADD, given)
    return Used(int(calls), int(tokens), micro / _MICRO)


def _this_hour() -> str:
    return f"hour:{clock.now_ms() // HOUR_MS}"


def _exceeded(message: str, cap: str, rules: tuple[str, ...]) -> BudgetExceeded:
    extra = {"reason": cap, "rules": list(rules), "retryable": False}
    return BudgetExceeded(f"{message}; wait, or have an owner raise the cap", extra=extra)
