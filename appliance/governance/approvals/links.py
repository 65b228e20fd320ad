"""Where people decide a request: the address that notices lead to."""

from collections.abc import Callable

from appliance.core.scope import TenantScope

Link = Callable[[str, str], str]
_links: list[Link] = []


def on_console(link: Link) -> Callable[[], None]:
    """Have `link(tenant_id, path)` give the whole address of a page of the console; answers what takes it away again."""
    _links.append(link)
    return lambda: _links.remove(link)


def review_url(scope: TenantScope, approval_id: str) -> str:
    """The address of the page; only its path while nobody has said where the console is."""
    return console_url(scope, f"/console/approvals/{approval_id}")


def console_url(scope: TenantScope, path: str) -> str:
    """The address of a page of the console; only its path while nobody has said where that is."""
    return _links[-1](scope.tenant_id, path) if _links else path
