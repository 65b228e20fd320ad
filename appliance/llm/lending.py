"""Profiles of one place used in another, as tests do: with key and what is left of the budgets, and the bill brought home."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from appliance.core import clock
from appliance.core.database import db
from appliance.core.scope import TenantScope

from . import usage
from .client import Ready
from .service import LanguageModels
from .usage import Used


@dataclass(frozen=True)
class Lent:
    """A profile away from home, and what had been used of it when it left: `today` is part of `month` (UTC)."""

    ready: Ready = field(repr=False)
    today: Used
    month: Used

    @property
    def slug(self) -> str:
        return self.ready.slug


def lend_profiles(models: LanguageModels, scope: TenantScope, slugs: Iterable[str]) -> list[Lent]:
    """These profiles, and those that they fall back to where the tenant has them; NotFound for one of `slugs` that it has not."""
    lent: dict[str, Lent] = {}
    today = usage.day_of(clock.now_ms())
    left = list(dict.fromkeys(slugs))
    while left:
        ready = models.open_profile(scope, left.pop(0))
        used = (usage.used_since(scope, ready.slug, day) for day in (today, _first(today)))
        lent[ready.slug] = Lent(ready, *used)
        left += [slug for slug in ready.profile.fallbacks if slug not in {*lent, *left} and models.has_profile(scope, slug)]
    return list(lent.values())


def borrow_profiles(models: LanguageModels, scope: TenantScope, lent: Iterable[Lent]) -> None:
    """Keep them here as they are at home, with as much of their budgets used up."""
    today = usage.day_of(clock.now_ms())
    for each in lent:
        models.put_profile(scope, each.slug, each.ready.profile, each.ready.key or None)
        bring_home(scope, {each.slug: each.today}, today)
        bring_home(scope, {each.slug: each.month.minus(each.today)}, _first(today))


def used_here(scope: TenantScope, lent: Iterable[Lent]) -> dict[str, Used]:
    """What was used of each since it was borrowed; calls that never came back count as the most that they may cost."""
    found = {}
    for each in lent:
        used = usage.used_since(scope, each.slug, "").plus(usage.used_in_flight(scope, each.slug))
        found[each.slug] = used.minus(each.month)
    return found


def bring_home(scope: TenantScope, used: dict[str, Used], day: str | None = None) -> None:
    """Book what was used elsewhere, today unless said otherwise."""

    def book() -> None:
        for slug, each in used.items():
            if each.calls:
                usage.book(scope, slug, day or usage.day_of(clock.now_ms()), each)

    db.write(book)


def _first(day: str) -> str:
    return f"{day[:7]}-01"
