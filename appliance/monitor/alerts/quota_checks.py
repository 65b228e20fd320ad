"""Evaluates conditions about quotas of the tenant, by the same figures as their page and their warnings."""

from collections.abc import Callable

from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.core.texts import mark_error
from appliance.quotas import KINDS, QuotaState, find_limit

QuotaReader = Callable[[TenantScope, str], QuotaState]

_ONE = mark_error("%(percent)s %% of the quota %(quota)s is in use, at most %(allowed)s %% allowed")
_UNLIMITED = mark_error("the quota %(quota)s has no limit")
_NONE = mark_error("no quota is more than %(allowed)s %% used")
_SEVERAL = {
    True: mark_error("this quota is more than %(allowed)s %% used: %(quotas)s"),
    False: mark_error("these quotas are more than %(allowed)s %% used: %(quotas)s"),
}
_SHARE = mark_error("%(quota)s (%(percent)s %%)")


def check_quota(scope: TenantScope, name: str, above: float, read_state: QuotaReader) -> tuple[bool, str]:
    """Whether more than `above` percent of a quota is in use, and a sentence that says how many."""
    percent = read_state(scope, name).percent if _has_limit(scope, name) else None
    if percent is None:
        return False, _UNLIMITED % {"quota": name}
    return percent > above, _ONE % {"quota": name, "percent": round(percent, 1), "allowed": float(above)}


def check_quotas(scope: TenantScope, above: float, read_state: QuotaReader) -> tuple[bool, str]:
    """The same of any quota of the tenant; the sentence names those above."""
    percents = {name: read_state(scope, name).percent or 0.0 for name in KINDS if _has_limit(scope, name)}
    shares = [_SHARE % {"quota": name, "percent": round(percent, 1)} for name, percent in percents.items() if percent > above]
    if not shares:
        return False, _NONE % {"allowed": float(above)}
    return True, _SEVERAL[len(shares) == 1] % {"allowed": float(above), "quotas": Sentence.joined(shares)}


def _has_limit(scope: TenantScope, name: str) -> bool:
    """What has no limit need not be counted."""
    return find_limit(scope.tenant_id, name) is not None
