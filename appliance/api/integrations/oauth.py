"""/api/v1/integrations/{slug}/oauth: connect an integration to its OAuth provider, and disconnect it."""

from appliance.api.frame.routing import Call, View, route
from appliance.api.tenants.tenants import DeletedView
from appliance.core import clock
from appliance.integrations import CALLBACK, Connection, connecting


class ConsentView(View):
    """The address where a person consents, when it expires, and the redirect address to register with the provider."""

    url: str
    expires_at: str
    redirect_uri: str


class ConnectionView(View):
    """`state` is `connected`, `not_connected` or `expired`; `problem` is the provider's last error, `scope` what it granted."""

    state: str
    problem: str | None = None
    scope: str | None = None
    connected_by: str | None = None
    connected_at: str | None = None
    renewed_at: str | None = None


def connection_view(connection: Connection | None) -> ConnectionView | None:
    if connection is None:
        return None
    return ConnectionView(
        state=connection.state, problem=connection.problem or None, scope=connection.scope or None,
        connected_by=connection.connected_by or None, connected_at=clock.optional_rfc3339(connection.connected_at),
        renewed_at=clock.optional_rfc3339(connection.renewed_at),
    )  # fmt: skip


@route("POST", "/integrations/{slug}/oauth/start", scope="integrations.write", returns=ConsentView)
def start_oauth(call: Call, slug: str) -> ConsentView:
    """Start to connect an integration that needs a person's consent (OAuth 2, authorization code with PKCE).

    A person opens `url` within ten minutes and returns to the console, where a signed-in person who may change integrations
    confirms. The console's own button needs no second confirmation.
    """
    redirect_uri = f"{call.services.config.tenant_url(call.scope.tenant_id)}{CALLBACK}"
    consent = connecting.start_consent(call.services.integrations, call.scope, slug, redirect_uri)
    return ConsentView(url=consent.url, expires_at=clock.rfc3339(consent.expires_at), redirect_uri=redirect_uri)


@route("DELETE", "/integrations/{slug}/oauth", scope="integrations.write", returns=DeletedView)
def disconnect_oauth(call: Call, slug: str) -> DeletedView:
    """Delete the OAuth tokens of an integration. To end access for good, also withdraw the consent at the provider."""
    connecting.disconnect(call.services.integrations, call.scope, slug)
    return DeletedView(deleted=slug)
