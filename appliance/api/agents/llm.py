"""/api/v1/llm-profiles: which language models a tenant may ask, and what that has cost."""

import asyncio
from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from appliance.api.frame.routing import Answer, Call, View, route
from appliance.api.tenants.tenants import DeletedView
from appliance.core import clock
from appliance.core.errors import ValidationFailed, VersionConflict
from appliance.core.pages import Page
from appliance.llm import KEEP, NANO, Budgets, KeyChange, Parameters, Prices, Profile, Redaction, Settings, StoredProfile, Used
from appliance.solutions.testing import try_profile


class SealedKey(Settings):
    """A key as it was read back: it stays as it is."""

    model_config = ConfigDict(extra="ignore")

    sealed: Literal[True]


class PutProfile(Profile):
    """A profile.  `api_key` is a key, `= secrets.<name>`, or what was read back, which keeps it; without it none is sent."""

    api_key: Annotated[str, Field(min_length=1, max_length=10_000)] | SealedKey | None = None


class CreateProfile(PutProfile):
    slug: str


class SealedView(View):
    sealed: Literal[True] = True
    updated_at: str


class ProfileView(View):
    """An LLM profile; its key is `{"sealed": true, "updated_at"}`, or the reference to a secret."""

    slug: str
    name: str
    kind: Literal["openai", "anthropic"]
    model: str
    base_url: str
    api_key: SealedView | str | None = None
    parameters: Parameters
    timeout: str
    structured: Literal["native", "json", "prompt"]
    price: Prices | None = None
    budgets: Budgets
    redaction: Redaction
    fallbacks: list[str]
    version: int
    created_at: str
    updated_at: str


class SumView(View):
    """Calls, tokens and what they cost, in the profile's currency; what is under way counts as the most it may come to."""

    calls: int
    input_tokens: int
    output_tokens: int
    cost: float


class DayView(SumView):
    day: str


class UsageView(View):
    """What a profile has cost; days are UTC's, `days` are the last 31."""

    profile: str
    currency: str | None = None
    day: SumView
    month: SumView
    in_flight: SumView
    budgets: Budgets
    days: list[DayView]


def profile_view(found: StoredProfile) -> ProfileView:
    profile = found.profile
    key: SealedView | str | None = f"= secrets.{found.reference}" if found.reference is not None else None
    if found.key_at is not None:
        key = SealedView(updated_at=clock.rfc3339(found.key_at))
    return ProfileView(
        slug=found.slug, name=profile.name or found.slug, kind=profile.kind, model=profile.model, base_url=profile.address,
        api_key=key, parameters=profile.parameters, timeout=profile.timeout, structured=profile.structured, price=profile.price,
        budgets=profile.budgets, redaction=profile.redaction, fallbacks=profile.fallbacks, version=found.version,
        created_at=clock.rfc3339(found.created_at), updated_at=clock.rfc3339(found.updated_at),
    )  # fmt: skip


def _parts(body: PutProfile) -> tuple[Profile, KeyChange]:
    profile = Profile.model_validate(body.model_dump(exclude={"slug", "api_key"}))
    return profile, KEEP if isinstance(body.api_key, SealedKey) else body.api_key


def _answer(found: StoredProfile, *, is_new: bool = False) -> Answer:
    headers = {"Location": f"/api/v1/llm-profiles/{found.slug}"} if is_new else {}
    return Answer(profile_view(found), etag=str(found.version), headers=headers, status=201 if is_new else 200)


@route("GET", "/llm-profiles", scope="integrations.read", returns=ProfileView, listed=True)
def list_llm_profiles(call: Call) -> Page[ProfileView]:
    """List the tenant's LLM profiles."""
    return call.services.llm.list_profiles(call.scope, call.query.page).map(profile_view)


@route("POST", "/llm-profiles", scope="integrations.write", body=CreateProfile, returns=ProfileView, status=201)
def create_llm_profile(call: Call) -> Answer:
    """Create an LLM profile: a model that steps and code may ask under this name.

    The key is sealed and never read back. Executions that wait for a profile of this name go on. An address outside the
    public internet has to be in the operator's `egress.allow`.
    """
    body: CreateProfile = call.body
    profile, key = _parts(body)
    if key is KEEP:
        raise ValidationFailed("no key is sealed here; send it", pointer="/api_key")
    return _answer(call.services.llm.create_profile(call.scope, body.slug, profile, key), is_new=True)


@route("GET", "/llm-profiles/{slug}", scope="integrations.read", returns=ProfileView)
def get_llm_profile(call: Call, slug: str) -> Answer:
    """Show an LLM profile."""
    return _answer(call.services.llm.get_profile(call.scope, slug))


@route(
    "PUT", "/llm-profiles/{slug}", scope="integrations.write", body=PutProfile, returns=ProfileView, also={201: ProfileView}
)
def put_llm_profile(call: Call, slug: str) -> Answer:
    """Create or replace an LLM profile.

    `api_key` sent back as it was read keeps the key, unless the address is another one; left out, the profile has none.
    """
    profile, key = _parts(call.body)
    version = _version(call.if_match) if call.if_match is not None else None
    found, is_new = call.services.llm.put_profile(call.scope, slug, profile, key, if_version=version)
    return _answer(found, is_new=is_new)


def _version(etag: str) -> int:
    if not etag.isascii() or not etag.isdigit() or len(etag) > 9:
        raise VersionConflict("If-Match is not an ETag of this LLM profile; read it and decide again")
    return int(etag)


@route("DELETE", "/llm-profiles/{slug}", scope="integrations.write", returns=DeletedView)
def delete_llm_profile(call: Call, slug: str) -> DeletedView:
    """Delete an LLM profile; what it has cost stays on record, and counts again for one of the same name."""
    call.services.llm.delete_profile(call.scope, slug)
    return DeletedView(deleted=slug)


class LlmTrialView(View):
    """What a profile answered to a short question, or why it did not; `cost` is in its currency."""

    ok: bool
    message: str
    duration_ms: int
    input_tokens: int
    output_tokens: int
    cost: float


@route("POST", "/llm-profiles/{slug}/test", scope="integrations.write", returns=LlmTrialView, atomic=False)
async def test_llm_profile(call: Call, slug: str) -> LlmTrialView:
    """Ask the profile's model one short question, which is booked like any other; that it fails is an answer, not an error."""
    found = await asyncio.wrap_future(try_profile(call.services, call.scope, slug))
    return LlmTrialView(
        ok=found.ok, message=found.message, duration_ms=found.ms, input_tokens=found.used.input_tokens,
        output_tokens=found.used.output_tokens, cost=found.used.cost_nano / NANO,
    )  # fmt: skip


@route("GET", "/llm-profiles/{slug}/usage", scope="integrations.read", returns=UsageView)
def get_llm_usage(call: Call, slug: str) -> UsageView:
    """Show what an LLM profile has cost today, this month and on each of the last 31 days, beside its budgets."""
    found = call.services.llm.get_usage(call.scope, slug)
    return UsageView(
        profile=slug, currency=found.currency, day=SumView(**_sums(found.day)), month=SumView(**_sums(found.month)),
        in_flight=SumView(**_sums(found.in_flight)), budgets=found.budgets,
        days=[DayView(day=day, **_sums(used)) for day, used in found.days],
    )  # fmt: skip


def _sums(used: Used) -> dict[str, float]:
    return {
        "calls": used.calls, "input_tokens": used.input_tokens, "output_tokens": used.output_tokens, "cost": used.cost_nano / NANO,
    }  # fmt: skip
