"""Pages of secrets: their names and permitted destinations; values are write-only."""

from collections.abc import Mapping
from typing import Any, cast

from appliance.console.frame.people import Names
from appliance.console.frame.routing import Answer, Page, Redirect, Visit, page
from appliance.core.errors import ApplianceError, NotFound
from appliance.core.sentences import Sentence
from appliance.core.texts import mark
from appliance.solutions import find_dependents, find_place, unbound_uses
from appliance.tenants import service
from appliance.tenants.grants import Binding, Kind, SecretDestination, secret_bindings

KIND_NAMES: Mapping[str, str] = {
    "integration": mark("Integration"), "process": mark("Code of a process"), "webhook": mark("Webhooks of a process"),
    "llm-profile": mark("LLM profile"), "webapp": mark("WebApp"),
}  # fmt: skip
_PAGES = {
    "integration": "integrations", "process": "processes", "webhook": "processes", "llm-profile": "llm-profiles",
    "webapp": "webapps",
}  # fmt: skip


@page("GET", "/secrets", scope="secrets.write")
def list_secrets(visit: Visit) -> Answer:
    """The names of the tenant's secrets, and the form to add one."""
    return _list_page(visit)


def _list_page(visit: Visit, problem: ApplianceError | None = None) -> Page:
    places: dict[str, list[Binding]] = {}
    for binding in secret_bindings.list_bindings(visit.scope):
        places.setdefault(binding.name, []).append(binding)
    values = {
        "secrets": service.list_secrets(visit.scope), "places": places, "kinds": KIND_NAMES, "problem": problem,
        "name": visit.request.field("name"),
    }  # fmt: skip
    return Page("secrets.html", values, problem.status if problem else 200)


@page("POST", "/secrets", scope="secrets.write")
def set_secret(visit: Visit) -> Answer:
    """Create a secret, or replace its value."""
    name, value = visit.request.field("name").strip(), visit.request.field("value").replace("\r\n", "\n")
    try:
        service.set_secret(visit.scope, visit.services.sealer, name, value)
    except ApplianceError as refusal:
        return _list_page(visit, refusal)
    return Redirect(f"/console/secrets/{name}")


@page("GET", "/secrets/<name>", scope="secrets.write")
def show_secret(visit: Visit, name: str) -> Answer:
    """One secret: its permitted destinations, uses without permission, and the forms to replace and delete it."""
    return _secret_page(visit, name)


def _secret_page(visit: Visit, name: str, problem: ApplianceError | None = None) -> Page:
    secret = next((each for each in service.list_secrets(visit.scope) if each.name == name), None)
    if secret is None:
        raise NotFound(Sentence("there is no secret %(name)s; choose one from the list", name=repr(name[:63])))
    values: dict[str, Any] = {
        "secret": secret, "dependents": find_dependents(visit.services.referrers, visit.scope, "secret", name), "kinds": KIND_NAMES,
        "pages": _PAGES, "bindings": secret_bindings.list_bindings(visit.scope, name),
        "unbound": unbound_uses(visit.services.referrers, visit.scope, name), "problem": problem,
        "entered": {each: visit.request.field(each) for each in ("kind", "target")}, "names": Names(visit),
    }  # fmt: skip
    return Page("secret.html", values, problem.status if problem else 200)


@page("POST", "/secrets/<name>/bindings", scope="secrets.write")
def add_binding(visit: Visit, name: str) -> Answer:
    """Permit one more destination for the secret."""
    kind, target = cast(Kind, visit.request.field("kind")), visit.request.field("target").strip()
    try:
        place: SecretDestination = find_place(visit.services.referrers, visit.scope, kind, target)
        secret_bindings.bind(visit.scope, name, place)
    except ApplianceError as refusal:
        return _secret_page(visit, name, refusal)
    return Redirect(f"/console/secrets/{name}")


@page("POST", "/secrets/<name>/bindings/<binding>/delete", scope="secrets.write")
def remove_binding(visit: Visit, name: str, binding: str) -> Answer:
    """Remove a destination of the secret."""
    secret_bindings.unbind(visit.scope, name, binding)
    return Redirect(f"/console/secrets/{name}")


@page("POST", "/secrets/<name>/delete", scope="secrets.write")
def delete_secret(visit: Visit, name: str) -> Answer:
    """Delete a secret."""
    service.delete_secret(visit.scope, name)
    return Redirect("/console/secrets")
