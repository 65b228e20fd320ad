"""Console addresses that notices link to."""

from collections.abc import Callable
from dataclasses import dataclass

from appliance.core.scope import TenantScope


@dataclass
class ConsoleAddresses:
    """Where the console of a tenant is: an address without a path, or None while there is no console."""

    find: Callable[[str], str] | None = None


addresses = ConsoleAddresses()


def set_console_address(find: Callable[[str], str]) -> None:
    """Set what returns the address of a tenant's console, for this process."""
    addresses.find = find


def review_url(scope: TenantScope, approval_id: str) -> str:
    """The address of the request's page; only its path while there is no console."""
    return console_url(scope, f"/console/approvals/{approval_id}")


def console_url(scope: TenantScope, path: str) -> str:
    """The address of a console page; only its path while there is no console."""
    return addresses.find(scope.tenant_id) + path if addresses.find else path
