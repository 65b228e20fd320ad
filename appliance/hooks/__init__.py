"""Receives inbound webhooks: `POST /hooks/<path>` on a tenant's host, answered with 202 once the execution is stored."""

import json
from functools import partial
from typing import Any
from urllib.parse import parse_qsl

from quart import Blueprint

from appliance.core.errors import InvalidRequest, NotFound
from appliance.core.sentences import Sentence
from appliance.processes.triggers import Request as WebhookRequest
from appliance.processes.triggers import group_fields
from appliance.web import Request, Response, Services, explain_fault, explain_fault_in_thread, in_thread, log_as, read_body, view

__all__ = ["make_hooks"]

MOST_PARAMETERS = 200


def make_hooks(services: Services) -> Blueprint:
    """Build the blueprint with the webhook route."""
    blueprint = Blueprint("hooks", __name__)
    blueprint.add_url_rule("/hooks/<path:path>", "receive", view(partial(_receive, services)), methods=["POST"])
    return blueprint


async def _receive(services: Services, request: Request, path: str) -> Response:
    body = await read_body(request.pieces, services.config.limits.json_body_kb << 10)
    if request.host.kind != "tenant":
        raise NotFound("there is no webhook at this address")
    webhook_request = WebhookRequest(path, request.headers, body, _query(request.query_string))
    async with services.limits.large_bodies.turn(request.tenant, len(body)):
        try:
            answer = await in_thread(services.threads, log_as, request.request_id, _start, services, request, webhook_request)
        except Exception as fault:
            error = await explain_fault_in_thread(services.threads, fault, request.tenant)
            if error is fault:
                raise
            raise error from fault
    return Response(202, answer, {"Content-Type": "application/json", "Cache-Control": "no-store"})


def _start(services: Services, request: Request, webhook_request: WebhookRequest) -> bytes:
    try:
        started = services.processes.receive_webhook(request.tenant, webhook_request, request.request_id, request.trace)
    except NotFound as error:  # senders give up on a webhook that is not found, but a tenant that is being reset has it soon
        raise explain_fault(error, request.tenant) from error
    data = {"execution_id": started.execution_id}
    return json.dumps({"success": True, "data": data, "meta": {"request_id": request.request_id}}).encode()


def _query(text: bytes) -> dict[str, Any]:
    try:
        return group_fields(parse_qsl(text.decode("utf8", "replace"), keep_blank_values=True, max_num_fields=MOST_PARAMETERS))
    except ValueError as error:
        raise InvalidRequest(
            Sentence(
                "the query string has too many parameters; the maximum is %(most_parameters)s", most_parameters=MOST_PARAMETERS
            )
        ) from error
