"""`POST /oidc/<provider>/logout`: an identity provider says that somebody has signed out (Back-Channel Logout 1.0 § 2.5)."""

import asyncio
import json
import logging
from urllib.parse import parse_qs

from appliance.core.errors import NotFound
from appliance.tenants.oidc import ProviderFailed
from appliance.web import Request, Response, Services, read_body

log = logging.getLogger(__name__)
MOST_BYTES = 64 << 10
NO_STORE = {"Cache-Control": "no-store"}


async def receive_logout(services: Services, request: Request, provider: str) -> Response:
    """End the sessions that the token names: 200, also if there are none, or 400 if the token is invalid."""
    body = await read_body(request.pieces, MOST_BYTES)
    single_sign_on = services.single_sign_on
    if request.host.tenant is not None:
        raise NotFound("there is nothing at this address")
    known = single_sign_on.find_provider(provider)
    tokens = parse_qs(body.decode("utf8", "replace"), max_num_fields=20).get("logout_token", [])
    try:
        if len(tokens) != 1:
            raise ProviderFailed("the request has no logout_token, or several")
        work = single_sign_on.submit("logout", request.address, lambda: single_sign_on.end_sessions(known, tokens[0]))
        ended = await asyncio.wrap_future(work)
    except ProviderFailed as error:
        log.warning("a logout of the provider %s was refused: %s", provider, error.message)
        answer = {"error": "invalid_request", "error_description": str(error.message)}
        return Response(400, json.dumps(answer).encode(), {"Content-Type": "application/json", **NO_STORE})
    log.info("a logout of the provider %s ended %s sessions", provider, ended)
    return Response(200, b"", NO_STORE)
