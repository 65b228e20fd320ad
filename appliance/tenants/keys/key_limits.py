"""Limits of a key: the scopes, rate, addresses, expiry and generations of whoever issues, rotates or adopts it."""

from collections.abc import Sequence
from dataclasses import dataclass

from appliance.core import clock
from appliance.core.errors import Conflict, PolicyDenied, ScopeMissing, ValidationFailed
from appliance.core.scope import ResourceNames, TenantScope
from appliance.core.sentences import Sentence
from appliance.tenants.models import ApiKey

from . import lineage, resource_limits
from .lineage import MAX_GENERATIONS

_OWNER_HINT = "ask an owner to do it in the console, or use a key without this limit"


@dataclass(frozen=True)
class KeyLimits:
    """Limits of a new key: its ancestors `above` (the issuing key first) and the earliest of their expiry times (epoch ms)."""

    above: tuple[ApiKey, ...]
    ends_at: int

    @property
    def rate(self) -> tuple[int, int]:
        """Requests and seconds of the ancestor with the lowest rate."""
        return min(((key.rate_requests, key.rate_window_s) for key in self.above), key=lambda rate: rate[0] / rate[1])

    @property
    def resources(self) -> ResourceNames | None:
        """The only processes, collections and integrations that the ancestors may reach together; None if none is limited."""
        return resource_limits.combine(self.above)

    def allows_rate(self, requests: int, window_s: int) -> bool:
        """Whether this rate is at most that of every ancestor."""
        return all(requests * key.rate_window_s <= key.rate_requests * window_s for key in self.above)

    @property
    def allowed_ips(self) -> list[str]:
        """The networks of the nearest ancestor that is restricted to any."""
        return next((list(key.allowed_ips) for key in self.above if key.allowed_ips), [])

    def allows_networks(self, networks: Sequence[str]) -> bool:
        """Whether each ancestor may be used from all of these networks; empty means from everywhere."""
        return all(
            not key.allowed_ips or (bool(networks) and all(lineage.is_in_networks(each, key.allowed_ips) for each in networks))
            for key in self.above
        )


def find_limits(scope: TenantScope) -> KeyLimits | None:
    """The limits set by the acting key; None if the actor is not a key.  Conflict if there would be too many generations."""
    kind, _, key_id = scope.actor.partition(":")
    authority = lineage.load_authority(scope, key_id) if kind == "key" else None
    if authority is None:
        return None
    if len(authority.ancestors) + 2 > MAX_GENERATIONS:
        raise Conflict(Sentence(
            "keys can issue keys at most %(most_generations)s generations deep; ask a person to issue this one in the console",
            most_generations=MAX_GENERATIONS,
        ))
    return KeyLimits((authority.row, *authority.ancestors), authority.ends_at)


def check_not_wider(scope: TenantScope, scopes: Sequence[str]) -> None:
    """ScopeMissing if these exceed the actor's current scopes."""
    if excess := [name for name in scopes if name not in scope.scopes]:
        raise ScopeMissing(Sentence(
            "a key cannot be wider than its issuer: you do not have %(excess)s; ask an owner to issue or adopt this key",
            excess=", ".join(excess),
        ))


def check_no_descendant(scope: TenantScope, row: ApiKey, what: str) -> None:
    """PolicyDenied if the acting key descends from this one: it would escape the limits of the keys above it."""
    kind, _, key_id = scope.actor.partition(":")
    authority = lineage.load_authority(scope, key_id) if kind == "key" else None
    if authority is not None and row.id in [key.id for key in authority.ancestors]:
        raise PolicyDenied(
            Sentence("a key cannot %(what)s a key that it descends from; ask an owner to do it in the console", what=what)
        )


def check_not_beside(scope: TenantScope, row: ApiKey, what: str) -> None:
    """PolicyDenied if the acting key belongs to the same service account as this one, which does not depend on it."""
    account = lineage.account_in(row.issuer)
    if account and scope.actor != f"key:{row.id}" and lineage.find_account_of(scope, scope.actor) == account:
        raise PolicyDenied(Sentence(
            "a key of a service account cannot %(what)s another one beside itself; ask an owner to do it in the console", what=what
        ))


def limit_transferred(limits: KeyLimits | None, row: ApiKey, what: str) -> None:
    """Limit a key that gets a new issuer to the issuer's rate, expiry, processes, collections and integrations.

    ValidationFailed if it may be used from other addresses than the issuer's, because it would stop working there.
    """
    if limits is None:
        return
    if not limits.allows_networks(row.allowed_ips or limits.allowed_ips):
        raise ValidationFailed(
            Sentence(
                "this key may be used from %(allowed_ips)s, but the key that would %(what)s it only from "
                "%(allowed_ips2)s; %(by_owner)s",
                allowed_ips=", ".join(row.allowed_ips), what=what, allowed_ips2=", ".join(limits.allowed_ips), by_owner=_OWNER_HINT,
            ),
            pointer="/allowed_ips",
        )
    row.allowed_ips = row.allowed_ips or limits.allowed_ips
    if not limits.allows_rate(row.rate_requests, row.rate_window_s):
        row.rate_requests, row.rate_window_s = limits.rate
    row.limits = resource_limits.to_stored(resource_limits.combine((row, *limits.above)))
    row.expires_at = min(row.expires_at, limits.ends_at)


def limit_quota(limits: KeyLimits | None, row: ApiKey) -> None:
    """Give a key of a service account at most the lowest daily quota of the acting keys, which are not above it and so do not
    count its requests."""
    quotas = [key.daily_requests for key in (*(limits.above if limits else ()), row) if key.daily_requests]
    row.daily_requests = min(quotas, default=None)


def check_rate(bounds: KeyLimits, requests: int, window_s: int) -> None:
    """ValidationFailed if a key above has a lower rate."""
    if not bounds.allows_rate(requests, window_s):
        most, seconds = bounds.rate
        raise ValidationFailed(
            Sentence(
                "%(requests)s requests in %(window_s)s s exceed the limit of the issuing key: %(most)s in "
                "%(seconds)s s; choose a lower limit, or %(by_owner)s",
                requests=requests, window_s=window_s, most=most, seconds=seconds, by_owner=_OWNER_HINT,
            ),
            pointer="/rate_limit",
        )


def check_networks(bounds: KeyLimits, networks: Sequence[str]) -> None:
    """ValidationFailed at the first network that a key above may not be used from."""
    for index, network in enumerate(networks):
        if not bounds.allows_networks([network]):
            raise ValidationFailed(
                Sentence(
                    "%(network)s is not within the addresses of the issuing key: %(allowed_ips)s; choose among them, or "
                    "%(by_owner)s",
                    network=network, allowed_ips=", ".join(bounds.allowed_ips), by_owner=_OWNER_HINT,
                ),
                pointer=f"/allowed_ips/{index}",
            )


def check_expiry(bounds: KeyLimits, expires_at: int) -> None:
    """ValidationFailed if a key above expires earlier."""
    if expires_at > bounds.ends_at:
        raise ValidationFailed(
            Sentence(
                "the issuing key expires at %(ends_at)s, and this key would expire with it; choose an earlier "
                "expires_at, or %(by_owner)s",
                ends_at=clock.rfc3339(bounds.ends_at),
                by_owner=_OWNER_HINT,
            ),
            pointer="/expires_at",
        )
