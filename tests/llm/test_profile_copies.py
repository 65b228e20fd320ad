"""Profiles copied to another tenant of the same database, as `gos test` copies them to its own tenant."""

import pytest

from appliance.core import clock
from appliance.core.database import db
from appliance.core.errors import BudgetExceeded, NotFound
from appliance.llm import usage
from appliance.llm.profile_copies import book_usage, copy_profiles, store_copies, usage_of_copies
from appliance.llm.usage import UsageSum
from tests.llm.conftest import Desk


def test_a_copied_profile_has_key_fallbacks_and_the_remaining_budget(desk: Desk) -> None:
    desk.profile("spare", key=None)
    desk.profile(fallbacks=["spare", "nowhere"], budgets={"day": {"tokens": 300}})
    desk.ask()
    lent = copy_profiles(desk.llm, desk.scope, ["default"])
    assert [each.slug for each in lent] == ["default", "spare"]
    assert "sk-canary" not in repr(lent)
    store_copies(desk.llm, desk.other, lent)
    home, desk.scope = desk.scope, desk.other
    desk.ask()
    assert desk.provider.requests[-1].headers["authorization"] == "Bearer sk-canary-123"
    desk.ask()
    third = desk.ask()
    assert third.exchanges[-1]["profile"] == "spare"
    used = usage_of_copies(desk.other, lent)
    assert {slug: (each.calls, each.tokens) for slug, each in used.items()} == {"default": (2, 240), "spare": (1, 120)}
    book_usage(home, used)
    assert desk.llm.get_usage(home, "default").day.tokens == 360
    desk.scope = home
    desk.llm.delete_profile(home, "spare")
    assert isinstance(desk.ask().error, BudgetExceeded)


def test_earlier_usage_of_the_month_counts_for_a_copied_profile(desk: Desk) -> None:
    desk.profile(budgets={"month": {"tokens": 100}})
    first = f"{usage.day_of(clock.now_ms())[:7]}-01"
    db.write(lambda: usage.book(desk.scope, "default", first, UsageSum(1, 80, 40, 0)))
    store_copies(desk.llm, desk.other, copy_profiles(desk.llm, desk.scope, ["default"]))
    desk.scope = desk.other
    assert isinstance(desk.ask().error, BudgetExceeded)


def test_an_unknown_profile_is_not_copied(desk: Desk) -> None:
    with pytest.raises(NotFound):
        copy_profiles(desk.llm, desk.scope, ["default"])
