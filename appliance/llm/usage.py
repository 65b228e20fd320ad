"""Usage and budgets of models: reserved before a call, settled with its actual usage, summed by day, execution and run.

A budget is exceeded by one call at most: the most that calls in progress may use counts as used until they are settled.
Functions that write run inside `db.write`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from appliance.core import clock, ids
from appliance.core.database import db
from appliance.core.errors import BudgetExceeded
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.quotas import KINDS, find_limit, make_refusal, notices
from appliance.tenants import starters

if TYPE_CHECKING:
    from .profile import Budget, Profile

DAY_MS = 86_400_000
TENANT_QUOTAS = ("llm_tokens_per_day", "llm_tokens_per_month", "llm_cost_per_day", "llm_cost_per_month")
# Longer than any step may take: an older reservation belongs to a process that has died.
LOST_MS = 3_600_000
NANO = 10**9
_COLUMNS = "calls, input_tokens, output_tokens, cost_nano"
_RESERVED = "id, profile, execution_id, place, run_id, input_tokens, output_tokens, cost_nano"


@dataclass(frozen=True)
class UsageSum:
    """A sum of usage; `cost_nano` is in billionths of the currency's unit."""

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_nano: int = 0

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens

    def minus(self, other: "UsageSum") -> "UsageSum":
        return self.plus(UsageSum(-other.calls, -other.input_tokens, -other.output_tokens, -other.cost_nano))

    def plus(self, other: "UsageSum") -> "UsageSum":
        return UsageSum(
            self.calls + other.calls, self.input_tokens + other.input_tokens, self.output_tokens + other.output_tokens,
            self.cost_nano + other.cost_nano,
        )  # fmt: skip


@dataclass(frozen=True)
class Origin:
    """The caller: an execution or an agent run, and the place in it, which makes one call at a time.

    The place is the step, iteration, attempt and call, or the turn of a run.
    """

    execution_id: str | None = None
    place: str | None = None
    run_id: str | None = None


@dataclass(frozen=True)
class Reservation:
    """A call that is about to be sent, and the most it may use."""

    id: str
    profile: str
    origin: Origin
    most: UsageSum


def reserve(scope: TenantScope, slug: str, profile: "Profile", origin: Origin, most: UsageSum) -> Reservation:
    """Reserve usage for a call before it is sent; BudgetExceeded if actual and reserved usage have reached a budget.

    An earlier call of the same place that was never settled is counted with the most it may have used.
    """
    mine = "AND place = ? AND (execution_id = ? OR run_id = ?)"
    for row in _open(scope, mine, (origin.place, origin.execution_id, origin.run_id)):
        settle(scope, _reservation(row), None)
    _check(scope, slug, profile, origin)
    check_tenant(scope)
    reservation = Reservation(ids.new("use"), slug, origin, most)
    db.execute(
        f"INSERT INTO llm_reservation (tenant_id, {_RESERVED}, at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",  # noqa: S608
        (
            scope.tenant_id, reservation.id, slug, origin.execution_id, origin.place, origin.run_id, most.input_tokens,
            most.output_tokens, most.cost_nano, clock.now_ms(),
        ),
    )  # fmt: skip
    return reservation


def settle(scope: TenantScope, reservation: Reservation, used: UsageSum | None) -> None:
    """Settle a finished call with its actual usage; None if that is unknown, which counts the most it may have used.

    A reservation is settled once; later calls have no effect.
    """
    mine = (scope.tenant_id, reservation.id)
    if not db.execute("DELETE FROM llm_reservation WHERE tenant_id = ? AND id = ?", mine):
        return
    counted = reservation.most if used is None else used
    if not counted.calls:
        return
    today = day_of(clock.now_ms())
    _add(scope, "llm_usage", ("profile", "day"), (reservation.profile, today), counted)
    if reservation.origin.run_id is not None:
        run = reservation.origin.run_id, reservation.profile, today
        _add(scope, "llm_run_usage", ("run_id", "profile", "day"), run, counted)
    execution_id = reservation.origin.execution_id
    if execution_id is not None and starters.find_starter(scope, "execution", execution_id) is not None:  # it may be deleted
        _add(scope, "llm_execution_usage", ("execution_id", "profile"), (execution_id, reservation.profile), counted)


def book(scope: TenantScope, slug: str, day: str, used: UsageSum) -> None:
    """Add usage of a profile on that day that had no reservation here; inside a write."""
    _add(scope, "llm_usage", ("profile", "day"), (slug, day), used)


def _add(scope: TenantScope, table: str, keys: Sequence[str], values: Sequence[str], used: UsageSum) -> None:
    names = ", ".join(("tenant_id", *keys))
    sums = ", ".join(f"{name} = {table}.{name} + excluded.{name}" for name in _COLUMNS.split(", "))
    db.execute(
        f"INSERT INTO {table} ({names}, {_COLUMNS}) VALUES ({', '.join('?' * (len(keys) + 5))}) "  # noqa: S608 our own names
        f"ON CONFLICT ({names}) DO UPDATE SET {sums}",
        (scope.tenant_id, *values, used.calls, used.input_tokens, used.output_tokens, used.cost_nano),
    )


def settle_lost() -> int:
    """Settle the calls of processes that have died with the most they may have used, in a write of its own; returns the count."""

    def close() -> int:
        rows = db.rows(
            f"SELECT tenant_id, {_RESERVED} FROM llm_reservation WHERE at < ? LIMIT 500",  # noqa: S608 our own names
            (clock.now_ms() - LOST_MS,),
        )
        for tenant_id, *row in rows:
            settle(TenantScope(tenant_id, "system"), _reservation(tuple(row)), None)
        return len(rows)

    return db.write(close)


def purge(before_ms: int) -> None:
    """Delete the daily sums from before a time."""
    values = (day_of(before_ms),)
    db.write(lambda: db.execute("DELETE FROM llm_usage WHERE day < ?", values))
    db.write(lambda: db.execute("DELETE FROM llm_run_usage WHERE day < ?", values))


# -- budgets


def _check(scope: TenantScope, slug: str, profile: "Profile", origin: Origin) -> None:
    budgets = profile.budgets
    if not any(each.tokens or each.cost for each in (budgets.day, budgets.month, budgets.execution)):
        return
    now = clock.now_ms()
    today = day_of(now)
    open_now = used_in_flight(scope, slug)
    currency = profile.price.currency if profile.price else ""
    _compare(_Limit(slug, "day", budgets.day, currency), used_since(scope, slug, today), open_now)
    _compare(_Limit(slug, "month", budgets.month, currency), used_since(scope, slug, f"{today[:7]}-01"), open_now)
    if origin.execution_id is not None:
        mine = "AND profile = ? AND execution_id = ?"
        in_flight = _sum([_reservation(row).most for row in _open(scope, mine, (slug, origin.execution_id))])
        limit = _Limit(slug, "execution", budgets.execution, currency)
        _compare(limit, used_by_execution(scope, origin.execution_id, slug), in_flight)
    elif origin.run_id is not None:
        in_flight = _sum([_reservation(row).most for row in _open(scope, "AND profile = ? AND run_id = ?", (slug, origin.run_id))])
        _compare(_Limit(slug, "run", budgets.execution, currency), used_by_run(scope, origin.run_id, slug), in_flight)


def check_tenant(scope: TenantScope) -> None:
    """BudgetExceeded if the models of the tenant have used up one of its quotas, with what calls in progress may use."""
    limits = [(name, limit) for name in TENANT_QUOTAS if (limit := find_limit(scope.tenant_id, name)) is not None]
    if not limits:
        return
    in_flight = _sum([_reservation(row).most for row in _open(scope, "", ())])
    for name, limit in limits:
        used = read_quota(scope, name)
        reserved = in_flight.cost_nano if "cost" in name else in_flight.tokens
        if used + reserved >= limit:
            raise make_refusal(scope.tenant_id, name, used + reserved, limit)
        notices.watch(scope.tenant_id, name, used + reserved, limit)


def read_quota(scope: TenantScope, name: str) -> int:
    """What all models of the tenant have used of a quota in its current period: tokens, or billionths of money."""
    first = day_of(KINDS[name].period_of(clock.now_ms())[0])
    what = "cost_nano" if "cost" in name else "input_tokens + output_tokens"
    sql = f"SELECT coalesce(sum({what}), 0) FROM llm_usage WHERE tenant_id = ? AND day >= ?"  # noqa: S608 our own names
    ((used,),) = db.rows(sql, (scope.tenant_id, first))
    return int(used)


@dataclass(frozen=True)
class _Limit:
    """One budget of a profile: what it is counted `per`, and its currency."""

    profile: str
    per: str
    budget: "Budget"
    currency: str


def _compare(limit: _Limit, used: UsageSum, in_flight: UsageSum) -> None:
    budget = limit.budget
    if budget.tokens is not None and used.tokens + in_flight.tokens >= budget.tokens:
        spent, under_way = f"{used.tokens} of {budget.tokens} tokens", f"{in_flight.tokens}"
    elif budget.cost is not None and used.cost_nano + in_flight.cost_nano >= budget.cost * NANO:
        spent, under_way = f"{used.cost_nano / NANO:.4f} of {budget.cost:g} {limit.currency}", f"{in_flight.cost_nano / NANO:.4f}"
    else:
        return
    more = Sentence(", and calls in progress may use %(under_way)s more", under_way=under_way) if in_flight.calls else ""
    raise BudgetExceeded(
        Sentence(
            "the budget per %(per)s of the LLM profile %(profile)s is used up: %(what)s%(more)s; raise it in the profile",
            per=limit.per, profile=limit.profile, what=spent, more=more,
        ),
        extra={"budget": limit.per, "profile": limit.profile},
    )


# -- sums


def used_since(scope: TenantScope, slug: str, day: str) -> UsageSum:
    """The usage of a profile since that day (UTC, `2026-01-31`)."""
    return _sum([used for _, used in days_since(scope, slug, day)])


def days_since(scope: TenantScope, slug: str, day: str) -> list[tuple[str, UsageSum]]:
    """The usage of a profile on each day since then that has any, oldest first."""
    sql = f"SELECT day, {_COLUMNS} FROM llm_usage WHERE tenant_id = ? AND profile = ? AND day >= ? ORDER BY day"  # noqa: S608
    return [(row[0], UsageSum(*map(int, row[1:]))) for row in db.rows(sql, (scope.tenant_id, slug, day))]


def used_by_execution(scope: TenantScope, execution_id: str, slug: str | None = None) -> UsageSum:
    """The usage of an execution, with that profile or all profiles."""
    return _used_by(scope, "llm_execution_usage WHERE tenant_id = ? AND execution_id = ?", execution_id, slug)


def used_by_run(scope: TenantScope, run_id: str, slug: str | None = None) -> UsageSum:
    """The usage of an agent run, with that profile or all profiles."""
    return _used_by(scope, "llm_run_usage WHERE tenant_id = ? AND run_id = ?", run_id, slug)


def _used_by(scope: TenantScope, whose: str, name: str, slug: str | None) -> UsageSum:
    of_profile = "" if slug is None else "AND profile = ?"
    sql = f"SELECT {_COLUMNS} FROM {whose} {of_profile}"  # noqa: S608 our own names
    rows = db.rows(sql, (scope.tenant_id, name, *(() if slug is None else [slug])))
    return _sum([UsageSum(*map(int, row)) for row in rows])


def used_in_flight(scope: TenantScope, slug: str) -> UsageSum:
    """The most that calls in progress may use."""
    return _sum([_reservation(row).most for row in _open(scope, "AND profile = ?", (slug,))])


def _open(scope: TenantScope, where: str, values: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    sql = f"SELECT {_RESERVED} FROM llm_reservation WHERE tenant_id = ? {where}"  # noqa: S608 our own names
    return db.rows(sql, (scope.tenant_id, *values))


def _reservation(row: tuple[Any, ...]) -> Reservation:
    return Reservation(row[0], row[1], Origin(*row[2:5]), UsageSum(1, *map(int, row[5:8])))


def _sum(sums: Sequence[UsageSum]) -> UsageSum:
    total = UsageSum()
    for each in sums:
        total = total.plus(each)
    return total


def day_of(ms: int) -> str:
    """The day in UTC."""
    return clock.rfc3339(ms)[:10]
