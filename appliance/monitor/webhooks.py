"""Outbound webhooks: subscriptions to events, and the outbox, which events are written to in their own transaction."""

import base64
import json
import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from appliance.connectors import contract
from appliance.connectors.egress import Egress
from appliance.connectors.network import is_host_name, parse_address
from appliance.core import clock, ids
from appliance.core.crypto import Sealer
from appliance.core.database import db
from appliance.core.errors import AddressNotAllowed, Conflict, Detail, ValidationFailed
from appliance.core.events import hub
from appliance.core.pages import Page, PageRequest, paginate
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence

from . import audit
from .models import DeliveryRow, WebhookRow
from .retention import delete_older
from .storable import storable_json

__all__ = ["EVENTS", "DeliveryRow", "OutboxFilled", "WebhookChange", "WebhookRow", "WebhookSpec", "Webhooks", "emit"]

EVENTS = (
    "execution.succeeded", "execution.failed", "execution.waiting", "approval.requested", "integration.failing", "webapp.published",
    "webapp.publish_failed", "domain.failing", "document.approved", "alert.firing", "alert.resolved",
    "quota.warning", "tenant.expiring", "tenant.expired", "key.new_address",
)
TEST_EVENT = "webhook.test"
RETRY_PERIOD_MS = 3 * 86_400_000
MAX_WEBHOOKS = 100
_DATA_BYTES = 16 << 10
_URL_LENGTH = 2_000
_ENABLED = {"state": "active", "disabled_reason": None, "failed_in_row": 0, "failing_since": None}


@dataclass(frozen=True)
class OutboxFilled:
    """A message was put into the outbox.  Published after the commit, in this process alone."""


@dataclass(frozen=True)
class WebhookSpec:
    """Properties of a new webhook: URL, events, and a note for its owner."""

    url: str
    events: Sequence[str]
    description: str = ""


@dataclass(frozen=True)
class WebhookChange:
    """Changes to a webhook; None leaves a property unchanged."""

    url: str | None = None
    events: Sequence[str] | None = None
    description: str | None = None
    enabled: bool | None = None


_ACTIVE = "SELECT id, events FROM webhook WHERE tenant_id = ? AND state = 'active'"


def look_ahead(scope: TenantScope) -> None:
    """Inside a write: announce the query that `emit` will run."""
    db.look_ahead(_ACTIVE, (scope.tenant_id,))


def emit(
    scope: TenantScope, event: str, describe: Callable[[], Mapping[str, Any]], *, only: str | None = None,
    among: Collection[str] | None = None,
) -> list[str]:  # fmt: skip
    """Inside the write of an event: add a message to the outbox for every webhook that subscribes to it (restricted to `among`, if
    given), or `only` for one webhook regardless of its subscription; returns the webhooks' ids.

    `describe` returns the event's `data` and is only called if there is a subscriber; secrets in it are redacted.
    """
    active = db.rows(_ACTIVE, (scope.tenant_id,))
    webhook_ids = [str(each) for each, events in active if (event in json.loads(events) if only is None else each == only)]
    webhook_ids = [each for each in webhook_ids if among is None or each in among]
    if not webhook_ids:
        return []
    data = describe()
    for webhook_id in webhook_ids:
        _enqueue(scope, webhook_id, event, data)
    return webhook_ids


def _enqueue(scope: TenantScope, webhook_id: str, event: str, data: Mapping[str, Any]) -> str:
    delivery_id, now = ids.new("msg"), clock.now_ms()
    payload_data = {"tenant_id": scope.tenant_id, **json.loads(storable_json(data, _DATA_BYTES))}
    payload = db.dump_json({"type": event, "timestamp": clock.rfc3339(now), "data": payload_data})
    scope.insert(
        DeliveryRow, id=delivery_id, webhook_id=webhook_id, event=event, payload=payload, status="pending", tries=0,
        attempts=[], next_try_at=now, give_up_at=now + RETRY_PERIOD_MS, created_at=now,
    )  # fmt: skip
    db.after_commit(lambda: hub.publish(OutboxFilled()))
    return delivery_id


class Webhooks:
    """Operations on webhooks.  A secret is returned only once, when it is created."""

    def __init__(self, sealer: Sealer, egress: Egress) -> None:
        self._sealer, self._egress = sealer, egress

    def create_webhook(self, scope: TenantScope, spec: WebhookSpec) -> tuple[WebhookRow, str]:
        """Create a webhook; returns it with its secret.  ValidationFailed, AddressNotAllowed, Conflict."""
        self._check_url(spec.url)
        events = _validate_events(spec.events)
        webhook_id, secret, now = ids.new("whk"), make_secret(), clock.now_ms()

        def insert() -> WebhookRow:
            if scope.select(WebhookRow).count() >= MAX_WEBHOOKS:
                raise Conflict(Sentence(
                    "a tenant can have at most %(most_webhooks)s webhooks; delete one that is no longer needed",
                    most_webhooks=MAX_WEBHOOKS,
                ))
            scope.insert(
                WebhookRow, id=webhook_id, url=spec.url, events=events, description=spec.description, state="active",
                sealed=self._sealer.seal(secret.encode(), seal_context(scope.tenant_id, webhook_id)), failed_in_row=0,
                created_at=now, created_by=scope.actor, updated_at=now,
            )  # fmt: skip
            audit.record(scope, "webhook.create", webhook_id, {"url": spec.url, "events": events})
            return scope.get(WebhookRow, id=webhook_id)

        return db.write(insert), secret

    def list_webhooks(self, scope: TenantScope, page: PageRequest) -> Page[WebhookRow]:
        """The tenant's webhooks, newest first."""
        return paginate(scope.select(WebhookRow), page, {"created_at": WebhookRow.created_at, "id": WebhookRow.id})

    def get_webhook(self, scope: TenantScope, webhook_id: str) -> WebhookRow:
        """One webhook; NotFound."""
        return scope.get(WebhookRow, id=webhook_id)

    def change_webhook(self, scope: TenantScope, webhook_id: str, change: WebhookChange) -> WebhookRow:
        """Change a webhook.  Enabling it again resets its failures; disabling it gives up pending messages."""
        if change.url is not None:
            self._check_url(change.url)
        changes: dict[str, Any] = {"updated_at": clock.now_ms()}
        if change.events is not None:
            changes["events"] = _validate_events(change.events)
        changes |= {name: value for name in ("url", "description") if (value := getattr(change, name)) is not None}

        def update() -> WebhookRow:
            row = scope.get(WebhookRow, id=webhook_id)
            resets = _ENABLED if change.enabled is True and row.state == "disabled" else {}
            scope.update(WebhookRow, **changes, **resets).where(WebhookRow.id == webhook_id).execute()
            details: dict[str, Any] = {name: changes[name] for name in ("url", "events") if name in changes}
            audit.record(scope, "webhook.change", webhook_id, details)
            if change.enabled is False and row.state == "active":
                disable(scope, webhook_id, f"disabled by {scope.actor}")
            return scope.get(WebhookRow, id=webhook_id)

        return db.write(update)

    def delete_webhook(self, scope: TenantScope, webhook_id: str) -> None:
        """Delete a webhook with all its deliveries; NotFound."""

        def delete() -> None:
            scope.get(WebhookRow, id=webhook_id)
            scope.delete(WebhookRow).where(WebhookRow.id == webhook_id).execute()
            audit.record(scope, "webhook.delete", webhook_id)

        db.write(delete)

    def rotate_secret(self, scope: TenantScope, webhook_id: str, overlap_ms: int) -> tuple[WebhookRow, str]:
        """Create a new secret; for `overlap_ms`, messages are also signed with the previous one."""
        secret = make_secret()

        def rotate() -> WebhookRow:
            row = scope.get(WebhookRow, id=webhook_id)
            changes = {
                "sealed": self._sealer.seal(secret.encode(), seal_context(scope.tenant_id, webhook_id)),
                "sealed_old": bytes(row.sealed) if overlap_ms else None,
                "old_until": clock.now_ms() + overlap_ms if overlap_ms else None, "updated_at": clock.now_ms(),
            }  # fmt: skip
            scope.update(WebhookRow, **changes).where(WebhookRow.id == webhook_id).execute()
            audit.record(scope, "webhook.rotate", webhook_id, {"overlap_ms": overlap_ms})
            return scope.get(WebhookRow, id=webhook_id)

        return db.write(rotate), secret

    def send_test(self, scope: TenantScope, webhook_id: str) -> DeliveryRow:
        """Queue a message of the type `webhook.test`, delivered like any other.  NotFound, Conflict."""

        def enqueue() -> DeliveryRow:
            _check_enabled(scope.get(WebhookRow, id=webhook_id))
            delivery_id = _enqueue(scope, webhook_id, TEST_EVENT, {"webhook_id": webhook_id})
            audit.record(scope, "webhook.test", webhook_id, {"delivery": delivery_id})
            return scope.get(DeliveryRow, id=delivery_id)

        return db.write(enqueue)

    def list_deliveries(self, scope: TenantScope, webhook_id: str, status: str | None, page: PageRequest) -> Page[DeliveryRow]:
        """The messages to one webhook, newest first; NotFound."""
        scope.get(WebhookRow, id=webhook_id)
        query = scope.select(DeliveryRow).where(DeliveryRow.webhook_id == webhook_id)
        if status is not None:
            query = query.where(DeliveryRow.status == status)
        return paginate(query, page, {"created_at": DeliveryRow.created_at, "id": DeliveryRow.id})

    def get_delivery(self, scope: TenantScope, webhook_id: str, delivery_id: str) -> DeliveryRow:
        """One message to a webhook; NotFound."""
        return scope.get(DeliveryRow, webhook_id=webhook_id, id=delivery_id)

    def redeliver(self, scope: TenantScope, webhook_id: str, delivery_id: str) -> DeliveryRow:
        """Send a message again, whatever its status, with the same webhook-id.  NotFound, Conflict."""

        def renew() -> DeliveryRow:
            _check_enabled(scope.get(WebhookRow, id=webhook_id))
            scope.get(DeliveryRow, webhook_id=webhook_id, id=delivery_id)
            now = clock.now_ms()
            give_up_at = now + RETRY_PERIOD_MS
            changes = {"status": "pending", "tries": 0, "next_try_at": now, "give_up_at": give_up_at, "finished_at": None}
            scope.update(DeliveryRow, **changes).where(DeliveryRow.id == delivery_id).execute()
            audit.record(scope, "webhook.redeliver", webhook_id, {"delivery_id": delivery_id})
            db.after_commit(lambda: hub.publish(OutboxFilled()))
            return scope.get(DeliveryRow, id=delivery_id)

        return db.write(renew)

    def _check_url(self, url: str) -> None:
        """Validate a URL without DNS lookups; its addresses are checked at every attempt."""
        try:
            parts = urlsplit(url)
            host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
        except ValueError:
            raise ValidationFailed("url is invalid; use a form such as https://example.com/hook", pointer="/url") from None
        plain = url.isascii() and url.isprintable() and not set(url) & set(" \\@") and len(url) <= _URL_LENGTH
        if not plain or parts.scheme not in ("http", "https") or not (is_host_name(host) or parse_address(host)):
            raise ValidationFailed(
                "url must be an http or https address without credentials, such as https://example.com/hook", pointer="/url"
            )
        if parse_address(host) is not None:
            try:
                self._egress.addresses(host, port, None)
            except contract.AddressNotAllowed as error:
                raise AddressNotAllowed(error.message, details=[Detail("/url", "address_not_allowed", error.message)]) from error


def make_secret() -> str:
    """A new signing secret in the format of Standard Webhooks."""
    return "whsec_" + base64.b64encode(secrets.token_bytes(32)).decode()


def seal_context(tenant_id: str, webhook_id: str) -> str:
    """The context to which a webhook's secrets are sealed."""
    return f"{tenant_id}/webhook/{webhook_id}"


def disable(scope: TenantScope, webhook_id: str, reason: str) -> None:
    """Inside a write: disable this webhook; pending messages are given up and can be redelivered manually."""
    now = clock.now_ms()
    changes = {"state": "disabled", "disabled_reason": reason, "updated_at": now}
    scope.update(WebhookRow, **changes).where(WebhookRow.id == webhook_id).execute()
    pending = (DeliveryRow.webhook_id == webhook_id) & (DeliveryRow.status == "pending")
    scope.update(DeliveryRow, status="failed", next_try_at=None, finished_at=now).where(pending).execute()
    audit.record(scope, "webhook.disable", webhook_id, {"reason": reason})


def purge(before_ms: int) -> int:
    """Delete every tenant's deliveries from before `before_ms`, except those that may still be retried; returns their number."""
    return delete_older("webhook_delivery", "id", "created_at", min(before_ms, clock.now_ms() - 2 * RETRY_PERIOD_MS))


def _validate_events(events: Sequence[str]) -> list[str]:
    unknown = [
        Detail(
            f"/events/{index}",
            "validation_failed",
            Sentence("%(name)s is not an event; the events are %(events)s", name=repr(name[:60]), events=", ".join(EVENTS)),
        )
        for index, name in enumerate(events)
        if name not in EVENTS
    ]
    if unknown or not events:
        raise ValidationFailed(
            Sentence("name at least one of %(events)s", events=", ".join(EVENTS)), details=unknown, pointer="/events"
        )
    return sorted(set(events))


def _check_enabled(row: WebhookRow) -> None:
    if row.state == "disabled":
        raise Conflict(Sentence(
            "the webhook %(id)s is disabled (%(disabled_reason)s); enable it first",
            id=row.id, disabled_reason=row.disabled_reason,
        ))
