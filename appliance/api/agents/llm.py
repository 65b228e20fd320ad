"""/api/v1/llm-profiles: the language models a tenant may use, and what they have cost."""

import asyncio
from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from appliance.api.frame.routing import Answer, Call, View, route
from appliance.api.tenants.tenants import DeletedView
from appliance.core import clock
from appliance.core.errors import ValidationFailed, VersionConflict
from appliance.core.pages import Page
from appliance.llm import KEEP, NANO, Budgets, KeyChange, Parameters, Prices, Profile, Redaction, Settings, StoredProfile, UsageSum
from appliance.solutions.testing import try_profile


class SealedKey(Settings):
    """The placeholder that reading a profile returns instead of its key; sending it back keeps the stored key."""

    model_config = ConfigDict(extra="ignore")

    sealed: Literal[True]


class PutProfile(Profile):
    """An LLM profile.  `api_key` is a key, `= secrets.<name>`, or the placeholder that reading returned, which keeps the stored
    key; without it, requests to the model carry no key."""

    api_key: Annotated[str, Field(min_length=1, max_length=10_000)] | SealedKey | None = None


class CreateProfile(PutProfile):
    slug: str


class SealedView(View):
    sealed: Literal[True] = True
    updated_at: str


class ProfileView(View):
    """An LLM profile; `api_key` is shown as `{"sealed": true, "updated_at"}` or as a reference to a secret."""

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
    """Calls, tokens and cost in the profile's currency; a call in progress counts with the most it may use."""

    calls: int
    input_tokens: int
    output_tokens: int
    cost: float


class DayView(SumView):
    day: str


class UsageView(View):
    """Usage of a profile: days are UTC days, and `days` covers the last 31."""

    profile: str
    currency: str | None = None
    day: SumView
    month: SumView
    in_flight: SumView
    budgets: Budgets
    days: list[DayView]


def profile_view(stored: StoredProfile) -> ProfileView:
    profile = stored.profile
    key: SealedView | str | None = f"= secrets.{stored.reference}" if stored.reference is not None else None
    if stored.key_at is not None:
        key = SealedView(updated_at=clock.rfc3339(stored.key_at))
    return ProfileView(
        slug=stored.slug, name=profile.name or stored.slug, kind=profile.kind, model=profile.model, base_url=profile.address,
        api_key=key, parameters=profile.parameters, timeout=profile.timeout, structured=profile.structured, price=profile.price,
        budgets=profile.budgets, redaction=profile.redaction, fallbacks=profile.fallbacks, version=stored.version,
        created_at=clock.rfc3339(stored.created_at), updated_at=clock.rfc3339(stored.updated_at),
    )  # fmt: skip


def _profile_and_key(body: PutProfile) -> tuple[Profile, KeyChange]:
    profile = Profile.model_validate(body.model_dump(exclude={"slug", "api_key"}))
    return profile, KEEP if isinstance(body.api_key, SealedKey) else body.api_key


def _answer(stored: StoredProfile, *, is_new: bool = False) -> Answer:
    headers = {"Location": f"/api/v1/llm-profiles/{stored.slug}"} if is_new else {}
    return Answer(profile_view(stored), etag=str(stored.version), headers=headers, status=201 if is_new else 200)


@route("GET", "/llm-profiles", scope="integrations.read", returns=ProfileView, listed=True)
def list_llm_profiles(call: Call) -> Page[ProfileView]:
    """List the tenant's LLM profiles."""
    return call.services.llm.list_profiles(call.scope, call.query.page).map(profile_view)


@route("POST", "/llm-profiles", scope="integrations.write", body=CreateProfile, returns=ProfileView, status=201)
def create_llm_profile(call: Call) -> Answer:
    """Create an LLM profile: a model that steps and code may call by this name.

    The key is sealed and never read back. Executions that wait for a profile of this name continue. An address outside the
    public internet must be listed in the operator's `egress.allow`.
    """
    body: CreateProfile = call.body
    profile, key = _profile_and_key(body)
    if key is KEEP:
        raise ValidationFailed("a new profile has no stored key yet; send the key itself", pointer="/api_key")
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

    Sending `api_key` back as it was read keeps the key, unless the address changes; leaving it out removes the key.
    """
    profile, key = _profile_and_key(call.body)
    version = _version(call.if_match) if call.if_match is not None else None
    stored, is_new = call.services.llm.put_profile(call.scope, slug, profile, key, if_version=version)
    return _answer(stored, is_new=is_new)


def _version(etag: str) -> int:
    if not etag.isascii() or not etag.isdigit() or len(etag) > 9:
        raise VersionConflict("If-Match is not an ETag of this LLM profile; read the profile again and repeat the change")
    return int(etag)


@route("DELETE", "/llm-profiles/{slug}", scope="integrations.write", returns=DeletedView)
def delete_llm_profile(call: Call, slug: str) -> DeletedView:
    """Delete an LLM profile; its recorded usage stays and counts again for a new profile of the same name."""
    call.services.llm.delete_profile(call.scope, slug)
    return DeletedView(deleted=slug)


class LlmTrialView(View):
    """A profile's answer to a short test question, or why there was none; `cost` is in the profile's currency."""

    ok: bool
    message: str
    duration_ms: int
    input_tokens: int
    output_tokens: int
    cost: float


@route("POST", "/llm-profiles/{slug}/test", scope="integrations.write", returns=LlmTrialView, atomic=False)
async def test_llm_profile(call: Call, slug: str) -> LlmTrialView:
    """Ask the profile's model a short test question, which counts as usage; a failure is reported as a result, not as an error."""
    trial = await asyncio.wrap_future(try_profile(call.services, call.scope, slug))
    return LlmTrialView(
        ok=trial.ok, message=trial.message, duration_ms=trial.ms, input_tokens=trial.used.input_tokens,
        output_tokens=trial.used.output_tokens, cost=trial.used.cost_nano / NANO,
    )  # fmt: skip


@route("GET", "/llm-profiles/{slug}/usage", scope="integrations.read", returns=UsageView)
def get_llm_usage(call: Call, slug: str) -> UsageView:
    """Show what an LLM profile has cost today, this month and on each of the last 31 days, with its budgets."""
    usage = call.services.llm.get_usage(call.scope, slug)
    return UsageView(
        profile=slug, currency=usage.currency, day=SumView(**_sums(usage.day)), month=SumView(**_sums(usage.month)),
        in_flight=SumView(**_sums(usage.in_flight)), budgets=usage.budgets,
        days=[DayView(day=day, **_sums(used)) for day, used in usage.days],
    )  # fmt: skip


def _sums(used: UsageSum) -> dict[str, float]:
    return {
        "calls": used.calls, "input_tokens": used.input_tokens, "output_tokens": used.output_tokens, "cost": used.cost_nano / NANO,
    }  # fmt: skip
