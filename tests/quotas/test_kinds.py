"""Amounts of quotas as people write them, and the periods in which they begin again."""

import pytest

from appliance.core.errors import ValidationFailed
from appliance.quotas import KINDS, format_amount, parse_amount
from appliance.quotas.kinds import DAY, NANO

JANUARY_31 = 1_769_860_800_000  # 2026-01-31T12:00:00Z


@pytest.mark.parametrize(
    ("name", "text", "amount", "visible"),
    [
        ("storage", "10GB", 10 * 10**9, "10GB"), ("storage", "0.5 gb", 500_000_000, "500MB"), ("storage", "17B", 17, "17B"),
        ("storage", "10GiB", 10 << 30, "10GiB"), ("storage", "0.5gib", 512 << 20, "512MiB"),
        ("entities", "5000", 5000, "5000"), ("entities", "10K", 10_000, "10000"), ("entities", "0", 0, "0"),
        ("llm_cost_per_day", "12.50", 12_500_000_000, "12.5"), ("llm_cost_per_month", "20", 20 * NANO, "20"),
        ("requests_per_day", "none", None, "none"),
    ],
)  # fmt: skip
def test_an_amount_is_read_and_shown(name: str, text: str, amount: int | None, visible: str) -> None:
    assert parse_amount(KINDS[name], text) == amount
    assert format_amount(KINDS[name], amount) == visible
    assert parse_amount(KINDS[name], visible) == amount


@pytest.mark.parametrize(
    ("name", "text", "hint"),
    [
        ("storage", "10", "500MB or 10GB"), ("storage", "10X", "500MB or 10GB"), ("storage", "10iB", "500MB or 10GB"),
        ("storage", "-1GB", "500MB or 10GB"),
        ("entities", "1.5", "a whole number"), ("entities", "10GB", "a whole number"), ("entities", "", "a whole number"),
        ("llm_cost_per_day", "5K", "20 or 12.50"), ("entities", "9" * 15 + "T", "a whole number"),
    ],
)  # fmt: skip
def test_another_amount_is_refused_with_an_example(name: str, text: str, hint: str) -> None:
    with pytest.raises(ValidationFailed, match=hint) as caught:
        parse_amount(KINDS[name], text)
    assert caught.value.details[0].pointer == f"/{name}"


def test_periods_begin_at_midnight_and_on_the_first_of_a_month() -> None:
    midnight = JANUARY_31 - DAY // 2
    assert KINDS["executions_per_day"].period_of(JANUARY_31) == (midnight, midnight + DAY)
    assert KINDS["llm_tokens_per_month"].period_of(JANUARY_31) == (midnight - 30 * DAY, midnight + DAY)
    assert KINDS["llm_tokens_per_month"].period_of(midnight + DAY)[1] == midnight + 29 * DAY
    assert KINDS["storage"].period_of(JANUARY_31) == (0, None)
    assert KINDS["concurrent_executions"].warning_period_of(JANUARY_31) == midnight
