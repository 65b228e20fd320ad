"""Pages of integrations: the list, one with its settings, actions and calls, and its test."""

from collections.abc import Mapping
from typing import Any

from appliance.connectors import catalogue
from appliance.core.errors import NotFound
from appliance.core.pages import PageRequest
from appliance.integrations import connecting, history
from appliance.integrations.history import CallFilter

from .routing import Answer, Later, Page, Redirect, Visit, page

_SHOWN = 50  # actions on the page of an integration; a search finds the others


@page("GET", "/integrations", scope="integrations.read")
def list_integrations(visit: Visit) -> Answer:
    """The tenant's integrations and the connectors that are installed."""
    integrations = visit.services.integrations
    found = integrations.list_integrations(visit.scope, visit.page())
    registry = integrations.registry
    values = {
        "integrations": found.items, "next_cursor": found.next_cursor,
        "connectors": [found for _, found in sorted(registry.installed.items())], "broken": registry.problems,
    }  # fmt: skip
    return Page("integrations.html", values)


@page("GET", "/integrations/catalogue", scope="integrations.read")
def show_catalogue(visit: Visit) -> Answer:
    """What the installed connectors can do, and what they were tested against."""
    words = visit.asked.args.get("q", "")[:200]
    registry = visit.services.integrations.registry
    return Page("catalogue.html", {"entries": catalogue.entries(registry, words), "words": words, "broken": registry.problems})


@page("GET", "/integrations/<slug>", scope="integrations.read")
def show_integration(visit: Visit, slug: str) -> Answer:
    """One integration."""
    integrations = visit.services.integrations
    found = integrations.get_integration(visit.scope, slug)
    try:
        connector = integrations.get_connector(found.connector).connector
    except NotFound:
        connector = None
    calls = history.list_calls(visit.scope, slug, CallFilter(), PageRequest(20)).items
    words = visit.asked.args.get("q", "")[:200]
    values = {
        "integration": found, "connector": connector, "calls": calls, "settings": _rows(found.settings), "words": words,
        "connection": connecting.connection(integrations, visit.scope, slug) if connector else None,
        "callback": f"{visit.services.config.tenant_url(visit.scope.tenant_id)}{connecting.CALLBACK}",
        "actions": integrations.search_actions(visit.scope, slug, words, PageRequest(_SHOWN, count=True)) if connector else None,
    }  # fmt: skip
    return Page("integration.html", values)


def _rows(settings: Mapping[str, Any], above: str = "") -> list[tuple[str, Any, bool]]:
    """Settings as (name, value, is it sealed), nested names joined by points."""
    rows: list[tuple[str, Any, bool]] = []
    for name, value in settings.items():
        path = f"{above}{name}"
        if isinstance(value, Mapping) and value.get("sealed") is True:
            rows.append((path, value.get("updated_at"), True))
        elif isinstance(value, Mapping) and value:
            rows += _rows(value, f"{path}.")
        else:
            rows.append((path, value, False))
    return rows


@page("POST", "/integrations/<slug>/test", scope="integrations.write")
def test_integration(visit: Visit, slug: str) -> Answer:
    """Ask the foreign system whether the settings work; the finding is kept and shown."""
    executor = visit.services.executor
    work = executor.submit(visit.scope, lambda: executor.test_integration(visit.scope, slug))

    def show() -> Answer:
        work.result()
        return Redirect(f"/console/integrations/{slug}")

    return Later(work, show)
