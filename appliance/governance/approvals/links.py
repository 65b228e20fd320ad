"""Console addresses that notices link to."""

from collections.abc import Callable

from appliance.core.scope import TenantScope

Link = Callable[[str, str], str]
_links: list[Link] = []


def register_link_builder(link: Link) -> Callable[[], None]:
    """Register `link(tenant_id, path)`, which builds the full address of a console page; returns the function that removes it."""
    _links.append(link)
    return lambda: _links.remove(link)


def review_url(scope: TenantScope, approval_id: str) -> str:
    """The address of the request's page; only its path while no console is registered."""
    return console_url(scope, f"/console/approvals/{approval_id}")


def console_url(scope: TenantScope, path: str) -> str:
    """The address of a console page; only its path while no console is registered."""
    return _links[-1](scope.tenant_id, path) if _links else path
