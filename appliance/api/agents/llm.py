"""/api/v1/llm-profiles: the language models a tenant may use, and what they have cost."""

import asyncio
from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from appliance.api.frame.routing import Answer, Call, View, route
from appliance.api.tenants.tenants import DeletedView
from appliance.core import clock
from appliance.core.errors import (
    AlreadyExists,
    AnswerInvalid,
    AnswerRefused,
    BudgetExceeded,
    ConcurrencyLimited,
    ConnectorFailed,
    ValidationFailed,
    VersionConflict,
)
from appliance.core.pages import Page
from appliance.llm import KEEP, NANO, Budgets, KeyChange, Parameters, Prices, Profile, Redaction, Settings, StoredProfile, UsageSum
from appliance.solutions.testing import try_profile


class SealedKey(Settings):
    """The placeholder that reading a profile returns instead of its key; sending it back keeps the stored key."""

    model_config = ConfigDict(extra="ignore")

    sealed: Annotated[Literal[True], Field(description="Always true; says that the stored key is kept.")]


class PutProfile(Profile):
    """An LLM profile.  `api_key` is a key, `= secrets.<name>`, or the placeholder that reading returned, which keeps the stored
    key; without it, requests to the model carry no key."""

    api_key: Annotated[Annotated[str, Field(min_length=1, max_length=10_000)] | SealedKey | None, Field(description=(
        "The key of the provider, `= secrets.<name>`, or the placeholder that reading returned, which keeps the stored key; "
        "default: no key."
    ))] = None


class CreateProfile(PutProfile):
    """A new LLM profile with its name."""

    slug: Annotated[
        str, Field(description="The name that steps and agents use: at most 63 lower-case letters, digits and single hyphens.")
    ]


class SealedView(View):
    """Stands for a stored key."""

    sealed: Annotated[Literal[True], Field(description="Always true: the key is stored, and never read back.")] = True
    updated_at: Annotated[str, Field(description="When the key was last stored; RFC 3339, UTC.")]


class ProfileView(View):
    """An LLM profile; `api_key` is shown as `{"sealed": true, "updated_at"}` or as a reference to a secret."""

    slug: Annotated[str, Field(description="Identifies the profile in the tenant; steps and agents name it.")]
    name: Annotated[str, Field(description="The name for people; by default the slug.")]
    kind: Annotated[Literal["openai", "anthropic"], Field(description=(
        "The protocol: `openai` for every server compatible with OpenAI, or `anthropic`."
    ))]
    model: Annotated[str, Field(description="The model to ask, by the provider's name.")]
    base_url: Annotated[str, Field(description="The address of the provider's API; by default the provider's own.")]
    api_key: Annotated[SealedView | str | None, Field(description=(
        "The placeholder of a stored key, or `= secrets.<name>`. Absent if requests carry no key."
    ))] = None
    parameters: Annotated[Parameters, Field(description="Defaults for calls that do not set them.")]
    timeout: Annotated[str, Field(description="The longest one request may take; a duration such as `60s`, at most 15 minutes.")]
    structured: Annotated[Literal["native", "json", "prompt"], Field(description=(
        "How JSON answers are requested: `native` by schema, `json` by the JSON mode, `prompt` by words in the prompt."
    ))]
    price: Annotated[Prices | None, Field(description="What tokens cost. Absent if the cost is not counted.")] = None
    budgets: Annotated[Budgets, Field(description="The most that may be used before calls are refused.")]
    redaction: Annotated[Redaction, Field(description="What is replaced in prompts before they are sent.")]
    fallbacks: Annotated[list[str], Field(description="The profiles to ask in turn when this one fails, at most 5 slugs.")]
    version: Annotated[int, Field(description="The number of changes of the profile, from 1. The ETag of the profile.")]
    created_at: Annotated[str, Field(description="When the profile was created; RFC 3339, UTC.")]
    updated_at: Annotated[str, Field(description="When the profile last changed; RFC 3339, UTC.")]


class SumView(View):
    """Calls, tokens and cost in the profile's currency; a call in progress counts with the most it may use."""

    calls: Annotated[int, Field(description="The number of requests to the model.")]
    input_tokens: Annotated[int, Field(description="The tokens sent to the model.")]
    output_tokens: Annotated[int, Field(description="The tokens the model has answered with.")]
    cost: Annotated[float, Field(description="The cost in the profile's currency; 0 for requests without a price.")]


class DayView(SumView):
    """The usage of one day."""

    day: Annotated[str, Field(description="The day in UTC, such as `2026-11-24`.")]


class UsageView(View):
    """Usage of a profile: days are UTC days, and `days` covers the last 31."""

    profile: Annotated[str, Field(description="The slug of the profile.")]
    currency: Annotated[
        str | None, Field(description="The currency of all costs, a code such as `EUR`. Absent if the profile has no price.")
    ] = None
    day: Annotated[SumView, Field(description="The usage since midnight UTC.")]
    month: Annotated[SumView, Field(description="The usage since the first of the month, UTC.")]
    in_flight: Annotated[SumView, Field(description="The most that calls in progress may still use; not part of the other sums.")]
    budgets: Annotated[Budgets, Field(description="The limits that the usage is compared with.")]
    days: Annotated[
        list[DayView], Field(description="The usage by day, oldest first; the last 31 days, without those that had none.")
    ]


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
    """List the tenant's LLM profiles.

    Sorted by `id`, which is the slug; `sort` also takes `created_at`. Keys are shown as placeholders or as references to
    secrets, never themselves.
    """
    return call.services.llm.list_profiles(call.scope, call.query.page).map(profile_view)


@route(
    "POST", "/llm-profiles", scope="integrations.write", body=CreateProfile, returns=ProfileView, status=201,
    errors=(AlreadyExists,),
)  # fmt: skip
def create_llm_profile(call: Call) -> Answer:
    """Create an LLM profile.

    A profile is a model that steps and code may call by this name. The key is sealed and never read back. Executions that wait
    for a profile of this name continue. An address outside the public internet must be listed in the operator's `egress.allow`.
    """
    body: CreateProfile = call.body
    profile, key = _profile_and_key(body)
    if key is KEEP:
        raise ValidationFailed("a new profile has no stored key yet; send the key itself", pointer="/api_key")
    return _answer(call.services.llm.create_profile(call.scope, body.slug, profile, key), is_new=True)


@route("GET", "/llm-profiles/{slug}", scope="integrations.read", returns=ProfileView)
def get_llm_profile(call: Call, slug: str) -> Answer:
    """Show an LLM profile.

    The ETag is its version. The key is a placeholder or a reference to a secret, never the key itself.
    """
    return _answer(call.services.llm.get_profile(call.scope, slug))


@route(
    "PUT", "/llm-profiles/{slug}", scope="integrations.write", body=PutProfile, returns=ProfileView, also={201: ProfileView}
)
def put_llm_profile(call: Call, slug: str) -> Answer:
    """Create or replace an LLM profile.

    Sending `api_key` back as it was read keeps the key, unless the address changes; leaving it out removes the key.
    Takes If-Match.
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
    """Delete an LLM profile.

    Its recorded usage stays and counts again for a new profile of the same name.
    """
    call.services.llm.delete_profile(call.scope, slug)
    return DeletedView(deleted=slug)


class LlmTrialView(View):
    """A profile's answer to a short test question, or why there was none; `cost` is in the profile's currency."""

    ok: Annotated[bool, Field(description="Whether the model answered.")]
    message: Annotated[str, Field(description="The answer of the model, or why there was none.")]
    duration_ms: Annotated[int, Field(description="How long the request took, in milliseconds.")]
    input_tokens: Annotated[int, Field(description="The tokens sent to the model.")]
    output_tokens: Annotated[int, Field(description="The tokens the model has answered with.")]
    cost: Annotated[float, Field(description="The cost in the profile's currency; 0 without a price.")]


@route(
    "POST", "/llm-profiles/{slug}/test", scope="integrations.write", returns=LlmTrialView, atomic=False,
    errors=(AnswerInvalid, AnswerRefused, BudgetExceeded, ConcurrencyLimited, ConnectorFailed),
)  # fmt: skip
async def test_llm_profile(call: Call, slug: str) -> LlmTrialView:
    """Ask the profile's model a test question.

    The question is short and counts as usage; a failure is reported as a result, not as an error.
    """
    trial = await asyncio.wrap_future(try_profile(call.scope, slug, call.services.llm, call.services.governance.executor))
    return LlmTrialView(
        ok=trial.ok, message=trial.message, duration_ms=trial.ms, input_tokens=trial.used.input_tokens,
        output_tokens=trial.used.output_tokens, cost=trial.used.cost_nano / NANO,
    )  # fmt: skip


@route("GET", "/llm-profiles/{slug}/usage", scope="integrations.read", returns=UsageView)
def get_llm_usage(call: Call, slug: str) -> UsageView:
    """Show what an LLM profile has cost.

    The answer has today, this month and each of the last 31 days, with the profile's budgets.
    """
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
