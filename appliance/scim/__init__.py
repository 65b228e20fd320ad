"""SCIM 2.0 on the base host (`/scim/v2/…`, RFC 7643 and 7644): identity providers add, change and remove people and groups."""

from functools import partial

from quart import Blueprint

from appliance.core.config.sign_in import IdentityProvider
from appliance.core.errors import InvalidApiKey, MissingApiKey, NotFound, RevokedApiKey
from appliance.web import Request, Response, Services, in_thread, log_as, read_body, view

__all__ = ["make_scim"]

MOST_BYTES = 4 << 20
METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE"]


def make_scim(services: Services) -> Blueprint:
    """Build the blueprint; what it needs of SCIM is loaded by the first request."""
    blueprint = Blueprint("scim", __name__)
    for name, rule in (("service", "/scim/v2"), ("root", "/scim/v2/"), ("resources", "/scim/v2/<path:path>")):
        blueprint.add_url_rule(rule, name, view(partial(_receive, services)), methods=METHODS)
    return blueprint


async def _receive(services: Services, request: Request, path: str = "") -> Response:
    """The answer to one request; the token is checked before the body is read."""
    threads, request_id = services.threads, request.request_id
    try:
        provider = await in_thread(threads, log_as, request_id, _authenticate, services, request)
        body = await read_body(request.pieces, MOST_BYTES)
        async with services.limits.large_bodies.turn("", len(body)):
            return await in_thread(threads, log_as, request_id, _answer, services, request, provider, path, body)
    except Exception as error:  # noqa: BLE001  every error is rendered in the format of SCIM, and logged if it has no code
        return await in_thread(threads, log_as, request_id, _render, error)


def _authenticate(services: Services, request: Request) -> IdentityProvider:
    if request.host.kind != "base":
        raise NotFound("there is nothing at this address")
    kind, _, token = request.headers.get("authorization", "").strip().partition(" ")
    if kind.lower() != "bearer" or not token.strip():
        raise MissingApiKey("send the header `Authorization: Bearer TOKEN` with a token of `gos scim token PROVIDER`")
    try:
        return services.provisioning.authenticate(token.strip(), request.address)
    except (InvalidApiKey, RevokedApiKey) as error:
        services.limits.refused_requests.record_key("SCIM token", error.code, request.address)
        raise


def _answer(services: Services, request: Request, provider: IdentityProvider, path: str, body: bytes) -> Response:
    from .dispatch import PATH, ProviderRequest, answer_request

    base_url = services.config.base_url + PATH
    return answer_request(ProviderRequest(request, provider, services.provisioning.reserved, base_url, body), path)


def _render(error: Exception) -> Response:
    from .errors import render_error

    return render_error(error)
