"""One valid request for every route of service accounts."""

from collections.abc import Callable
from typing import Any

from tests.api.example import Example
from tests.api.resources import Resources, fresh


def _new(tenant: Resources) -> dict[str, Any]:
    tenant.member()
    scopes = ["entities.read", "logs.read"]
    return {"id": fresh("intake"), "title": "Order intake", "scopes": scopes, "responsible": tenant.login()}


def _create(tenant: Resources) -> str:
    return str(tenant.ask("POST", "/service-accounts", _new(tenant))["id"])


def _with_key(tenant: Resources) -> str:
    account = _create(tenant)
    tenant.ask("POST", f"/service-accounts/{account}/keys", {"name": "shop", "scopes": ["entities.read"]})
    return account


def _about(make: Callable[[Resources], str], body: Any = None) -> Callable[[Resources], Example]:
    return lambda tenant: Example({"account_id": make(tenant)}, body)


SERVICE_ACCOUNTS: dict[str, Callable[[Resources], Example]] = {
    "list_service_accounts": lambda tenant: Example(),
    "create_service_account": lambda tenant: Example(body=_new(tenant)),
    "get_service_account": _about(_create),
    "change_service_account": _about(_create, {"description": "Reads orders from the shop.", "disabled": True}),
    "delete_service_account": _about(_create),
    "list_service_account_keys": _about(_with_key),
    "issue_service_account_key": _about(_create, {"name": "shop", "scopes": ["entities.read"], "environment": "test"}),
}
