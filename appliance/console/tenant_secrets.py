"""Pages of secrets: their names and when they were set; a value goes in and is never shown."""

from appliance.core.errors import ApplianceError, NotFound
from appliance.solutions.dependents import dependents_of
from appliance.tenants import service

from .routing import Answer, Page, Redirect, Visit, page


@page("GET", "/secrets", scope="secrets.write")
def list_secrets(visit: Visit) -> Answer:
    """The names of the tenant's secrets, and the form of another."""
    return _list(visit)


def _list(visit: Visit, problem: ApplianceError | None = None) -> Page:
    values = {"secrets": service.list_secrets(visit.scope), "problem": problem, "name": visit.asked.field("name")}
    return Page("secrets.html", values, problem.status if problem else 200)


@page("POST", "/secrets", scope="secrets.write")
def set_secret(visit: Visit) -> Answer:
    """Set a secret, or give it another value."""
    name, value = visit.asked.field("name").strip(), visit.asked.field("value").replace("\r\n", "\n")
    try:
        service.set_secret(visit.scope, visit.services.sealer, name, value)
    except ApplianceError as refusal:
        return _list(visit, refusal)
    return Redirect(f"/console/secrets/{name}")


@page("GET", "/secrets/<name>", scope="secrets.write")
def show_secret(visit: Visit, name: str) -> Answer:
    """One secret: when it was set, what names it, and the forms to replace and delete it."""
    found = next((each for each in service.list_secrets(visit.scope) if each.name == name), None)
    if found is None:
        raise NotFound(f"there is no secret {name[:63]!r} here; the list shows what there is")
    dependents = dependents_of(visit.services, visit.scope, "secret", name)
    return Page("secret.html", {"secret": found, "dependents": dependents})


@page("POST", "/secrets/<name>/delete", scope="secrets.write")
def delete_secret(visit: Visit, name: str) -> Answer:
    """Delete a secret."""
    service.delete_secret(visit.scope, name)
    return Redirect("/console/secrets")
