"""Uses profiles of one appliance in another, as `gos test` does: copies keys and used budgets, and books the usage back."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from appliance.core import clock
from appliance.core.database import db
from appliance.core.scope import TenantScope

from . import usage
from .client import OpenProfile
from .service import LanguageModels
from .usage import UsageSum


@dataclass(frozen=True)
class BorrowedProfile:
    """A copied profile, and its usage at the time of copying: `today` is part of `month` (UTC)."""

    ready: OpenProfile = field(repr=False)
    today: UsageSum
    month: UsageSum

    @property
    def slug(self) -> str:
        return self.ready.slug


def copy_profiles(models: LanguageModels, scope: TenantScope, slugs: Iterable[str]) -> list[BorrowedProfile]:
    """Copy these profiles and their existing fallbacks; NotFound if the tenant lacks one of `slugs`."""
    copies: dict[str, BorrowedProfile] = {}
    today = usage.day_of(clock.now_ms())
    pending = list(dict.fromkeys(slugs))
    while pending:
        ready = models.open_profile(scope, pending.pop(0))
        used = (usage.used_since(scope, ready.slug, day) for day in (today, _first_of_month(today)))
        copies[ready.slug] = BorrowedProfile(ready, *used)
        pending += [slug for slug in ready.profile.fallbacks if slug not in {*copies, *pending} and models.has_profile(scope, slug)]
    return list(copies.values())


def store_copies(models: LanguageModels, scope: TenantScope, copies: Iterable[BorrowedProfile]) -> None:
    """Store copied profiles here, with the same share of their budgets used up."""
    today = usage.day_of(clock.now_ms())
    for each in copies:
        models.put_profile(scope, each.slug, each.ready.profile, each.ready.key or None)
        book_usage(scope, {each.slug: each.today}, today)
        book_usage(scope, {each.slug: each.month.minus(each.today)}, _first_of_month(today))


def usage_of_copies(scope: TenantScope, copies: Iterable[BorrowedProfile]) -> dict[str, UsageSum]:
    """The usage of each profile since it was copied here; calls without an answer count with the most they may cost."""
    usages = {}
    for each in copies:
        used = usage.used_since(scope, each.slug, "").plus(usage.used_in_flight(scope, each.slug))
        usages[each.slug] = used.minus(each.month)
    return usages


def book_usage(scope: TenantScope, used: dict[str, UsageSum], day: str | None = None) -> None:
    """Book usage from another appliance, by default as of today."""

    def book() -> None:
        for slug, each in used.items():
            if each.calls:
                usage.book(scope, slug, day or usage.day_of(clock.now_ms()), each)

    db.write(book)


def _first_of_month(day: str) -> str:
    return f"{day[:7]}-01"
