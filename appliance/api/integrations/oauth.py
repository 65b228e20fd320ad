"""/api/v1/integrations/{slug}/oauth: connect an integration to its OAuth provider, and disconnect it."""

from typing import Annotated

from pydantic import Field

from appliance.api.frame.routing import Call, View, route
from appliance.api.tenants.tenants import DeletedView
from appliance.core import clock
from appliance.core.errors import Conflict, ConnectorFailed
from appliance.integrations import CALLBACK, Connection, connecting


class ConsentView(View):
    """The address where a person consents, when it expires, and the redirect address to register with the provider."""

    url: Annotated[str, Field(description="The provider's page where a person consents; an absolute URL.")]
    expires_at: Annotated[
        str, Field(description="When the consent can no longer be completed, ten minutes after the start; RFC 3339, UTC.")
    ]
    redirect_uri: Annotated[str, Field(description="The address to register with the provider, to which the person returns.")]


class ConnectionView(View):
    """`state` is `connected`, `not_connected` or `expired`; `problem` is the provider's last error, `scope` what it granted."""

    state: Annotated[str, Field(description=(
        "Whether tokens are held: `connected`, `not_connected`, or `expired` if the provider no longer renews them."
    ))]
    problem: Annotated[str | None, Field(description="The provider's last error; absent without one.")] = None
    scope: Annotated[
        str | None, Field(description="The permissions that the provider granted, in its own words; absent if it named none.")
    ] = None
    connected_by: Annotated[str | None, Field(description="Who confirmed the connection; absent while not connected.")] = None
    connected_at: Annotated[
        str | None, Field(description="When the connection was confirmed; RFC 3339, UTC. Absent while not connected.")
    ] = None
    renewed_at: Annotated[
        str | None, Field(description="When the tokens were last renewed; RFC 3339, UTC. Absent if they never were.")
    ] = None


def connection_view(connection: Connection | None) -> ConnectionView | None:
    if connection is None:
        return None
    return ConnectionView(
        state=connection.state, problem=connection.problem or None, scope=connection.scope or None,
        connected_by=connection.connected_by or None, connected_at=clock.optional_rfc3339(connection.connected_at),
        renewed_at=clock.optional_rfc3339(connection.renewed_at),
    )  # fmt: skip


@route(
    "POST", "/integrations/{slug}/oauth/start", scope="integrations.write", returns=ConsentView, errors=(Conflict, ConnectorFailed)
)
def start_oauth(call: Call, slug: str) -> ConsentView:
    """Start to connect an integration by OAuth.

    For providers that need a person's consent (OAuth 2, authorization code with PKCE).

    A person opens `url` within ten minutes and returns to the console, where a signed-in person who may change integrations
    confirms. The console's own button needs no second confirmation.
    """
    redirect_uri = f"{call.services.config.tenant_url(call.scope.tenant_id)}{CALLBACK}"
    consent = connecting.start_consent(call.services.integrations, call.scope, slug, redirect_uri)
    return ConsentView(url=consent.url, expires_at=clock.rfc3339(consent.expires_at), redirect_uri=redirect_uri)


@route("DELETE", "/integrations/{slug}/oauth", scope="integrations.write", returns=DeletedView)
def disconnect_oauth(call: Call, slug: str) -> DeletedView:
    """Delete the OAuth tokens of an integration.

    To end access for good, also withdraw the consent at the provider.
    """
    connecting.disconnect(call.services.integrations, call.scope, slug)
    return DeletedView(deleted=slug)
