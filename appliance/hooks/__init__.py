"""Receives inbound webhooks: `POST /hooks/<path>` on a tenant's host, answered with 202 once the execution is stored."""

import asyncio
import json
from functools import partial
from typing import Any, cast
from urllib.parse import parse_qsl

from quart import Blueprint, Response, request

from appliance.core import logs
from appliance.core.errors import InvalidRequest, NotFound, PayloadTooLarge
from appliance.core.sentences import Sentence
from appliance.processes.triggers import Request, group_fields
from appliance.web import Services

__all__ = ["make_hooks"]

DRAIN_BYTES = 1 << 20
MOST_PARAMETERS = 200


def make_hooks(services: Services) -> Blueprint:
    """Build the blueprint with the webhook route."""
    blueprint = Blueprint("hooks", __name__)
    blueprint.add_url_rule("/hooks/<path:path>", "receive", partial(_receive, services), methods=["POST"])
    return blueprint


async def _receive(services: Services, path: str) -> Response:
    front = cast(dict[str, Any], request.scope)
    host = front["gos.host"]
    body = await _read_body(services.config.limits.json_body_kb << 10)
    if host.kind != "tenant":
        raise NotFound("there is no webhook at this address")
    headers = {name.lower(): value for name, value in request.headers.items()}
    webhook_request = Request(path, headers, body, _query(request.query_string))
    work = partial(_receive_sync, services, host.tenant, webhook_request, (front["gos.request_id"], front.get("gos.trace", "")))
    async with services.limits.large_bodies.turn(host.tenant, len(body)):
        answer = await asyncio.get_running_loop().run_in_executor(services.threads, work)
    return Response(answer, 202, content_type="application/json", headers={"Cache-Control": "no-store"})


def _receive_sync(services: Services, tenant_id: str, webhook_request: Request, origin: tuple[str, str]) -> bytes:
    request_id, trace = origin
    with logs.log_context(request_id=request_id):
        started = services.processes.receive_webhook(tenant_id, webhook_request, request_id, trace)
    data = {"execution_id": started.execution_id}
    return json.dumps({"success": True, "data": data, "meta": {"request_id": request_id}}).encode()


def _query(text: bytes) -> dict[str, Any]:
    try:
        return group_fields(parse_qsl(text.decode("utf8", "replace"), keep_blank_values=True, max_num_fields=MOST_PARAMETERS))
    except ValueError as error:
        raise InvalidRequest(
            Sentence(
                "the query string has too many parameters; the maximum is %(most_parameters)s", most_parameters=MOST_PARAMETERS
            )
        ) from error


async def _read_body(most: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    async for chunk in request.body:
        size += len(chunk)
        if size <= most:
            parts.append(chunk)
        elif size > most + DRAIN_BYTES:
            break
    if size > most:
        raise PayloadTooLarge(Sentence("the body may have at most %(most)s KiB", most=most >> 10), headers={"Connection": "close"})
    return b"".join(parts)
