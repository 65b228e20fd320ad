"""Refuses requests of keys that have used up their rate limit at ASGI level, before the body is read or a route is matched."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from dataclasses import replace
from typing import Any

from appliance.core import clock
from appliance.core.errors import ApplianceError, RateLimited
from appliance.core.scope import TenantScope
from appliance.tenants.keys import keys, lineage
from appliance.web import Services, error_response

from .auth import LONGEST_KEY, refuse_browser
from .routing import PREFIX

Scope = MutableMapping[str, Any]
App = Callable[[Scope, Any, Any], Awaitable[None]]


def refuse_spent_keys(services: Services, app: App) -> App:
    """Wrap the application so that requests of keys over their rate limit are answered with 429.

    Such a request is authenticated and counted like any other; all other errors are left to the application.  While no key is
    over its limit, the check costs nothing.
    """
    limiter = services.limits.rates

    async def serve(scope: Scope, receive: Any, send: Any) -> None:
        if limiter.has_exhausted() and scope["type"] == "http" and scope["path"].startswith(f"{PREFIX}/"):
            started, headers = clock.monotonic(), _headers(scope)
            refused = await _refuse_spent(services, scope, headers)
            if refused is not None:
                caller, error = refused
                response = error_response(error, scope["gos.request_id"], headers.get("accept", ""))
                services.monitor.key_traffic.add(caller, response.status, (clock.monotonic() - started) * 1000, len(response.body))
                await replace(response, headers={"Cache-Control": "no-store", **response.headers}).send(send)
                return
        await app(scope, receive, send)

    return serve


async def _refuse_spent(services: Services, scope: Scope, headers: Mapping[str, str]) -> tuple[TenantScope, RateLimited] | None:
    """The caller to refuse and the error; None if the application should answer the request."""
    text = headers.get("x-api-key", "").strip()[:LONGEST_KEY]
    digest = services.sealer.digest(text.encode())
    if not text or not services.limits.rates.is_exhausted(digest):
        return None
    authority = lineage.find_cached(digest)
    if authority is None:
        authority = await asyncio.get_running_loop().run_in_executor(services.threads, lineage.find_by_digest, digest)
    host = scope["gos.host"]
    try:
        refuse_browser(headers, f"{scope['scheme']}://{headers.get('host', '')}")
        caller = keys.authorize_key(
            authority, text, tenant_id=host.tenant, address=scope["gos.address"], request_id=scope["gos.request_id"]
        )
    except ApplianceError:
        return None
    try:
        services.limits.rates.refuse_exhausted(caller)
    except RateLimited as error:
        return caller.scope, error
    return None


def _headers(scope: Scope) -> dict[str, str]:
    return {name.decode("latin1").lower(): value.decode("latin1") for name, value in scope["headers"]}

