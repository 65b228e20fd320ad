"""/api/v1/webhooks: outbound webhooks and their deliveries."""

import json
from typing import Annotated, Any, Literal

from pydantic import Field

from appliance.api.frame.routing import Answer, Body, Call, ListQuery, View, route
from appliance.api.tenants.tenants import DeletedView
from appliance.core import clock
from appliance.core.pages import Page
from appliance.monitor import DeliveryRow, WebhookChange, WebhookRow, WebhookSpec

Url = Annotated[str, Field(min_length=1, max_length=2000)]
Description = Annotated[str, Field(max_length=500)]
Events = Annotated[list[str], Field(min_length=1, max_length=50)]


class CreateWebhook(Body):
    url: Url
    events: Events
    description: Description = ""


class ChangeWebhook(Body):
    """Members that are left out stay unchanged; `enabled: true` also re-enables a webhook that was disabled for failing."""

    url: Url | None = None
    events: Events | None = None
    description: Description | None = None
    enabled: bool | None = None


class RotateWebhook(Body):
    overlap_seconds: Annotated[int, Field(ge=0, le=2_592_000)] = 86_400


class DeliveriesQuery(ListQuery):
    status: Literal["pending", "succeeded", "failed"] | None = None


class WebhookView(View):
    """A webhook; `secret` is shown only once, when it is created.  `failing_since` is present while deliveries fail."""

    id: str
    url: str
    events: list[str]
    description: str
    state: Literal["active", "disabled"]
    disabled_reason: str | None = None
    failing_since: str | None = None
    last_success_at: str | None = None
    old_secret_until: str | None = None
    created_at: str
    created_by: str
    updated_at: str
    secret: str | None = None


class AttemptView(View):
    """One attempt; `status` is absent when there was no response, and `error` says why."""

    at: str
    duration_ms: int
    status: int | None = None
    error: str | None = None
    answer: str | None = None


class DeliveryView(View):
    """A message to a webhook; its id is the `webhook-id` of every attempt. The last twenty attempts are kept."""

    id: str
    event: str
    status: Literal["pending", "succeeded", "failed"]
    tries: int
    payload: dict[str, Any]
    attempts: list[AttemptView]
    created_at: str
    next_try_at: str | None = None
    finished_at: str | None = None


def webhook_view(row: WebhookRow, secret: str | None = None) -> WebhookView:
    return WebhookView(
        id=row.id, url=row.url, events=row.events, description=row.description, state=row.state,
        disabled_reason=row.disabled_reason, failing_since=clock.optional_rfc3339(row.failing_since),
        last_success_at=clock.optional_rfc3339(row.last_success_at), old_secret_until=clock.optional_rfc3339(row.old_until),
        created_at=clock.rfc3339(row.created_at), created_by=row.created_by, updated_at=clock.rfc3339(row.updated_at),
        secret=secret,
    )  # fmt: skip


def delivery_view(row: DeliveryRow) -> DeliveryView:
    attempts = [
        AttemptView(
            at=clock.rfc3339(each["at"]), duration_ms=each["duration_ms"], status=each.get("status"), error=each.get("error"),
            answer=each.get("answer"),
        )
        for each in row.attempts
    ]  # fmt: skip
    return DeliveryView(
        id=row.id, event=row.event, status=row.status, tries=row.tries, payload=json.loads(row.payload), attempts=attempts,
        created_at=clock.rfc3339(row.created_at), next_try_at=clock.optional_rfc3339(row.next_try_at),
        finished_at=clock.optional_rfc3339(row.finished_at),
    )  # fmt: skip


def _answer_with_secret(row: WebhookRow, secret: str) -> Answer:
    location = {"Location": f"/api/v1/webhooks/{row.id}"}
    return Answer(webhook_view(row, secret), headers=location, replay=webhook_view(row))


@route("GET", "/webhooks", scope="integrations.read", returns=WebhookView, listed=True)
def list_webhooks(call: Call) -> Page[WebhookView]:
    """List the tenant's webhooks."""
    return call.services.webhooks.list_webhooks(call.scope, call.query.page).map(webhook_view)


@route("POST", "/webhooks", scope="integrations.write", body=CreateWebhook, returns=WebhookView, status=201)
def create_webhook(call: Call) -> Answer:
    """Subscribe an address to events.

    Messages are signed as Standard Webhooks with the `secret` in this answer, which is shown only here. Events are
    `execution.succeeded`, `execution.failed`, `execution.waiting`, `approval.requested`, `integration.failing`,
    `webapp.published` and `document.approved`. A message is delivered at least once, with one `webhook-id`, and retried for
    three days; the order of messages is not guaranteed.
    """
    body: CreateWebhook = call.body
    return _answer_with_secret(
        *call.services.webhooks.create_webhook(call.scope, WebhookSpec(body.url, body.events, body.description))
    )


@route("GET", "/webhooks/{webhook_id}", scope="integrations.read", returns=WebhookView)
def get_webhook(call: Call, webhook_id: str) -> WebhookView:
    """Show a webhook and whether its deliveries succeed."""
    return webhook_view(call.services.webhooks.get_webhook(call.scope, webhook_id))


@route("PATCH", "/webhooks/{webhook_id}", scope="integrations.write", body=ChangeWebhook, returns=WebhookView)
def change_webhook(call: Call, webhook_id: str) -> WebhookView:
    """Change, disable or enable a webhook; disabling it discards pending deliveries."""
    body: ChangeWebhook = call.body
    change = WebhookChange(body.url, body.events, body.description, body.enabled)
    return webhook_view(call.services.webhooks.change_webhook(call.scope, webhook_id, change))


@route("DELETE", "/webhooks/{webhook_id}", scope="integrations.write", returns=DeletedView)
def delete_webhook(call: Call, webhook_id: str) -> DeletedView:
    """Delete a webhook with its deliveries; pending ones are not sent."""
    call.services.webhooks.delete_webhook(call.scope, webhook_id)
    return DeletedView(deleted=webhook_id)


@route("POST", "/webhooks/{webhook_id}/rotate", scope="integrations.write", body=RotateWebhook, returns=WebhookView, status=201)
def rotate_webhook(call: Call, webhook_id: str) -> Answer:
    """Create a new secret; for `overlap_seconds`, messages are also signed with the old one."""
    overlap_ms = call.body.overlap_seconds * 1000
    return _answer_with_secret(*call.services.webhooks.rotate_secret(call.scope, webhook_id, overlap_ms))


@route("POST", "/webhooks/{webhook_id}/test", scope="integrations.write", returns=DeliveryView, status=202)
def test_webhook(call: Call, webhook_id: str) -> DeliveryView:
    """Send a message of the type `webhook.test`; read its delivery to see the result."""
    return delivery_view(call.services.webhooks.send_test(call.scope, webhook_id))


@route(
    "GET", "/webhooks/{webhook_id}/deliveries", scope="integrations.read", query=DeliveriesQuery, returns=DeliveryView,
    listed=True,
)  # fmt: skip
def list_deliveries(call: Call, webhook_id: str) -> Page[DeliveryView]:
    """List the deliveries of a webhook, newest first, with their attempts."""
    query: DeliveriesQuery = call.query
    return call.services.webhooks.list_deliveries(call.scope, webhook_id, query.status, query.page).map(delivery_view)


@route("GET", "/webhooks/{webhook_id}/deliveries/{delivery_id}", scope="integrations.read", returns=DeliveryView)
def get_delivery(call: Call, webhook_id: str, delivery_id: str) -> DeliveryView:
    """Show a delivery with its attempts."""
    return delivery_view(call.services.webhooks.get_delivery(call.scope, webhook_id, delivery_id))


@route(
    "POST", "/webhooks/{webhook_id}/deliveries/{delivery_id}/redeliver", scope="integrations.write", returns=DeliveryView,
    status=202,
)  # fmt: skip
def redeliver(call: Call, webhook_id: str, delivery_id: str) -> DeliveryView:
    """Send a message again with the same `webhook-id`, whatever its status."""
    return delivery_view(call.services.webhooks.redeliver(call.scope, webhook_id, delivery_id))
