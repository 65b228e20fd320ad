"""Pages of LLM profiles: which models the tenant may ask, what they cost and may cost, and whether they answer."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from appliance.console.frame.routing import Answer, Later, Page, Redirect, Visit, page
from appliance.core.errors import ApplianceError, Detail, ValidationFailed
from appliance.core.sentences import Sentence
from appliance.core.texts import fixed, grouped, mark
from appliance.core.texts import gettext as _
from appliance.llm import KEEP, NANO, Budget, KeyChange, Profile, StoredProfile, Trial, Usage, Used
from appliance.solutions import dependents_of
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
    """The schema of the form in the language spoken now."""
    return {name: _said(part) for name, part in SCHEMA.items()}


def _said(part: Any) -> Any:
    if isinstance(part, list):
        return [_said(each) for each in part]
    if not isinstance(part, Mapping):
        return part
    return {name: _(each) if name in ("title", "description") else _said(each) for name, each in part.items()}


@dataclass(frozen=True)
class Gauge:
    """A budget and how much of it is used; `part` from 0 to 100."""

    title: str
    used: str
    most: str
    part: int


@dataclass
class Entered:
    """What stands in the form."""

    form: SettingsForm
    name: str = ""
    slug: str = ""
    problem: ApplianceError | None = None


@page("GET", "/llm-profiles", scope="integrations.read")
def list_llm_profiles(visit: Visit) -> Answer:
    """The tenant's profiles, with what each has used this month."""
    models = visit.services.llm
    found = models.list_profiles(visit.scope, visit.page(limit=20))
    rows = [(each, models.get_usage(visit.scope, each.slug)) for each in found.items]
    return Page("llm_profiles.html", {"rows": rows, "next_cursor": found.next_cursor, "nano": NANO})


@page("GET", _NEW, scope="integrations.write")
def show_new_llm_profile(visit: Visit) -> Answer:
    """The form of a new profile; the first one is called as starters and examples call it."""
    taken = visit.services.llm.has_profile(visit.scope, "default")
    return _form(visit, Entered(SettingsForm(visit, "llm", _schema()).fill(), "", "" if taken else "default"), None)


@page("POST", _NEW, scope="integrations.write")
def create_llm_profile(visit: Visit) -> Answer:
    """Create a profile; executions that wait for it go on."""
    entered = Entered(SettingsForm(visit, "llm", _schema()), visit.asked.field("name").strip(), visit.asked.field("slug").strip())
    try:
        profile, key = _read(entered)
        visit.services.llm.create_profile(visit.scope, entered.slug, profile, None if key is KEEP else key)
    except ApplianceError as refusal:
        return _form(visit, _refused(entered, refusal), None)
    return Redirect(f"/console/llm-profiles/{entered.slug}")


@page("GET", "/llm-profiles/<slug>", scope="integrations.read")
def show_llm_profile(visit: Visit, slug: str) -> Answer:
    """One profile: what it is, what it has used, and who asks it."""
    return _profile_page(visit, slug)


def _profile_page(visit: Visit, slug: str, trial: Trial | None = None, problem: ApplianceError | None = None) -> Page:
    models = visit.services.llm
    found, usage = models.get_profile(visit.scope, slug), models.get_usage(visit.scope, slug)
    values = {
        "profile": found, "settings": found.profile, "usage": usage, "gauges": _gauges(usage), "nano": NANO, "trial": trial,
        "most": max([used.tokens for _day, used in usage.days], default=0), "problem": problem,
        "dependents": dependents_of(visit.services, visit.scope, "llm-profile", slug),
    }  # fmt: skip
    return Page("llm_profile.html", values, problem.status if problem else 200)


def _gauges(usage: Usage) -> list[Gauge]:
    """Budgets of the day and the month against what is used, what is under way included."""
    found: list[Gauge] = []
    for title, budget, used in ((_("Today"), usage.budgets.day, usage.day), (_("This month"), usage.budgets.month, usage.month)):
        found += _gauges_of(title, budget, used.plus(usage.in_flight), usage.currency or "")
    return found


def _gauges_of(title: str, budget: Budget, used: Used, currency: str) -> list[Gauge]:
    found = []
    if budget.tokens is not None:
        told = _("%(tokens)s tokens", tokens=grouped(used.tokens))
        found.append(Gauge(title, told, grouped(budget.tokens), min(100, 100 * used.tokens // budget.tokens)))
    if budget.cost is not None:
        cost = used.cost_nano / NANO
        found.append(Gauge(title, f"{fixed(cost, 2)} {currency}", fixed(budget.cost, 2), min(100, int(100 * cost / budget.cost))))
    return found


@page("POST", "/llm-profiles/<slug>/test", scope="integrations.write")
def test_llm_profile(visit: Visit, slug: str) -> Answer:
    """Ask it one short question, and show what it said and cost."""
    try:
        work = try_profile(visit.services, visit.scope, slug)
    except ApplianceError as refusal:
        return _profile_page(visit, slug, problem=refusal)

    def show() -> Answer:
        try:
            return _profile_page(visit, slug, work.result())
        except ApplianceError as refusal:
            return _profile_page(visit, slug, problem=refusal)

    return Later(work, show)


@page("GET", "/llm-profiles/<slug>/settings", scope="integrations.write")
def show_llm_settings(visit: Visit, slug: str) -> Answer:
    """The settings of a profile, to be changed."""
    found = visit.services.llm.get_profile(visit.scope, slug)
    form = SettingsForm(visit, f"llm/{slug}", _schema(), _shown(found)).fill()
    return _form(visit, Entered(form, found.profile.name, slug), found)


@page("POST", "/llm-profiles/<slug>/settings", scope="integrations.write")
def change_llm_profile(visit: Visit, slug: str) -> Answer:
    """Change a profile, unless somebody else did since the page was made."""
    found = visit.services.llm.get_profile(visit.scope, slug)
    entered = Entered(SettingsForm(visit, f"llm/{slug}", _schema(), _shown(found)), visit.asked.field("name").strip(), slug)
    seen = visit.asked.field("version")
    try:
        profile, key = _read(entered)
        version = int(seen) if seen.isascii() and seen.isdigit() and len(seen) < 10 else 0
        visit.services.llm.put_profile(visit.scope, slug, profile, key, if_version=version)
    except ApplianceError as refusal:
        return _form(visit, _refused(entered, refusal), found)
    return Redirect(f"/console/llm-profiles/{slug}")


@page("POST", "/llm-profiles/<slug>/delete", scope="integrations.write")
def delete_llm_profile(visit: Visit, slug: str) -> Answer:
    """Delete a profile; what it has cost stays on record."""
    visit.services.llm.delete_profile(visit.scope, slug)
    return Redirect("/console/llm-profiles")


def _shown(found: StoredProfile) -> dict[str, Any]:
    """A profile as its form has it."""
    told = found.profile.model_dump(exclude_none=True, exclude_defaults=True) | {"kind": found.profile.kind}
    if found.profile.fallbacks:
        told["fallbacks"] = ", ".join(found.profile.fallbacks)
    if found.reference is not None:
        told["api_key"] = f"= secrets.{found.reference}"
    elif found.key_at is not None:
        told["api_key"] = {"sealed": True}
    return told


def _read(entered: Entered) -> tuple[Profile, KeyChange]:
    """What was sent; ValidationFailed with everything that is wrong."""
    told = entered.form.read()
    if entered.form.form.problems:
        raise ValidationFailed("some of it cannot be read; see the fields", details=entered.form.form.problems)
    if entered.form.has_lost:
        raise ValidationFailed("the key was typed more than an hour ago and is forgotten; type it again", pointer="/api_key")
    key = told.pop("api_key", None)
    fallbacks = [each.strip() for each in told.pop("fallbacks", "").split(",") if each.strip()]
    try:
        profile = Profile.model_validate(told | {"name": entered.name, "fallbacks": fallbacks})
    except ValidationError as error:
        raise _told_of(error) from error
    return profile, KEEP if isinstance(key, dict) else key


def _told_of(error: ValidationError) -> ValidationFailed:
    found = error.errors(include_url=False, include_input=False, include_context=False)
    details = [Detail("".join(f"/{part}" for part in each["loc"]), "invalid", _sentence(each["msg"])) for each in found]
    return ValidationFailed("the profile is not right yet; see the fields", details=details)


def _sentence(text: str) -> str:
    text = text.removeprefix("Value error, ")
    return Sentence("%(text)s%(text2)s.", text=text[:1].upper(), text2=text[1:])


def _refused(entered: Entered, refusal: ApplianceError) -> Entered:
    entered.problem = refusal
    if refusal.details is not entered.form.form.problems and not entered.form.form.problems:
        entered.form.point_out(list(refusal.details))
    return entered


def _form(visit: Visit, entered: Entered, current: StoredProfile | None) -> Page:
    values = {"entered": entered, "current": current, "problem": entered.problem}
    return Page("llm_profile_edit.html", values, entered.problem.status if entered.problem else 200)
