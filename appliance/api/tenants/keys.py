"""/api/v1/keys: issue, change, rotate, adopt and revoke API keys."""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field

from appliance.api.frame.fields import CreatedAt, CreatedBy
from appliance.api.frame.routing import Answer, Body, Call, View, route
from appliance.core import clock
from appliance.core.errors import Conflict, ValidationFailed
from appliance.core.pages import Page
from appliance.tenants import ApiKey, service_accounts
from appliance.tenants.keys import (
    Issuers,
    KeyAuthority,
    KeyChanges,
    KeyKind,
    adoption,
    changes,
    daily_quotas,
    keys,
    lineage,
    resource_limits,
)

KeyName = Annotated[str, Field(description="What the key is for, 1 to 200 printable characters.")]
Scopes = Annotated[
    list[str], Field(description="What the key may do at most, such as `documents.read`; the contract lists all scopes.")
]
Environment = Annotated[
    str, Field(description="Word in the key's text that tells keys apart, such as `live` or `test`: 1 to 12 letters or digits.")
]
AllowedIps = Annotated[
    list[str],
    Field(description="IP addresses or networks such as `192.0.2.0/24` from which the key works; empty for all addresses."),
]
Kind = Annotated[
    KeyKind,
    Field(description="`agent` for a key of an agent or assistant: MCP accepts no other, and its writes need an approval."),
]
Requests = Annotated[int, Field(description="How many requests the key may make within the window.")]
WindowSeconds = Annotated[int, Field(description="Length of the window in seconds, at most a day.")]


Names = Annotated[list[str], Field(max_length=resource_limits.MAX_NAMES, description="Names of resources, at most 200.")]
_LIMITS = "The only processes, collections and integrations that the key can reach; not limited if left out."
_NEW_LIMITS = "New limits to processes, collections and integrations; null removes them. No key can change its own."
_EFFECTIVE = "The only processes, collections and integrations that it and every key above it can reach; absent if not limited."


DailyRequests = Annotated[int, Field(description="How many requests the key may make on a day in UTC; no quota if left out.")]


RecordsRequests = Annotated[bool, Field(description="Whether its requests are recorded, see `GET /keys/{id}/requests`.")]


class RateLimit(Body):
    requests: Annotated[Requests, Field(ge=1, le=1_000_000)]
    window_s: Annotated[WindowSeconds, Field(ge=1, le=86_400)]


class LimitsBody(Body):
    """The only processes, collections and integrations that a key can reach; a kind that is left out is out of reach."""

    processes: Names = Field(default_factory=list)
    collections: Names = Field(default_factory=list)
    integrations: Names = Field(default_factory=list)


class IssueKey(Body):
    name: Annotated[KeyName, Field(min_length=1, max_length=200)]
    scopes: Scopes
    environment: Annotated[Environment, Field(pattern="^[A-Za-z0-9]{1,12}$")] = "live"
    expires_at: Annotated[
        str | None, Field(description="When the key ends: RFC 3339 time at most 730 days ahead; after 365 days if left out.")
    ] = None
    rate_limit: Annotated[
        RateLimit | None,
        Field(description="How often the key may be used; by default 600 requests in 60 s unless the operator sets others."),
    ] = None
    allowed_ips: AllowedIps = Field(default_factory=list)
    kind: Kind = "service"
    limits: Annotated[LimitsBody | None, Field(description=_LIMITS)] = None
    daily_requests: Annotated[DailyRequests, Field(ge=1, le=daily_quotas.MAX_QUOTA)] | None = None
    records_requests: RecordsRequests = False


class ChangeKey(Body):
    name: Annotated[KeyName | None, Field(description="A new name, 1 to 200 printable characters.")] = None
    kind: Annotated[
        Literal["agent"] | None, Field(description="An agent key cannot become a service key; issue a new one instead.")
    ] = None
    limits: Annotated[LimitsBody | None, Field(description=_NEW_LIMITS)] = None
    records_requests: RecordsRequests | None = None
    daily_requests: Annotated[
        int | None,
        Field(ge=1, le=daily_quotas.MAX_QUOTA, description="A new daily quota; null removes it. No key can change its own."),
    ] = None


class RotateKey(Body):
    overlap_seconds: Annotated[
        int,
        Field(ge=0, le=2_592_000, description="For how many seconds the old key still works, at most 30 days; 0 ends it at once."),
    ] = 0


class AdoptKey(Body):
    service_account: Annotated[
        str | None, Field(max_length=63, description="Service account that the key belongs to from now on; you, if left out.")
    ] = None


class LimitsView(View):
    processes: Names
    collections: Names
    integrations: Names


class RateLimitView(View):
    requests: Requests
    window_s: WindowSeconds


class KeyView(View):
    """An API key without its text.

    Its authority comes from its `issuer`: `effective_scopes` lists the scopes it has now, and `ended` says why it ended with the
    issuer.
    """

    id: Annotated[str, Field(description="Identifies the key; `key_…`. It is not the key's text.")]
    name: KeyName
    kind: Kind
    environment: Environment
    prefix: Annotated[str, Field(description="Beginning of the key's text, to recognise it, such as `gos_live_Ab3x`.")]
    last4: Annotated[str, Field(description="The last four characters of the key's text.")]
    scopes: Scopes
    created_at: CreatedAt
    expires_at: Annotated[str, Field(description="When the key ends by itself, RFC 3339 in UTC.")]
    rate_limit: Annotated[RateLimitView, Field(description="How often the key may be used before requests get 429.")]
    allowed_ips: AllowedIps
    limits: Annotated[LimitsView | None, Field(description=_EFFECTIVE)] = None
    daily_requests: DailyRequests | None = None
    records_requests: RecordsRequests
    used_today: Annotated[
        int | None, Field(description="Today's requests (UTC), two seconds old at most; absent for a key without a daily quota.")
    ] = None
    created_by: CreatedBy
    issuer: Annotated[
        str,
        Field(
            description="On whose authority it rests now: `user:…`, `key:…`, `service:…` (a service account), or `system` for the "
            "command line and the first run."
        ),
    ]
    effective_scopes: Annotated[
        list[str], Field(description="What it may do now: those of its scopes that its issuer also has, sorted.")
    ]
    ended: Annotated[
        str | None, Field(description="Why it ended with its issuer, as a sentence; absent while the issuer can vouch for it.")
    ] = None
    last_used_at: Annotated[
        str | None, Field(description="When it was last used, exact to a minute, RFC 3339 in UTC; absent if never.")
    ] = None
    rotated_from: Annotated[str | None, Field(description="Id of the key it replaced; absent for a first one.")] = None
    grace_until: Annotated[
        str | None, Field(description="Until when it works after it was replaced, RFC 3339 in UTC; absent if it was not.")
    ] = None
    revoked_at: Annotated[str | None, Field(description="When it was revoked, RFC 3339 in UTC; absent if it was not.")] = None
    key: Annotated[
        str | None, Field(description="Text to send in `X-API-Key`; only in the answer that issued it, and never again.")
    ] = None


def key_view(
    row: ApiKey, text: str | None = None, issuers: Issuers | None = None, usage: Mapping[str, int] | None = None
) -> KeyView:
    """The view of a key; pass `text` only right after the key was issued.  `usage` is today's, see `daily_quotas.read_usage`.

    Pass `issuers` to render many keys efficiently.
    """
    authority = lineage.build_authority(row, issuers)
    return KeyView(
        issuer=row.issuer, effective_scopes=sorted(authority.scopes), ended=authority.ended or None,
        id=row.id, name=row.name, kind=row.kind, environment=row.environment, prefix=row.prefix, last4=row.last4, scopes=row.scopes,
        created_at=clock.rfc3339(row.created_at), expires_at=clock.rfc3339(row.expires_at),
        rate_limit=RateLimitView(requests=row.rate_requests, window_s=row.rate_window_s),
        allowed_ips=row.allowed_ips, limits=_limits_view(authority), daily_requests=row.daily_requests,
        records_requests=row.records_requests,
        used_today=(usage or {}).get(row.counted_as or row.id, 0) if row.daily_requests else None,
        created_by=row.created_by, key=text, rotated_from=row.rotated_from,
        last_used_at=clock.optional_rfc3339(row.last_used_at), grace_until=clock.optional_rfc3339(row.grace_until),
        revoked_at=clock.optional_rfc3339(row.revoked_at),
    )  # fmt: skip


def _limits_view(authority: KeyAuthority) -> LimitsView | None:
    if authority.limits is None:
        return None
    return LimitsView(**{plural: sorted(authority.limits[kind]) for plural, kind in resource_limits.KINDS.items()})


@route("GET", "/keys", scope="keys.read", returns=KeyView, listed=True)
def list_keys(call: Call) -> Page[KeyView]:
    """List the tenant's API keys.

    The newest come first, with revoked and expired ones among them. The text of a key is shown only when it is issued.
    """
    issuers = lineage.load_issuers(call.scope)
    usage = daily_quotas.read_usage(call.scope)
    return keys.list_keys(call.scope, call.query.page).map(lambda row: key_view(row, issuers=issuers, usage=usage))


@route("POST", "/keys", scope="keys.write", body=IssueKey, returns=KeyView, status=201, errors=(Conflict,))
def issue_key(call: Call) -> Answer:
    """Issue an API key.

    The key's text is shown only in this answer. A key never has more scopes than the key or person that issues it, and depends
    on them: it loses scopes when they do, and ends when they end. A key issued by another key inherits its rate limit, addresses
    and expiry where they are narrower than the defaults, and its limits; requesting more is refused. An agent key can only issue
    agent keys.
    """
    body: IssueKey = call.body
    row, text = keys.issue_key(call.scope, call.services.sealer, spec_of(call, body), lifetime_ms=lifetime_of(body.expires_at))
    return answer_new_key(row, text)


def spec_of(call: Call, body: IssueKey) -> keys.KeySpec:
    """The properties of a new key, with the appliance's rate limit unless the body has one."""
    limits = call.services.config.limits
    return keys.KeySpec(
        body.name, body.scopes, body.environment, allowed_ips=body.allowed_ips, kind=body.kind,
        rate_requests=body.rate_limit.requests if body.rate_limit else limits.rate_requests,
        rate_window_s=body.rate_limit.window_s if body.rate_limit else limits.rate_window_s,
        is_default_rate=body.rate_limit is None, limits=None if body.limits is None else body.limits.model_dump(),
        daily_requests=body.daily_requests, records_requests=body.records_requests,
    )  # fmt: skip


def answer_new_key(row: ApiKey, text: str) -> Answer:
    """The answer with the key's text; one that is repeated for the same request is without it."""
    return Answer(key_view(row, text), headers={"Location": f"/api/v1/keys/{row.id}"}, replay=key_view(row))


def lifetime_of(expires_at: str | None) -> int | None:
    """The milliseconds from now to `expires_at`; ValidationFailed."""
    if expires_at is None:
        return None
    lifetime = clock.parse_rfc3339(expires_at, pointer="/expires_at") - clock.now_ms()
    if not 0 < lifetime <= 730 * keys.DAY:
        raise ValidationFailed("`expires_at` must be in the future, at most 730 days ahead", pointer="/expires_at")
    return lifetime


@route("GET", "/keys/{key_id}", scope="keys.read", returns=KeyView)
def get_key(call: Call, key_id: str) -> KeyView:
    """Show one API key.

    `effective_scopes` are those that it can use now: its own, as far as its issuer has them too.
    """
    return key_view(keys.get_key(call.scope, key_id), usage=daily_quotas.read_usage(call.scope))


@route("PATCH", "/keys/{key_id}", scope="keys.write", body=ChangeKey, returns=KeyView)
def change_key(call: Call, key_id: str) -> KeyView:
    """Change an API key.

    A new name, other limits, another quota, or `kind: agent`. Its text stays as it is. The writes of an agent key need an approval
    over every transport, including MCP; it cannot become a service key again.
    """
    body: ChangeKey = call.body
    requested = KeyChanges(
        body.name, is_agent=body.kind == "agent", limits=None if body.limits is None else body.limits.model_dump(),
        is_unlimited="limits" in body.model_fields_set and body.limits is None,
        daily_requests=(body.daily_requests or 0) if "daily_requests" in body.model_fields_set else None,
        records_requests=body.records_requests,
    )  # fmt: skip
    return key_view(changes.change_key(call.scope, key_id, requested))


@route("POST", "/keys/{key_id}/rotate", scope="keys.write", body=RotateKey, returns=KeyView, status=201, errors=(Conflict,))
def rotate_key(call: Call, key_id: str) -> Answer:
    """Replace a key by a new one.

    The new key has the same grants; the old key stays valid for `overlap_seconds`. A key that rotates itself keeps its issuer;
    otherwise the caller becomes the issuer of the new key, unless it belongs to a service account. Keys issued by the old key
    depend on the new one.
    """
    return answer_new_key(*keys.rotate_key(call.scope, call.services.sealer, key_id, call.body.overlap_seconds))


@route("POST", "/keys/{key_id}/adopt", scope="keys.write", body=AdoptKey, returns=KeyView, errors=(Conflict,))
def adopt_key(call: Call, key_id: str) -> KeyView:
    """Change the issuer of a key.

    You, or the service account that you name, become its issuer: it then depends on your authority or on that of the account,
    even if its previous issuer has left. You must have every scope of the key, and so must the account. Its text stays the same.
    """
    body: AdoptKey = call.body
    if body.service_account is not None:
        return key_view(service_accounts.adopt_key(call.scope, body.service_account, key_id))
    return key_view(adoption.adopt_key(call.scope, key_id))


@route("DELETE", "/keys/{key_id}", scope="keys.write", returns=KeyView)
def revoke_key(call: Call, key_id: str) -> KeyView:
    """Revoke an API key.

    Every key that it issued ends too, at once.
    """
    return key_view(keys.revoke_key(call.scope, key_id))
