"""Pages of LLM profiles: the models that the tenant can use, with their prices, budgets, usage and a test."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from appliance.console.frame.routing import Answer, Deferred, Page, Redirect, Visit, page
from appliance.core.errors import ApplianceError, Detail, ValidationFailed
from appliance.core.sentences import Sentence
from appliance.core.texts import format_fixed, format_grouped, mark
from appliance.core.texts import gettext as _
from appliance.llm import KEEP, NANO, Budget, KeyChange, Profile, StoredProfile, Trial, Usage, UsageSum
from appliance.solutions import find_dependents
from appliance.solutions.testing import try_profile

from .settings_form import SettingsForm

_TOKENS = {"type": "integer", "title": mark("Tokens"), "minimum": 1}
_COST = {"type": "number", "title": mark("Cost"), "description": mark("In the currency of the price.")}


def _budget(title: str) -> dict[str, Any]:
    return {"type": "object", "title": title, "properties": {"tokens": _TOKENS, "cost": _COST}}


_FIELDS: Mapping[str, Mapping[str, Any]] = {
    "kind": {
        "oneOf": [{"const": "openai", "title": mark("OpenAI-compatible (Ollama, vLLM, …)")},
                  {"const": "anthropic", "title": mark("Anthropic")}],
        "default": "openai", "title": mark("API"),
    },
    "model": {"type": "string", "title": mark("Model"), "description": mark("The model's name at the provider.")},
    "base_url": {
        "type": "string", "title": mark("Address"), "main": True,
        "description": mark(
            "For example http://127.0.0.1:11434/v1. Leave empty for the provider's default. The operator must allow "
            "private addresses in egress.allow."
        ),
    },
    "api_key": {
        "type": "string", "title": mark("API key"), "secret": True,
        "description": mark("Or = secrets.<name>. Self-hosted models may not need a key."),
    },
    "price": {
        "type": "object", "title": mark("Price per million tokens"), "main": True,
        "properties": {
            "currency": {"type": "string", "title": mark("Currency"), "maxLength": 3},
            "input": {"type": "number", "title": mark("Input")}, "output": {"type": "number", "title": mark("Output")},
        },
    },
    "budgets": {
        "type": "object", "title": mark("Budgets"), "main": True,
        "properties": {
            "day": _budget(mark("Per day")), "month": _budget(mark("Per month")), "execution": _budget(mark("Per execution")),
        },
    },
    "fallbacks": {
        "type": "string", "title": mark("Fallback profiles"),
        "description": mark("Ids of other profiles, separated by commas, used when a call fails."),
    },
    "timeout": {"type": "string", "title": mark("Timeout"), "description": mark("For example 60s or 5m."), "default": "60s"},
    "structured": {"enum": ["native", "json", "prompt"], "default": "native", "title": mark("JSON mode")},
    "parameters": {
        "type": "object", "title": mark("Default parameters"),
        "properties": {
            "temperature": {"type": "number", "title": mark("Temperature")}, "top_p": {"type": "number", "title": mark("Top p")},
            "max_tokens": {"type": "integer", "title": mark("Maximum output tokens")},
            "extra": {
                "type": "object", "title": mark("Additional parameters"),
                "description": mark("JSON, sent to the provider unchanged."),
            },
        },
    },
    "redaction": {
        "type": "object", "title": mark("Redaction"),
        "description": 'JSON: {"patterns": [{"use": "email"}], "restore": true}.',
    },
}  # fmt: skip
SCHEMA: Mapping[str, Any] = {"type": "object", "required": ["kind", "model"], "properties": _FIELDS}
_NEW = "/llm-profiles/-/new"


def _schema() -> Mapping[str, Any]:
    """The schema of the form, in the reader's language."""
    return {name: _translate(part) for name, part in SCHEMA.items()}


def _translate(part: Any) -> Any:
    if isinstance(part, list):
        return [_translate(each) for each in part]
    if not isinstance(part, Mapping):
        return part
    return {name: _(each) if name in ("title", "description") else _translate(each) for name, each in part.items()}


@dataclass(frozen=True)
class Gauge:
    """A budget and its usage; `part` is the used percentage, 0 to 100."""

    title: str
    used: str
    most: str
    part: int


@dataclass
class Entered:
    """The content of the form."""

    form: SettingsForm
    name: str = ""
    slug: str = ""
    problem: ApplianceError | None = None


@page("GET", "/llm-profiles", scope="integrations.read")
def list_llm_profiles(visit: Visit) -> Answer:
    """The tenant's profiles, with their usage."""
    models = visit.services.llm
    result = models.list_profiles(visit.scope, visit.page(limit=20))
    rows = [(each, models.get_usage(visit.scope, each.slug)) for each in result.items]
    return Page("llm_profiles.html", {"rows": rows, "next_cursor": result.next_cursor, "nano": NANO})


@page("GET", _NEW, scope="integrations.write")
def show_new_llm_profile(visit: Visit) -> Answer:
    """The form of a new profile; the first one is named `default`, which the starters and examples refer to."""
    has_default = visit.services.llm.has_profile(visit.scope, "default")
    return _form(visit, Entered(SettingsForm(visit, "llm", _schema()).fill(), "", "" if has_default else "default"), None)


@page("POST", _NEW, scope="integrations.write")
def create_llm_profile(visit: Visit) -> Answer:
    """Create a profile; executions that wait for it continue."""
    entered = Entered(
        SettingsForm(visit, "llm", _schema()), visit.request.field("name").strip(), visit.request.field("slug").strip()
    )
    try:
        profile, key = _read(entered)
        visit.services.llm.create_profile(visit.scope, entered.slug, profile, None if key is KEEP else key)
    except ApplianceError as refusal:
        return _form(visit, _with_problem(entered, refusal), None)
    return Redirect(f"/console/llm-profiles/{entered.slug}")


@page("GET", "/llm-profiles/<slug>", scope="integrations.read")
def show_llm_profile(visit: Visit, slug: str) -> Answer:
    """One profile: its settings, its usage, and what depends on it."""
    return _profile_page(visit, slug)


def _profile_page(visit: Visit, slug: str, trial: Trial | None = None, problem: ApplianceError | None = None) -> Page:
    models = visit.services.llm
    stored, usage = models.get_profile(visit.scope, slug), models.get_usage(visit.scope, slug)
    values = {
        "profile": stored, "settings": stored.profile, "usage": usage, "gauges": _gauges(usage), "nano": NANO, "trial": trial,
        "most": max([used.tokens for _day, used in usage.days], default=0), "problem": problem,
        "dependents": find_dependents(visit.services.referrers, visit.scope, "llm-profile", slug),
    }  # fmt: skip
    return Page("llm_profile.html", values, problem.status if problem else 200)


def _gauges(usage: Usage) -> list[Gauge]:
    """The daily and monthly budgets with their usage, including calls in flight."""
    gauges: list[Gauge] = []
    for title, budget, used in ((_("Today"), usage.budgets.day, usage.day), (_("This month"), usage.budgets.month, usage.month)):
        gauges += _gauges_of(title, budget, used.plus(usage.in_flight), usage.currency or "")
    return gauges


def _gauges_of(title: str, budget: Budget, used: UsageSum, currency: str) -> list[Gauge]:
    gauges = []
    if budget.tokens is not None:
        used_tokens = _("%(tokens)s tokens", tokens=format_grouped(used.tokens))
        gauges.append(Gauge(title, used_tokens, format_grouped(budget.tokens), min(100, 100 * used.tokens // budget.tokens)))
    if budget.cost is not None:
        cost = used.cost_nano / NANO
        gauges.append(
            Gauge(
                title, f"{format_fixed(cost, 2)} {currency}", format_fixed(budget.cost, 2), min(100, int(100 * cost / budget.cost))
            )
        )
    return gauges


@page("POST", "/llm-profiles/<slug>/test", scope="integrations.write")
def test_llm_profile(visit: Visit, slug: str) -> Answer:
    """Send one short test prompt, and show the response and its cost."""
    try:
        work = try_profile(visit.scope, slug, visit.services.llm, visit.services.governance.executor)
    except ApplianceError as refusal:
        return _profile_page(visit, slug, problem=refusal)

    def show() -> Answer:
        try:
            return _profile_page(visit, slug, work.result())
        except ApplianceError as refusal:
            return _profile_page(visit, slug, problem=refusal)

    return Deferred(work, show)


@page("GET", "/llm-profiles/<slug>/settings", scope="integrations.write")
def show_llm_settings(visit: Visit, slug: str) -> Answer:
    """The form of a profile's settings."""
    stored = visit.services.llm.get_profile(visit.scope, slug)
    form = SettingsForm(visit, f"llm/{slug}", _schema(), _form_values(stored)).fill()
    return _form(visit, Entered(form, stored.profile.name, slug), stored)


@page("POST", "/llm-profiles/<slug>/settings", scope="integrations.write")
def change_llm_profile(visit: Visit, slug: str) -> Answer:
    """Save a profile, unless someone else has changed it in the meantime."""
    stored = visit.services.llm.get_profile(visit.scope, slug)
    entered = Entered(
        SettingsForm(visit, f"llm/{slug}", _schema(), _form_values(stored)), visit.request.field("name").strip(), slug
    )
    seen = visit.request.field("version")
    try:
        profile, key = _read(entered)
        version = int(seen) if seen.isascii() and seen.isdigit() and len(seen) < 10 else 0
        visit.services.llm.put_profile(visit.scope, slug, profile, key, if_version=version)
    except ApplianceError as refusal:
        return _form(visit, _with_problem(entered, refusal), stored)
    return Redirect(f"/console/llm-profiles/{slug}")


@page("POST", "/llm-profiles/<slug>/delete", scope="integrations.write")
def delete_llm_profile(visit: Visit, slug: str) -> Answer:
    """Delete a profile; the record of its costs is kept."""
    visit.services.llm.delete_profile(visit.scope, slug)
    return Redirect("/console/llm-profiles")


def _form_values(stored: StoredProfile) -> dict[str, Any]:
    """The values of a profile for its form; a stored key appears only as a marker."""
    values = stored.profile.model_dump(exclude_none=True, exclude_defaults=True) | {"kind": stored.profile.kind}
    if stored.profile.fallbacks:
        values["fallbacks"] = ", ".join(stored.profile.fallbacks)
    if stored.reference is not None:
        values["api_key"] = f"= secrets.{stored.reference}"
    elif stored.key_at is not None:
        values["api_key"] = {"sealed": True}
    return values


def _read(entered: Entered) -> tuple[Profile, KeyChange]:
    """The submitted profile and the change of its key; ValidationFailed with all errors."""
    values = entered.form.read()
    if entered.form.form.problems:
        raise ValidationFailed("some values are invalid; see the messages next to the fields", details=entered.form.form.problems)
    if entered.form.has_lost:
        raise ValidationFailed(
            "the key was entered more than an hour ago and has been discarded; enter it again", pointer="/api_key"
        )
    key = values.pop("api_key", None)
    fallbacks = [each.strip() for each in values.pop("fallbacks", "").split(",") if each.strip()]
    try:
        profile = Profile.model_validate(values | {"name": entered.name, "fallbacks": fallbacks})
    except ValidationError as error:
        raise _to_validation_failed(error) from error
    return profile, KEEP if isinstance(key, dict) else key


def _to_validation_failed(error: ValidationError) -> ValidationFailed:
    errors = error.errors(include_url=False, include_input=False, include_context=False)
    details = [Detail("".join(f"/{part}" for part in each["loc"]), "invalid", _sentence(each["msg"])) for each in errors]
    return ValidationFailed("the profile is invalid; see the messages next to the fields", details=details)


def _sentence(text: str) -> str:
    text = text.removeprefix("Value error, ")
    return Sentence("%(text)s%(text2)s.", text=text[:1].upper(), text2=text[1:])


def _with_problem(entered: Entered, refusal: ApplianceError) -> Entered:
    entered.problem = refusal
    if refusal.details is not entered.form.form.problems and not entered.form.form.problems:
        entered.form.point_out(list(refusal.details))
    return entered


def _form(visit: Visit, entered: Entered, current: StoredProfile | None) -> Page:
    values = {"entered": entered, "current": current, "problem": entered.problem}
    return Page("llm_profile_edit.html", values, entered.problem.status if entered.problem else 200)
