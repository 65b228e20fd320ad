"""Counts calls against the caps of rules, in the write that begins each call, so that concurrent calls cannot exceed a cap."""

from appliance.core import clock
from appliance.core.database import db
from appliance.core.errors import BudgetExceeded, PolicyDenied
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.governance.policies.decision import Decision, Obligations
from appliance.governance.subjects import Subject
from appliance.llm import NANO, used_by_execution, used_by_run

HOUR_MS = 3_600_000
PREVIEW_MS = 24 * HOUR_MS
"""How long a preview satisfies a rule with `dry_run_first`."""
_RETENTION_MS = 100 * 24 * HOUR_MS
_ADD = (
    "INSERT INTO governed_use (tenant_id, name, span, calls, used_at) VALUES (?, ?, ?, 1, ?) "
    "ON CONFLICT (tenant_id, name, span) DO UPDATE SET calls = governed_use.calls + 1, used_at = excluded.used_at RETURNING calls"
)


def has_caps(owed: Obligations) -> bool:
    """Whether calls under these obligations are counted or depend on earlier calls."""
    caps = (owed.calls_per_hour, owed.calls_per_run, owed.cost_per_run)
    return owed.dry_run_first or any(cap is not None for cap in caps)


def run_id_of(subject: Subject) -> str:
    """The id of the agent run or execution that a subject acts in; empty if there is none."""
    return subject.run_id or (subject.actor.removeprefix("execution:") if subject.actor.startswith("execution:") else "")


def count_call(scope: TenantScope, subject: Subject, decision: Decision) -> None:
    """Inside the write that begins a call: count it for each matching rule against that rule's caps; BudgetExceeded rolls the
    write back.  Caps per run do not apply outside a run."""
    owed, run = decision.obligations, run_id_of(subject)
    for caps in decision.caps:
        if caps.calls_per_hour is not None:
            _count_one(scope, caps.rule, _this_hour(), caps.calls_per_hour, "hour")
        if caps.calls_per_run is not None and run:
            _count_one(scope, caps.rule, f"run:{run}", caps.calls_per_run, "run")
    if owed.cost_per_run is not None and model_cost(scope, run) >= owed.cost_per_run:
        message = f"the models of this run have used its budget of {owed.cost_per_run:g}"
        raise _exceeded(message, "cost_per_run", decision.rules)


def _count_one(scope: TenantScope, rule: str, span: str, cap: int, per: str) -> None:
    ((calls,),) = db.rows(_ADD, (scope.tenant_id, rule, span, clock.now_ms()))
    if calls > cap:
        raise _exceeded(f"the rule {rule} allows {cap} {'call' if cap == 1 else 'calls'} in one {per}", f"calls_per_{per}", (rule,))


def model_cost(scope: TenantScope, run: str) -> float:
    """The cost of a run's or execution's model calls so far, in the currency of their prices.

    Each model answer is accounted in the write that journals it, so it counts exactly once, even after a crash.
    """
    return (used_by_run(scope, run).cost_nano + used_by_execution(scope, run).cost_nano) / NANO


def record_preview(scope: TenantScope, subject: Subject, digest: str) -> None:
    """Inside a write: record that this subject has previewed the action."""
    db.execute(
        "INSERT INTO action_preview (tenant_id, digest, actor, at) VALUES (?, ?, ?, ?) "
        "ON CONFLICT (tenant_id, digest, actor) DO UPDATE SET at = excluded.at",
        (scope.tenant_id, digest, subject.actor, clock.now_ms()),
    )


def check_preview(scope: TenantScope, subject: Subject, digest: str) -> None:
    """PolicyDenied unless the same subject has previewed exactly this action within `PREVIEW_MS`."""
    sql = "SELECT 1 FROM action_preview WHERE tenant_id = ? AND digest = ? AND actor = ? AND at > ?"
    if not db.rows(sql, (scope.tenant_id, digest, subject.actor, clock.now_ms() - PREVIEW_MS)):
        raise PolicyDenied(
            "a rule requires a preview of exactly this action; send it with mode: preview, check the result, then send it again",
            extra={"reason": "dry_run_first", "action_digest": digest},
        )


def purge() -> int:
    """Delete expired counters and previews of every tenant; returns the number of deleted rows."""
    now = clock.now_ms()

    def delete() -> int:
        deleted = db.execute("DELETE FROM governed_use WHERE span LIKE 'hour:%' AND used_at < ?", (now - 2 * HOUR_MS,))
        deleted += db.execute("DELETE FROM governed_use WHERE used_at < ?", (now - _RETENTION_MS,))
        return deleted + db.execute("DELETE FROM action_preview WHERE at < ?", (now - PREVIEW_MS,))

    return db.write(delete)


def _this_hour() -> str:
    return f"hour:{clock.now_ms() // HOUR_MS}"


def _exceeded(message: str, cap: str, rules: tuple[str, ...]) -> BudgetExceeded:
    extra = {"reason": cap, "rules": list(rules), "retryable": False}
    return BudgetExceeded(Sentence("%(message)s; wait, or ask an owner to raise the cap", message=message), extra=extra)
