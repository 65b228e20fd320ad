"""Pages of integrations: the connector catalogue, the list, one integration with its health, latest calls and test."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from appliance.connectors import Entry, catalogue, translate_schema
from appliance.connectors.contract import Connector
from appliance.console.frame.routing import Answer, Deferred, Page, Redirect, Visit, page
from appliance.core.errors import Conflict, NotFound
from appliance.core.pages import PageRequest
from appliance.core.sentences import Sentence
from appliance.core.texts import mark
from appliance.integrations import CallFilter, Integration, connecting, gate, history

_MAX_ACTIONS = 50  # Actions on the page of an integration; a search finds the others.
_LATEST = 8
# Kinds of foreign systems by the distribution that provides their connectors; all other connectors come last, as "Other".
KINDS: Mapping[str, str] = {
    "http": mark("Web APIs"), "openapi": mark("Web APIs"), "graphql": mark("Web APIs"),
    "odata": mark("Web APIs"), "soap": mark("Web APIs"), "mcp": mark("Web APIs"), "sql": mark("Databases"),
    "files": mark("Files"), "email": mark("Messaging"), "messages": mark("Messaging"), "business": mark("Business systems"),
    "tryton": mark("Business systems"), "ldap": mark("Directories"),
}  # fmt: skip
OTHERS = mark("Other")
_BUSINESS = frozenset({"business-central", "dynamics365", "sap"})  # Provided by the OData distribution, whose protocol they use.


@dataclass(frozen=True)
class ConnectorGroup:
    """The catalogue's connectors of one kind."""

    kind: str
    entries: list[Entry]


@page("GET", "/integrations", scope="integrations.read")
def list_integrations(visit: Visit) -> Answer:
    """The tenant's integrations, with the result of the last test and whether calls currently fail."""
    integrations = visit.services.integrations
    result = integrations.list_integrations(visit.scope, visit.page())
    values = {
        "integrations": result.items, "next_cursor": result.next_cursor, "failing": set(gate.list_failing(visit.scope)),
        "titles": {name: each.connector.title for name, each in integrations.registry.installed.items()},
        "broken": integrations.registry.problems,
    }  # fmt: skip
    return Page("integrations.html", values)


@page("GET", "/integrations/catalogue", scope="integrations.read")
def show_catalogue(visit: Visit) -> Answer:
    """The installed connectors with their actions, by kind; each can be connected from here."""
    words, kind = visit.request.args.get("q", "")[:200], visit.request.args.get("kind", "")
    registry = visit.services.integrations.registry
    groups = list(_group_by_kind(catalogue.entries(registry, words)))
    visible = [each for each in groups if each.kind == kind] if kind else groups
    return Page(
        "catalogue.html",
        {"groups": visible, "kinds": [(each.kind, len(each.entries)) for each in groups], "kind": kind, "words": words,
         "total": sum(len(each.entries) for each in groups), "broken": registry.problems},
    )  # fmt: skip


def _group_by_kind(entries: list[Entry]) -> Iterator[ConnectorGroup]:
    by_kind: dict[str, list[Entry]] = {}
    for entry in entries:
        by_kind.setdefault(_kind_of(entry), []).append(entry)
    for kind in dict.fromkeys([*KINDS.values(), OTHERS]):
        if kind in by_kind:
            yield ConnectorGroup(kind, by_kind[kind])


def _kind_of(entry: Entry) -> str:
    if entry.name in _BUSINESS:
        return KINDS["business"]
    name = entry.distribution.partition(" ")[0].replace("_", "-").removeprefix("gos-connector-")
    return KINDS.get(name, OTHERS)


@page("GET", "/integrations/<slug>", scope="integrations.read")
def show_integration(visit: Visit, slug: str) -> Answer:
    """One integration: its health, latest calls, settings and actions."""
    integrations = visit.services.integrations
    integration = integrations.get_integration(visit.scope, slug)
    connector = find_connector(visit, integration)
    words = visit.request.args.get("q", "")[:200]
    values = {
        "integration": integration, "connector": connector, "words": words,
        "settings": _rows(integration.settings, translate_schema(connector.settings_schema) if connector else {}),
        "calls": history.list_calls(visit.scope, slug, CallFilter(), PageRequest(_LATEST)).items,
        "health": integrations.health(visit.scope, slug),
        "connection": connecting.connection(integrations, visit.scope, slug) if connector else None,
        "callback": f"{visit.services.config.tenant_url(visit.scope.tenant_id)}{connecting.CALLBACK}",
        "actions": None if connector is None
        else integrations.search_actions(visit.scope, slug, words, PageRequest(_MAX_ACTIONS, count=True)),
    }  # fmt: skip
    return Page("integration.html", values)


def find_connector(visit: Visit, integration: Integration) -> type[Connector] | None:
    """The connector of an integration; None when it is no longer installed."""
    try:
        return visit.services.integrations.get_connector(integration.connector).connector
    except NotFound:
        return None


def get_connector(visit: Visit, integration: Integration) -> type[Connector]:
    """The connector of an integration; Conflict when it is no longer installed."""
    connector = find_connector(visit, integration)
    if connector is None:
        raise Conflict(Sentence(
            "the connector %(connector)s of the integration %(slug)s is no longer installed; install it again",
            connector=integration.connector, slug=integration.slug,
        ))
    return connector


def _rows(settings: Mapping[str, Any], schema: Mapping[str, Any], above: str = "") -> list[tuple[str, Any, bool]]:
    """Settings as (label, value, whether it is an encrypted secret); nested ones are labelled `Group: Setting`."""
    properties = schema.get("properties")
    members: Mapping[str, Any] = properties if isinstance(properties, Mapping) else {}
    rows: list[tuple[str, Any, bool]] = []
    for name, value in settings.items():
        member = members.get(name)
        member_schema: Mapping[str, Any] = member if isinstance(member, Mapping) else {}
        path = f"{above}{member_schema.get('title') or name}"
        if isinstance(value, Mapping) and value.get("sealed") is True:
            rows.append((path, value.get("updated_at"), True))
        elif isinstance(value, Mapping) and value:
            rows += _rows(value, member_schema, f"{path}: ")
        else:
            rows.append((path, value, False))
    return rows


@page("POST", "/integrations/<slug>/test", scope="integrations.write")
def test_integration(visit: Visit, slug: str) -> Answer:
    """Test the integration against the foreign system; the result is stored and shown on its page."""
    executor = visit.services.governance.executor
    work = executor.submit(visit.scope, lambda: executor.test_integration(visit.scope, slug))

    def show() -> Answer:
        work.result()
        return Redirect(f"/console/integrations/{slug}")

    return Deferred(work, show)


@page("POST", "/integrations/<slug>/circuit/close", scope="integrations.write")
def close_circuit(visit: Visit, slug: str) -> Answer:
    """Close the circuit breaker, so that calls are sent again immediately."""
    visit.services.integrations.close_circuit(visit.scope, slug)
    return Redirect(f"/console/integrations/{slug}")
