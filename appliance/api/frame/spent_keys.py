"""Refuses requests of keys that have used up their rate limit at ASGI level, before the body is read or a route is matched."""

from dataclasses import replace

from appliance.core import clock
from appliance.core.errors import ApplianceError, RateLimited
from appliance.core.scope import TenantScope
from appliance.tenants.keys import keys, lineage
from appliance.web import LONGEST_KEY, App, Receive, Request, Scope, Send, Services, error_response, in_thread

from .auth import refuse_browser


def refuse_spent_keys(services: Services, app: App) -> App:
    """Wrap an application of API requests so that those of keys over their rate limit are answered with 429.

    Such a request is authenticated and counted like any other; all other errors are left to the application.  While no key is
    over its limit, the check costs nothing.
    """
    limiter = services.limits.rates

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        if limiter.has_exhausted():
            started, request = clock.monotonic(), Request.of(scope, receive)
            refused = await _refuse_spent(services, request)
            if refused is not None:
                caller, error = refused
                response = error_response(error, request.request_id, request.accept)
                services.monitor.key_traffic.add(caller, response.status, (clock.monotonic() - started) * 1000, len(response.body))
                await replace(response, headers={"Cache-Control": "no-store", **response.headers}).send(send)
                return
        await app(scope, receive, send)

    return serve


async def _refuse_spent(services: Services, request: Request) -> tuple[TenantScope, RateLimited] | None:
    """The caller to refuse and the error; None if the application should answer the request."""
    text = request.headers.get("x-api-key", "").strip()[:LONGEST_KEY]
    digest = services.sealer.digest(text.encode())
    if not text or not services.limits.rates.is_exhausted(digest):
        return None
    authority = lineage.find_cached(digest)
    if authority is None:
        authority = await in_thread(services.threads, lineage.find_by_digest, digest)
    try:
        refuse_browser(request)
        caller = keys.authorize_key(
            authority, text, tenant_id=request.host.tenant, address=request.address, request_id=request.request_id
        )
    except ApplianceError:
        return None
    try:
        services.limits.rates.refuse_exhausted(caller)
    except RateLimited as error:
        return caller.scope, error
    return None
