"""Pages of service accounts: the list, the form of a new one, and the page of each with its keys."""

from typing import Any

from appliance.console.frame.people import Names
from appliance.console.frame.routing import Answer, Page, Redirect, Visit, page
from appliance.core.errors import ApplianceError, ValidationFailed
from appliance.tenants import AccountChanges, AccountSpec, people, service_accounts

from .keys import list_values, new_key_form, read_spec, scope_areas, show_text

HERE = "/console/service-accounts"


@page("GET", "/service-accounts", scope="keys.read")
def list_service_accounts(visit: Visit) -> Answer:
    """The tenant's service accounts, and for which of them nobody is responsible."""
    result = service_accounts.list_accounts(visit.scope, visit.page())
    values = {
        "rows": result.items, "next_cursor": result.next_cursor, "active": service_accounts.count_keys(visit.scope),
        "unattended": service_accounts.list_without_responsible(visit.scope),
    }  # fmt: skip
    return Page("service_accounts.html", values)


@page("GET", "/service-accounts/new", scope="keys.write")
def show_new_service_account(visit: Visit) -> Answer:
    """The form of a new service account."""
    return _form(visit)


def _form(visit: Visit, problem: ApplianceError | None = None) -> Page:
    request = visit.request
    values = {
        **_choices(visit), "problem": problem, "id": request.field("id"), "title": request.field("title"),
        "description": request.field("description"), "responsible": request.field("responsible") or visit.person.login,
        "chosen": request.form.get("scopes", []),
    }  # fmt: skip
    return Page("service_account_new.html", values, problem.status if problem else 200)


def _choices(visit: Visit) -> dict[str, Any]:
    return {"areas": scope_areas(visit), "logins": [each.login for each in people.list_members(visit.scope)]}


@page("POST", "/service-accounts/new", scope="keys.write", step_up=True)
def create_service_account(visit: Visit) -> Answer:
    """Create a service account."""
    request = visit.request
    spec = AccountSpec(
        request.field("id").strip(), request.field("title"), request.form.get("scopes", []),
        description=request.field("description"), responsible=request.field("responsible"),
    )  # fmt: skip
    try:
        account = service_accounts.create_account(visit.scope, spec)
    except ApplianceError as error:
        return _form(visit, error)
    return Redirect(f"{HERE}/{account.id}")


@page("GET", "/service-accounts/<account_id>", scope="keys.read")
def show_service_account(visit: Visit, account_id: str) -> Answer:
    """A service account: its keys, and the form to change it."""
    return _show(visit, account_id)


def _show(visit: Visit, account_id: str, problem: ApplianceError | None = None) -> Page:
    account = service_accounts.get_account(visit.scope, account_id)
    request = visit.request
    form = {name: request.field(name) if problem else getattr(account, name) for name in ("title", "description", "responsible")}
    values = {
        **list_values(visit, account.actor), **_choices(visit), **form, "account": account, "names": Names(visit),
        "problem": problem, "chosen": request.form.get("scopes", []) if problem else account.scopes,
    }  # fmt: skip
    return Page("service_account.html", values, problem.status if problem else 200)


@page("POST", "/service-accounts/<account_id>", scope="keys.write", step_up=True)
def change_service_account(visit: Visit, account_id: str) -> Answer:
    """Change what the form of a service account has."""
    request = visit.request
    changes = AccountChanges(
        title=request.field("title"), description=request.field("description"), scopes=request.form.get("scopes", []),
        responsible=request.field("responsible") or None,
    )  # fmt: skip
    try:
        service_accounts.change_account(visit.scope, account_id, changes)
    except ValidationFailed as error:
        return _show(visit, account_id, error)
    return Redirect(f"{HERE}/{account_id}")


@page("POST", "/service-accounts/<account_id>/disable", scope="keys.write")
def disable_service_account(visit: Visit, account_id: str) -> Answer:
    """Refuse all keys of a service account until it is enabled."""
    service_accounts.change_account(visit.scope, account_id, AccountChanges(is_disabled=True))
    return Redirect(f"{HERE}/{account_id}")


@page("POST", "/service-accounts/<account_id>/enable", scope="keys.write", step_up=True)
def enable_service_account(visit: Visit, account_id: str) -> Answer:
    """Let the keys of a service account work again."""
    service_accounts.change_account(visit.scope, account_id, AccountChanges(is_disabled=False))
    return Redirect(f"{HERE}/{account_id}")


@page("POST", "/service-accounts/<account_id>/delete", scope="keys.write", step_up=True)
def delete_service_account(visit: Visit, account_id: str) -> Answer:
    """Delete a service account and revoke its keys."""
    service_accounts.delete_account(visit.scope, account_id)
    return Redirect(HERE)


@page("GET", "/service-accounts/<account_id>/keys/new", scope="keys.write")
def show_new_account_key(visit: Visit, account_id: str) -> Answer:
    """The form of a new key of a service account."""
    return new_key_form(visit, account=service_accounts.get_account(visit.scope, account_id))


@page("POST", "/service-accounts/<account_id>/keys/new", scope="keys.write", step_up=True)
def issue_account_key(visit: Visit, account_id: str) -> Answer:
    """Issue a key of a service account and show its text, which cannot be shown again."""
    account = service_accounts.get_account(visit.scope, account_id)
    try:
        row, text = service_accounts.issue_key(visit.scope, visit.services.sealer, account_id, read_spec(visit))
    except ApplianceError as error:
        return new_key_form(visit, error, account)
    return show_text(visit, row, text)
