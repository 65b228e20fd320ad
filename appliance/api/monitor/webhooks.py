"""/api/v1/webhooks: outbound webhooks and their deliveries."""

import json
from typing import Annotated, Any, Literal

from pydantic import Field

from appliance.api.frame.routing import Answer, Body, Call, ListQuery, View, route
from appliance.api.tenants.tenants import DeletedView
from appliance.core import clock
from appliance.core.errors import Conflict
from appliance.core.pages import Page
from appliance.monitor import DeliveryRow, WebhookChange, WebhookRow, WebhookSpec

Url = Annotated[str, Field(min_length=1, max_length=2000)]
Description = Annotated[str, Field(max_length=500)]
Events = Annotated[list[str], Field(min_length=1, max_length=50)]


class CreateWebhook(Body):
    url: Annotated[Url, Field(description="The absolute address that messages are sent to, 1 to 2,000 characters.")]
    events: Annotated[Events, Field(description="The types of events to send, 1 to 50, such as `execution.failed`.")]
    description: Annotated[Description, Field(description="What the webhook is for, at most 500 characters.")] = ""


class ChangeWebhook(Body):
    """Members that are left out stay unchanged; `enabled: true` also re-enables a webhook that was disabled for failing."""

    url: Annotated[Url | None, Field(description="The new address, 1 to 2,000 characters; absent to keep it.")] = None
    events: Annotated[
        Events | None, Field(description="The types of events that replace the present ones, 1 to 50; absent to keep them.")
    ] = None
    description: Annotated[
        Description | None, Field(description="What the webhook is for, at most 500 characters; absent to keep it.")
    ] = None
    enabled: Annotated[
        bool | None, Field(description="False to stop sending and discard pending messages, true to send again; absent to keep it.")
    ] = None


class RotateWebhook(Body):
    overlap_seconds: Annotated[int, Field(ge=0, le=2_592_000, description=(
        "Seconds for which messages are signed with the old secret too, from 0 to 2,592,000 (30 days)."
    ))] = 86_400


class DeliveriesQuery(ListQuery):
    status: Annotated[Literal["pending", "succeeded", "failed"] | None, Field(description=(
        "Only deliveries that are still tried, were accepted or were given up."
    ))] = None


class WebhookView(View):
    """A webhook; `secret` is shown only once, when it is created.  `failing_since` is present while deliveries fail."""

    id: Annotated[str, Field(description="Identifies the webhook; `whk_…`.")]
    url: Annotated[str, Field(description="The absolute address that messages are sent to.")]
    events: Annotated[list[str], Field(description="The types of events that are sent.")]
    description: Annotated[str, Field(description="What the webhook is for; may be empty.")]
    state: Annotated[Literal["active", "disabled"], Field(description=(
        "Whether messages are sent; a webhook that keeps failing is disabled by the appliance."
    ))]
    disabled_reason: Annotated[str | None, Field(description="Why it was disabled; absent while it is active.")] = None
    failing_since: Annotated[str | None, Field(description=(
        "When deliveries began to fail without a success since; RFC 3339, UTC. Absent if they succeed."
    ))] = None
    last_success_at: Annotated[
        str | None, Field(description="When the receiver last accepted a message; RFC 3339, UTC. Absent if it never did.")
    ] = None
    old_secret_until: Annotated[str | None, Field(description=(
        "Until when messages are signed with the old secret too; RFC 3339, UTC. Absent without a rotation."
    ))] = None
    created_at: Annotated[str, Field(description="When the webhook was created; RFC 3339, UTC.")]
    created_by: Annotated[str, Field(description="The actor that created the webhook.")]
    updated_at: Annotated[str, Field(description="When its configuration last changed; RFC 3339, UTC.")]
    secret: Annotated[str | None, Field(description=(
        "The key that signs messages, to verify them with; only in the answer that creates or rotates it."
    ))] = None


class AttemptView(View):
    """One attempt; `status` is absent when there was no response, and `error` says why."""

    at: Annotated[str, Field(description="When the message was sent; RFC 3339, UTC.")]
    duration_ms: Annotated[int, Field(description="Milliseconds until the receiver answered or the attempt failed.")]
    status: Annotated[int | None, Field(description="The HTTP status of the receiver; absent if there was no response.")] = None
    error: Annotated[str | None, Field(description="Why there was no response; absent if there was one.")] = None
    answer: Annotated[
        str | None, Field(description="The beginning of the body that the receiver answered with; absent if it sent none.")
    ] = None


class DeliveryView(View):
    """A message to a webhook; its id is the `webhook-id` of every attempt. The last twenty attempts are kept."""

    id: Annotated[str, Field(description="Identifies the message; sent as `webhook-id` with every attempt.")]
    event: Annotated[str, Field(description="The type of the event, such as `execution.failed`.")]
    status: Annotated[Literal["pending", "succeeded", "failed"], Field(description=(
        "Whether the message is still tried, was accepted with a 2xx status, or was given up."
    ))]
    tries: Annotated[int, Field(description="How often it was sent so far.")]
    payload: Annotated[dict[str, Any], Field(description="The JSON body that is sent.")]
    attempts: Annotated[list[AttemptView], Field(description="The last twenty attempts, oldest first.")]
    created_at: Annotated[str, Field(description="When the event happened; RFC 3339, UTC.")]
    next_try_at: Annotated[
        str | None, Field(description="When the next attempt is due; RFC 3339, UTC. Absent if none follows.")
    ] = None
    finished_at: Annotated[str | None, Field(description="When it was accepted or given up; RFC 3339, UTC. Absent before.")] = None


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
    """List the tenant's webhooks.

    Disabled ones are included; secrets are not shown.
    """
    return call.services.monitor.webhooks.list_webhooks(call.scope, call.query.page).map(webhook_view)


@route("POST", "/webhooks", scope="integrations.write", body=CreateWebhook, returns=WebhookView, status=201, errors=(Conflict,))
def create_webhook(call: Call) -> Answer:
    """Subscribe an address to events.

    Messages are signed as Standard Webhooks with the `secret` in this answer, which is shown only here. Events are
    `execution.succeeded`, `execution.failed`, `execution.waiting`, `approval.requested`, `integration.failing`,
    `webapp.published` and `document.approved`. A message is delivered at least once, with one `webhook-id`, and retried for
    three days; the order of messages is not guaranteed.
    """
    body: CreateWebhook = call.body
    return _answer_with_secret(
        *call.services.monitor.webhooks.create_webhook(call.scope, WebhookSpec(body.url, body.events, body.description))
    )


@route("GET", "/webhooks/{webhook_id}", scope="integrations.read", returns=WebhookView)
def get_webhook(call: Call, webhook_id: str) -> WebhookView:
    """Show a webhook and whether its deliveries succeed.

    `failing_since` and `last_success_at` tell its health; one that keeps failing is disabled.
    """
    return webhook_view(call.services.monitor.webhooks.get_webhook(call.scope, webhook_id))


@route("PATCH", "/webhooks/{webhook_id}", scope="integrations.write", body=ChangeWebhook, returns=WebhookView)
def change_webhook(call: Call, webhook_id: str) -> WebhookView:
    """Change, disable or enable a webhook.

    Disabling it discards pending deliveries.
    """
    body: ChangeWebhook = call.body
    change = WebhookChange(body.url, body.events, body.description, body.enabled)
    return webhook_view(call.services.monitor.webhooks.change_webhook(call.scope, webhook_id, change))


@route("DELETE", "/webhooks/{webhook_id}", scope="integrations.write", returns=DeletedView)
def delete_webhook(call: Call, webhook_id: str) -> DeletedView:
    """Delete a webhook with its deliveries.

    Pending ones are not sent.
    """
    call.services.monitor.webhooks.delete_webhook(call.scope, webhook_id)
    return DeletedView(deleted=webhook_id)


@route("POST", "/webhooks/{webhook_id}/rotate", scope="integrations.write", body=RotateWebhook, returns=WebhookView, status=201)
def rotate_webhook(call: Call, webhook_id: str) -> Answer:
    """Create a new secret for a webhook.

    For `overlap_seconds`, messages are also signed with the old one.
    """
    overlap_ms = call.body.overlap_seconds * 1000
    return _answer_with_secret(*call.services.monitor.webhooks.rotate_secret(call.scope, webhook_id, overlap_ms))


@route("POST", "/webhooks/{webhook_id}/test", scope="integrations.write", returns=DeliveryView, status=202, errors=(Conflict,))
def test_webhook(call: Call, webhook_id: str) -> DeliveryView:
    """Send a test message to a webhook.

    Its type is `webhook.test`; read its delivery to see the result.
    """
    return delivery_view(call.services.monitor.webhooks.send_test(call.scope, webhook_id))


@route(
    "GET", "/webhooks/{webhook_id}/deliveries", scope="integrations.read", query=DeliveriesQuery, returns=DeliveryView,
    listed=True,
)  # fmt: skip
def list_deliveries(call: Call, webhook_id: str) -> Page[DeliveryView]:
    """List the deliveries of a webhook.

    Newest first, with their attempts.
    """
    query: DeliveriesQuery = call.query
    return call.services.monitor.webhooks.list_deliveries(call.scope, webhook_id, query.status, query.page).map(delivery_view)


@route("GET", "/webhooks/{webhook_id}/deliveries/{delivery_id}", scope="integrations.read", returns=DeliveryView)
def get_delivery(call: Call, webhook_id: str, delivery_id: str) -> DeliveryView:
    """Show a delivery with its attempts.

    The last twenty attempts are kept, each with the status of the response or the reason why there was none.
    """
    return delivery_view(call.services.monitor.webhooks.get_delivery(call.scope, webhook_id, delivery_id))


@route(
    "POST", "/webhooks/{webhook_id}/deliveries/{delivery_id}/redeliver", scope="integrations.write", returns=DeliveryView,
    status=202, errors=(Conflict,),
)  # fmt: skip
def redeliver(call: Call, webhook_id: str, delivery_id: str) -> DeliveryView:
    """Send a message again.

    It keeps its `webhook-id`, whatever its status.
    """
    return delivery_view(call.services.monitor.webhooks.redeliver(call.scope, webhook_id, delivery_id))
