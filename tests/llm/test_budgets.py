"""The cost of models is counted, and a used-up budget stops the next call before it is sent."""

import threading
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait

import pytest

from appliance.core import clock
from appliance.core.database import db
from appliance.core.errors import BudgetExceeded, ConnectorFailed
from appliance.llm import usage
from appliance.llm.prompt import parse_prompt
from appliance.llm.service import Origin
from appliance.llm.usage import UsageSum
from appliance.quotas import limits
from tests.llm.conftest import Desk
from tests.llm.provider import Say

PRICE = {"input": 2.0, "output": 10.0, "currency": "EUR"}


@pytest.fixture
def database(store_url: str) -> str:
    """On each dialect: what is used is summed in SQL."""
    return store_url


def test_usage_is_summed_by_day_with_its_cost(desk: Desk) -> None:
    desk.profile(price=PRICE)
    desk.provider.say(Say("a", usage=(1000, 100)), Say("b", usage=(500, 0)))
    desk.ask()
    done = desk.ask()
    usage = desk.llm.get_usage(desk.scope, "default")
    assert usage.day == usage.month == UsageSum(2, 1500, 100, 4_000_000)
    assert usage.in_flight == UsageSum()
    assert (usage.currency, [used for _, used in usage.days]) == ("EUR", [usage.day])
    assert done.to_journal()["usage"] == {"calls": 1, "input_tokens": 500, "output_tokens": 0, "cost": 0.001}
    desk.scope, desk.other = desk.other, desk.scope
    desk.profile(price=PRICE)
    assert desk.llm.get_usage(desk.scope, "default").day == UsageSum(), "of another tenant nothing is seen"


@pytest.mark.parametrize("budgets", [{"day": {"tokens": 240}}, {"month": {"tokens": 240}}, {"day": {"cost": 0.0008}}])
def test_a_used_up_budget_stops_the_next_call(desk: Desk, budgets: dict[str, object]) -> None:
    desk.profile(price=PRICE, budgets=budgets)
    answers = [desk.ask() for _ in range(3)]
    assert [done.error is None for done in answers] == [True, True, False]
    error = answers[2].error
    assert isinstance(error, BudgetExceeded)
    assert next(iter(budgets)) in error.message
    assert len(desk.provider.requests) == 2, "nothing was sent"


@pytest.mark.parametrize(
    ("name", "amount", "limit"),
    [
        ("llm_tokens_per_day", 240, 240), ("llm_tokens_per_month", 240, 240), ("llm_cost_per_day", 800_000, 0.0008),
        ("llm_cost_per_month", 800_000, 0.0008),
    ],
)  # fmt: skip
def test_a_quota_of_the_tenant_counts_all_profiles(desk: Desk, name: str, amount: int, limit: float) -> None:
    desk.profile(price=PRICE)
    assert desk.ask().error is None
    db.write(lambda: usage.book(desk.scope, "gone", usage.day_of(clock.now_ms()), UsageSum(1, 200, 0, 400_000)))
    db.write(lambda: limits.set_own(desk.scope, name, amount))
    assert desk.llm.get_usage(desk.scope, "default").day.calls == 1
    error = desk.ask().error
    assert isinstance(error, BudgetExceeded)
    assert (error.extra["quota"], error.extra["limit"]) == (name, limit)
    assert f"raise the quota {name}" in error.message
    assert len(desk.provider.requests) == 1, "nothing was sent"
    db.write(lambda: limits.set_own(desk.scope, name, 10**12))
    assert desk.ask().error is None


def test_an_execution_has_a_budget_of_its_own(desk: Desk) -> None:
    desk.profile(budgets={"execution": {"tokens": 100}})
    origin = Origin("exe_1", "a")
    first = desk.llm.generate(desk.scope, parse_prompt({"profile": "default", "prompt": "x"}), origin, clock.monotonic() + 5)
    second = desk.ask(origin=Origin("exe_1", "b"))
    assert isinstance(second.error, BudgetExceeded), "what its other call may still cost counts"
    assert desk.ask(origin=Origin("exe_2", "a")).error is None
    assert first.error is None


def test_calls_side_by_side_do_not_overrun_a_budget(desk: Desk) -> None:
    desk.profile(budgets={"day": {"tokens": 200}}, parameters={"max_tokens": 150})
    go_on = threading.Event()
    desk.provider.say(Say("late", hold=go_on))
    with ThreadPoolExecutor(2) as threads:
        first, second = (threads.submit(desk.ask, "x" * 100) for _ in range(2))
        assert desk.provider.arrivals.acquire(timeout=10)
        wait([first, second], timeout=10, return_when=FIRST_COMPLETED)  # the one that is refused
        go_on.set()
        errors = [each.result(20).error for each in (first, second)]
    assert sorted(type(error).__name__ for error in errors) == ["BudgetExceeded", "NoneType"]
    assert len(desk.provider.requests) == 1


def test_corrections_count_too(desk: Desk) -> None:
    desk.profile(budgets={"day": {"tokens": 200}})
    desk.provider.say({"total": "x"})
    done = desk.ask(output={"type": "object", "properties": {"total": {"type": "integer"}}}, repair=5)
    assert isinstance(done.error, BudgetExceeded)
    assert len(desk.provider.requests) == 2
    assert desk.llm.get_usage(desk.scope, "default").day.calls == 2


def test_refused_calls_are_free_and_unknown_ones_count_as_the_maximum(desk: Desk) -> None:
    desk.profile(parameters={"max_tokens": 50})
    desk.provider.say(Say(status=429))
    assert isinstance(desk.ask().error, ConnectorFailed)
    assert desk.llm.get_usage(desk.scope, "default").day == UsageSum()
    desk.profile(timeout="200ms", parameters={"max_tokens": 50})
    desk.provider.say(Say("slowly", slow=True))
    desk.ask()
    lost = desk.llm.get_usage(desk.scope, "default").day
    assert (lost.calls, lost.output_tokens) == (1, 50)


def test_a_server_that_does_not_count_is_estimated(desk: Desk) -> None:
    desk.profile()
    desk.provider.say(Say("x" * 400, usage=None))
    done = desk.ask()
    assert done.exchanges[0]["estimated"] is True
    assert done.used.output_tokens == 101


def test_a_lost_call_is_settled_by_a_retry_or_by_upkeep(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.profile(parameters={"max_tokens": 50})
    profile = desk.llm.get_profile(desk.scope, "default").profile
    most = UsageSum(1, 10, 50, 0)
    origin = Origin("exe_1", "ask")
    db.write(lambda: usage.reserve(desk.scope, "default", profile, origin, most))
    assert desk.llm.get_usage(desk.scope, "default").in_flight == most
    db.write(lambda: usage.reserve(desk.scope, "default", profile, origin, most))
    totals = desk.llm.get_usage(desk.scope, "default")
    assert (totals.day, totals.in_flight) == (most, most), "the same place has asked again: the first never came back"
    assert usage.settle_lost() == 0
    later = clock.now_ms() + usage.LOST_MS + 1
    monkeypatch.setattr(clock, "now_ms", lambda: later)
    assert usage.settle_lost() == 1
    assert desk.llm.get_usage(desk.scope, "default").in_flight == UsageSum()


def test_a_call_is_settled_once(desk: Desk) -> None:
    desk.profile()
    done = desk.ask()
    for _ in range(3):
        db.write(lambda: done.settle(desk.scope))
    assert desk.llm.get_usage(desk.scope, "default").day.calls == 1


def test_sums_of_old_days_are_deleted(desk: Desk) -> None:
    desk.profile()
    desk.ask()
    usage.purge(clock.now_ms() - 86_400_000)
    assert desk.llm.get_usage(desk.scope, "default").day.calls == 1
    usage.purge(clock.now_ms() + 86_400_000)
    assert desk.llm.get_usage(desk.scope, "default").day.calls == 0
