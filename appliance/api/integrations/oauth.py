"""/api/v1/integrations/{slug}/oauth: connecting an integration with its provider."""

from appliance.api.frame.routing import Call, View, route
from appliance.api.tenants.tenants import DeletedView
from appliance.core import clock
from appliance.integrations import CALLBACK, Connection, connecting


class ConsentView(View):
    """Where a person allows access, until when, and the address to register with the provider."""

    url: str
    expires_at: str
    redirect_uri: str


class ConnectionView(View):
    """`connected`, `not_connected` or `expired`; `problem` is the provider's last refusal, `scope` what it granted."""

    state: str
    problem: str | None = None
    scope: str | None = None
    connected_by: str | None = None
    connected_at: str | None = None
    renewed_at: str | None = None


def connection_view(found: Connection | None) -> ConnectionView | None:
    if found is None:
        return None
    return ConnectionView(
        state=found.state, problem=found.problem or None, scope=found.scope or None, connected_by=found.connected_by or None,
        connected_at=clock.optional_rfc3339(found.connected_at), renewed_at=clock.optional_rfc3339(found.renewed_at),
    )  # fmt: skip


@route("POST", "/integrations/{slug}/oauth/start", scope="integrations.write", returns=ConsentView)
def start_oauth(call: Call, slug: str) -> ConsentView:
    """Begin to connect an integration whose credentials are a person's consent (OAuth 2, authorization code with PKCE).

    The person opens the address within ten minutes and comes back to the console, where somebody who is signed in and may
    change integrations confirms. The console's own button needs no second confirmation.
    """
    redirect_uri = f"{call.services.config.tenant_url(call.scope.tenant_id)}{CALLBACK}"
    consent = connecting.ask_consent(call.services.integrations, call.scope, slug, redirect_uri)
    return ConsentView(url=consent.url, expires_at=clock.rfc3339(consent.expires_at), redirect_uri=redirect_uri)


@route("DELETE", "/integrations/{slug}/oauth", scope="integrations.write", returns=DeletedView)
def disconnect_oauth(call: Call, slug: str) -> DeletedView:
    """Forget the tokens of an integration. Withdraw the consent at the provider too, where it ends for good."""
    connecting.disconnect(call.services.integrations, call.scope, slug)
    return DeletedView(deleted=slug)
