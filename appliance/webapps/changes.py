"""Tells all processes when something else is to be served on the hosts of a WebApp."""

from collections.abc import Callable

from appliance.core.database.notices import notices
from appliance.core.scope import TenantScope

_TOPIC = "webapp"


def subscribe(listener: Callable[[str, str], None]) -> Callable[[], None]:
    """Call `listener(tenant_id, app)` after every commit that changes what is served; returns a function that ends this.

    A commit of another process may go unnoticed (see `notices`), so the caller must look at the rows, too.
    """

    def receive(app: str | None) -> None:
        if app is not None:
            tenant_id, _, app_id = app.partition("/")
            listener(tenant_id, app_id)

    return notices.subscribe(_TOPIC, receive)


def notify_after_commit(scope: TenantScope, app_id: str) -> None:
    """Inside a write: notify the subscribers of all processes after the commit."""
    notices.notify(_TOPIC, f"{scope.tenant_id}/{app_id}")


def notify_here(scope: TenantScope, app_id: str) -> None:
    """Notify the subscribers of this process, which may not know of a commit of another one yet."""
    notices.notify_here(_TOPIC, f"{scope.tenant_id}/{app_id}")
