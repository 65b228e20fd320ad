"""Passes admitted requests to the official SDK's transport, for every revision of the protocol."""

from collections.abc import AsyncIterator, MutableMapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from mcp.server.auth.middleware.auth_context import AuthContextMiddleware
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings

from .admission import ADMITTED, Admitted


class Transport:
    """Passes requests to `server`; responses are JSON or events, as the client accepts.  Bodies have at most `most_bytes`."""

    def __init__(self, server: Server[Any], most_bytes: int) -> None:
        # The appliance's own host table, which knows tenants, checks Host and Origin; the SDK supports only exact names.
        unchecked = TransportSecuritySettings(enable_dns_rebinding_protection=False)
        self._as_json, self._as_events = (
            StreamableHTTPSessionManager(
                server, json_response=as_json, stateless=True, security_settings=unchecked, max_request_body_size=most_bytes,
            )
            for as_json in (True, False)
        )  # fmt: skip

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Serve requests inside the block; requests still in progress at its end are aborted."""
        async with AsyncExitStack() as stack:
            for manager in (self._as_json, self._as_events):
                await stack.enter_async_context(manager.run())
            yield

    async def serve(self, scope: MutableMapping[str, Any], receive: Any, send: Any, admitted: Admitted) -> None:
        """Pass the request to the SDK, with the caller's identity, to which the SDK binds its sealed state."""
        who = AccessToken(token="", client_id=admitted.key_id, scopes=[], subject=admitted.caller.scope.tenant_id)
        inner = {**scope, "user": AuthenticatedUser(who), ADMITTED: admitted.caller}
        accepted = b",".join(value for name, value in scope["headers"] if name == b"accept")
        manager = self._as_events if b"text/event-stream" in accepted else self._as_json
        await AuthContextMiddleware(manager.handle_request)(inner, receive, send)
