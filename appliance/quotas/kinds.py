"""The kinds of quotas, and their amounts as people write and read them."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Literal

from appliance.core.errors import ValidationFailed
from appliance.core.sentences import Sentence

DAY = 86_400_000
NANO = 10**9
SHARE = 0.8
"""The share of a quota from which the tenant is warned."""
MAX_AMOUNT = 10**18
_AMOUNT = re.compile(r"(\d{1,15}(?:\.\d{1,9})?)\s*([KMGT]?(?:I?B)?)", re.ASCII | re.IGNORECASE)
_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}


@dataclass(frozen=True)
class QuotaKind:
    """A quota: amounts are whole numbers, of money in billionths; `period` is when it begins again, in UTC, or empty for what a
    tenant has at any time.  `warned`: how often its warning is given, if not once in each period."""

    name: str
    unit: Literal["bytes", "number", "tokens", "money"]
    period: Literal["", "day", "month"] = ""
    warned: Literal["", "day", "month"] | None = None

    def warning_period_of(self, now: int) -> int:
        """When the period began in which a tenant is warned once, in epoch ms; 0: until it uses clearly less."""
        return (self if self.warned is None else QuotaKind(self.name, self.unit, self.warned)).period_of(now)[0]

    def period_of(self, now: int) -> tuple[int, int | None]:
        """When the current period began and when the next one begins, in epoch ms; (0, None) without periods."""
        if not self.period:
            return 0, None
        start = now // DAY * DAY
        if self.period == "day":
            return start, start + DAY
        today = datetime.fromtimestamp(start / 1000, UTC)
        first = today.replace(day=1)
        following = first.replace(year=first.year + first.month // 12, month=first.month % 12 + 1)
        return int(first.timestamp() * 1000), int(following.timestamp() * 1000)


KINDS: Mapping[str, QuotaKind] = {
    kind.name: kind
    for kind in (
        QuotaKind("storage", "bytes"),
        QuotaKind("entities", "number"),
        QuotaKind("executions_per_day", "number", "day"),
        QuotaKind("concurrent_executions", "number", warned="day"),
        QuotaKind("llm_tokens_per_day", "tokens", "day"),
        QuotaKind("llm_tokens_per_month", "tokens", "month"),
        QuotaKind("llm_cost_per_day", "money", "day"),
        QuotaKind("llm_cost_per_month", "money", "month"),
        QuotaKind("requests_per_day", "number", "day"),
    )
}


def find_kind(name: str) -> QuotaKind:
    """The kind of this name; ValidationFailed names all."""
    if name not in KINDS:
        raise ValidationFailed(
            Sentence("%(name)s is not a quota; the quotas are %(names)s", name=repr(name[:60]), names=", ".join(KINDS)),
            pointer="/name",
        )
    return KINDS[name]


def parse_amount(kind: QuotaKind, text: str) -> int | None:
    """The amount of a text such as `10GB` (of 1,000 MB; `10GiB` of 1,024 MiB), `5000` or, of money, `12.50`.

    None for `none`, which does not limit.  ValidationFailed.
    """
    if text.strip().lower() == "none":
        return None
    match = _AMOUNT.fullmatch(text.strip())
    number, unit = (Decimal(match[1]), match[2].upper()) if match else (Decimal(-1), "")
    if kind.unit == "bytes" and match and unit.endswith("B") and unit != "IB":
        base = 1024 if unit.endswith("IB") else 1000
        number *= base ** _POWERS[unit.removesuffix("B").removesuffix("I")]
    elif kind.unit == "money":
        number *= NANO
    elif unit not in _POWERS or kind.unit == "bytes":
        number = Decimal(-1)
    else:
        number *= 1000 ** _POWERS[unit]
    if not match or (unit and kind.unit == "money") or number != int(number) or not 0 <= number <= MAX_AMOUNT:
        raise _refuse_amount(kind, text)
    return int(number)


def _refuse_amount(kind: QuotaKind, text: str) -> ValidationFailed:
    pointer, values = f"/{kind.name}", {"name": kind.name, "text": repr(text[:60])}
    if kind.unit == "bytes":
        return ValidationFailed(
            Sentence("%(name)s is %(text)s; enter a size with its unit, such as 500MB or 10GB, or none for no limit", **values),
            pointer=pointer,
        )
    if kind.unit == "money":
        return ValidationFailed(
            Sentence("%(name)s is %(text)s; enter an amount such as 20 or 12.50, or none for no limit", **values), pointer=pointer
        )
    return ValidationFailed(
        Sentence("%(name)s is %(text)s; enter a whole number such as 5000 or 10K, or none for no limit", **values), pointer=pointer
    )


def format_amount(kind: QuotaKind, amount: int | None) -> str:
    """The amount as `parse_amount` reads it."""
    if amount is None:
        return "none"
    if kind.unit == "money":
        return f"{Decimal(amount) / NANO:f}".rstrip("0").rstrip(".") if amount % NANO else str(amount // NANO)
    if kind.unit != "bytes":
        return str(amount)
    for power, unit in ((4, "T"), (3, "G"), (2, "M"), (1, "K")):
        for base, suffix in ((1000, "B"), (1024, "iB")):
            if amount and amount % base**power == 0:
                return f"{amount // base**power}{unit}{suffix}"
    return f"{amount}B"


def round_up(size: int) -> int:
    """A size in bytes as whole megabytes, for people who set a quota; as it is if it is smaller than one."""
    return size if size < 10**6 else -(-size // 10**6) * 10**6


def to_number(kind: QuotaKind, amount: int) -> int | float:
    """The amount in the unit that people use: money in units of its currency."""
    return amount / NANO if kind.unit == "money" else amount
