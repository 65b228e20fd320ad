"""Forms to create an integration, change its settings, test them before saving, and delete it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from appliance.connectors import translate
from appliance.console.frame.routing import Answer, Deferred, Page, Redirect, Visit, page
from appliance.core.errors import ApplianceError, NotFound, ValidationFailed
from appliance.integrations import DEFAULT_CONCURRENCY, Check, Integration, IntegrationSpec, connecting
from appliance.solutions import find_dependents

from .integrations import get_connector
from .settings_form import SettingsForm

_NEW = "/integrations/-/new"
_TRIES = 20
_LONGEST = 63


@dataclass
class Entered:
    """The content of the form: names, settings, and the result of testing them."""

    settings: SettingsForm
    name: str
    slug: str
    concurrency: str = str(DEFAULT_CONCURRENCY)
    problem: ApplianceError | None = None
    check: Check | None = None
    errors: Mapping[str, str] = field(default_factory=dict)


@page("GET", _NEW, scope="integrations.write")
def show_new_integration(visit: Visit) -> Answer:
    """The form of a new integration for the connector chosen in the catalogue."""
    name = visit.request.args.get("connector", "")
    if not name:
        return Redirect("/console/integrations/catalogue")
    connector = visit.services.integrations.get_connector(name).connector
    form = SettingsForm(visit, name, connector.settings_schema).fill()
    return _form(visit, name, Entered(form, translate(connector.title), _free_slug(visit, name)))


def _free_slug(visit: Visit, connector: str) -> str:
    """The connector's name, with a number appended if an integration already uses it; empty after `_TRIES` attempts."""
    for number in range(1, _TRIES):
        slug = connector if number == 1 else f"{connector[: _LONGEST - 3]}-{number}"
        try:
            visit.services.integrations.get_integration(visit.scope, slug)
        except NotFound:
            return slug
    return ""


@page("POST", _NEW, scope="integrations.write")
def create_integration(visit: Visit) -> Answer:
    """Test the entered settings, or save the integration and then test it."""
    request = visit.request
    connector = visit.services.integrations.get_connector(request.field("connector"))
    form = SettingsForm(visit, connector.name, connector.connector.settings_schema)
    entered, spec = _read(visit, form, connector.name)
    if spec is None:
        return _form(visit, connector.name, entered)
    if request.field("do") == "test":
        return _test_settings(visit, connector.name, entered, spec, None)
    try:
        visit.services.integrations.create_integration(visit.scope, entered.slug, spec)
    except ApplianceError as refusal:
        return _form(visit, connector.name, _with_problem(entered, refusal))
    return _test_and_redirect(visit, entered.slug)


def _read(visit: Visit, form: SettingsForm, connector: str) -> tuple[Entered, IntegrationSpec | None]:
    """The submitted form; the Spec is None when the form is invalid."""
    request = visit.request
    settings = form.read()
    entered = Entered(
        form, request.field("name").strip()[:200], request.field("slug").strip(), request.field("concurrency").strip()
    )
    if form.form.problems:
        entered.problem = ValidationFailed(
            "some settings are invalid; see the messages next to the fields", details=form.form.problems
        )
        return entered, None
    if form.has_lost:
        entered.problem = ValidationFailed(
            "the secrets were entered more than an hour ago and have been discarded; enter them again"
        )
        return entered, None
    digits = entered.concurrency
    concurrency = int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 4 else 0
    return entered, IntegrationSpec(connector, settings, entered.name, concurrency if digits else DEFAULT_CONCURRENCY)


def _with_problem(entered: Entered, refusal: ApplianceError) -> Entered:
    entered.problem = refusal
    entered.settings.point_out(list(refusal.details))
    return entered


def _test_settings(visit: Visit, connector: str, entered: Entered, spec: IntegrationSpec, current: Integration | None) -> Answer:
    """Test the settings and show the form with the result; no thread is held during the test."""
    executor, slug = visit.services.governance.executor, current.slug if current else None
    work = executor.submit(visit.scope, lambda: executor.try_settings(visit.scope, spec, slug))

    def show() -> Answer:
        try:
            entered.check = work.result()
        except ApplianceError as refusal:
            _with_problem(entered, refusal)
        return _form(visit, connector, entered, current)

    return Deferred(work, show)


def _test_and_redirect(visit: Visit, slug: str) -> Answer:
    """Test the saved integration, unless a person must first grant access, then redirect to its page."""
    there = Redirect(f"/console/integrations/{slug}")
    connection = connecting.connection(visit.services.integrations, visit.scope, slug)
    if connection is not None and connection.state != "connected":
        return there
    executor = visit.services.governance.executor
    try:
        work = executor.submit(visit.scope, lambda: executor.test_integration(visit.scope, slug))
    except ApplianceError:  # The integration is saved; if no test can run now, its page offers one.
        return there
    return Deferred(work, lambda: there)


def _form(visit: Visit, connector: str, entered: Entered, current: Integration | None = None) -> Page:
    installed = visit.services.integrations.get_connector(connector).connector
    values: dict[str, Any] = {
        "connector": installed, "entered": entered, "current": current, "problem": entered.problem,
        "callback": f"{visit.services.config.tenant_url(visit.scope.tenant_id)}{connecting.CALLBACK}",
        "by_person": _offers_consent(installed.settings_schema),
        "dependents": find_dependents(visit.services.referrers, visit.scope, "integration", current.slug) if current else [],
    }  # fmt: skip
    return Page("integration_edit.html", values, entered.problem.status if entered.problem else 200)


def _offers_consent(schema: Mapping[str, Any]) -> bool:
    grants = schema.get("properties", {}).get("auth", {}).get("properties", {}).get("grant", {}).get("enum", ())
    return "authorization_code" in grants


@page("GET", "/integrations/<slug>/settings", scope="integrations.write")
def show_settings(visit: Visit, slug: str) -> Answer:
    """The form of an integration's settings; secrets are kept unless new ones are entered."""
    integration = visit.services.integrations.get_integration(visit.scope, slug)
    connector = get_connector(visit, integration)
    form = SettingsForm(visit, integration.connector, connector.settings_schema, integration.settings).fill()
    return _form(visit, integration.connector, Entered(form, integration.name, slug, str(integration.concurrency)), integration)


@page("POST", "/integrations/<slug>/settings", scope="integrations.write")
def change_settings(visit: Visit, slug: str) -> Answer:
    """Test the changed settings, or save them, unless someone else has changed them in the meantime."""
    integrations = visit.services.integrations
    integration = integrations.get_integration(visit.scope, slug)
    connector = get_connector(visit, integration)
    form = SettingsForm(visit, integration.connector, connector.settings_schema, integration.settings)
    entered, spec = _read(visit, form, integration.connector)
    entered.slug = slug
    if spec is None:
        return _form(visit, integration.connector, entered, integration)
    if visit.request.field("do") == "test":
        return _test_settings(visit, integration.connector, entered, spec, integration)
    try:
        seen = visit.request.field("version")
        version = int(seen) if seen.isascii() and seen.isdigit() and len(seen) < 10 else 0
        integrations.replace_integration(visit.scope, slug, spec, if_version=version)
    except ApplianceError as refusal:
        return _form(visit, integration.connector, _with_problem(entered, refusal), integration)
    return _test_and_redirect(visit, slug)


@page("POST", "/integrations/<slug>/delete", scope="integrations.write")
def delete_integration(visit: Visit, slug: str) -> Answer:
    """Delete an integration with the history of its calls."""
    visit.services.integrations.delete_integration(visit.scope, slug)
    return Redirect("/console/integrations")
