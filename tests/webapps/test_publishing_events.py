"""Webhook subscribers are notified of the result of a publication, and never of one that did not happen."""

import json
from typing import Any

import pytest
from standardwebhooks import Webhook

from appliance.blobs import Blobs
from appliance.connectors.egress import Egress
from appliance.connectors.testing import LoopbackServer
from appliance.core.crypto import Sealer
from appliance.core.database import db
from appliance.core.errors import Conflict
from appliance.core.scope import TenantScope
from appliance.monitor import Deliverer, DeliveryRow, Webhooks, WebhookSpec
from appliance.webapps.publishing.publisher import Publisher
from appliance.webapps.service import WebApps
from tests.webapps.smoke_checks import SECONDS, BlockedResponse, Visitor, check_response, fail_check, make_version, publish

SEALER = Sealer(b"k" * 32)
LOOPBACK = Egress.of(["127.0.0.0/8"])
EVENTS = ("webapp.published", "webapp.publish_failed")


def subscribe(scope: TenantScope, url: str = "http://127.0.0.1:9/hook") -> str:
    """The secret of a new webhook."""
    return Webhooks(SEALER, LOOPBACK).create_webhook(scope, WebhookSpec(url, EVENTS))[1]


def list_events(scope: TenantScope) -> list[tuple[str, dict[str, Any]]]:
    """The events in the outbox with their data, oldest first."""
    rows = scope.select(DeliveryRow).order_by(DeliveryRow.created_at, DeliveryRow.id)
    return [(row.event, json.loads(row.payload)["data"]) for row in rows]


def published_event(number: int, previous: int | None) -> tuple[str, dict[str, Any]]:
    return "webapp.published", {"tenant_id": "acme", "webapp": "shop", "version": number, "previous": previous}


def test_no_event_before_every_check_has_passed(
    publishing: Publisher, visitor: Visitor, acme: TenantScope, globex: TenantScope, two: int
) -> None:
    for scope in (acme, globex):
        subscribe(scope)
    before: list[int] = []

    def answer(version: int | None, path: str) -> Any:
        before.append(len(list_events(acme)))
        return check_response()

    visitor.answer = answer
    assert publish(publishing, acme, two).state == "published"
    assert before == [0, 0, 0, 0]
    assert (list_events(acme), list_events(globex)) == ([published_event(2, 1)], [])


@pytest.mark.parametrize(("in_preview", "state"), [(True, "refused"), (False, "switched_back")])
def test_a_failed_version_emits_only_its_failure(
    publishing: Publisher, visitor: Visitor, acme: TenantScope, two: int, in_preview: bool, state: str
) -> None:
    subscribe(acme)
    visitor.answer = fail_check(in_preview=in_preview)
    assert publish(publishing, acme, two).state == state
    ((event, data),) = list_events(acme)
    assert (event, data["version"], data["previous"], data["state"]) == ("webapp.publish_failed", 2, 1, state)
    assert data["reason"].startswith("GET /about answered 500")


def test_an_overtaken_version_emits_nothing(
    publishing: Publisher, webapps: WebApps, visitor: Visitor, acme: TenantScope, two: int
) -> None:
    visitor.answer = blocked = BlockedResponse(live=True)
    started = publishing.publish_version(acme, "shop", two)
    assert blocked.arrived.wait(SECONDS)
    subscribe(acme)
    webapps.unpublish_app(acme, "shop")
    blocked.go_on.set()
    assert started.future is not None
    started.future.result(SECONDS)
    assert publishing.get_publication(acme, "shop", two).state == "overtaken"
    assert list_events(acme) == []


def test_publishing_without_checks_and_rolling_back_emit_one_event(
    webapps: WebApps, blobs: Blobs, acme: TenantScope, two: int
) -> None:
    subscribe(acme)
    three = make_version(webapps, blobs, acme, ())
    webapps.publish_version(acme, "shop", three)
    webapps.publish_version(acme, "shop", three)
    with pytest.raises(Conflict):
        webapps.publish_version(acme, "shop", two, if_current=1)
    webapps.roll_back(acme, "shop")
    assert list_events(acme) == [published_event(three, 1), published_event(1, three)]
    webapps.unpublish_app(acme, "shop")
    assert len(list_events(acme)) == 2

    def undone() -> None:
        webapps.publish_version(acme, "shop", three)
        raise RuntimeError("the write that published it did not come to its end")

    with pytest.raises(RuntimeError):
        db.write(undone)
    assert len(list_events(acme)) == 2


def test_events_are_signed_and_retried_until_accepted(
    webapps: WebApps, blobs: Blobs, acme: TenantScope, two: int
) -> None:
    server, deliverer = LoopbackServer(), Deliverer(LOOPBACK, SEALER, frozenset)
    try:
        server.answer("/hook", 503, b"")
        secret = subscribe(acme, f"{server.url}/hook")
        webapps.publish_version(acme, "shop", make_version(webapps, blobs, acme, ()))
        for status in (503, 204):
            server.answer("/hook", status, b"")
            db.write(lambda: db.execute("UPDATE webhook_delivery SET next_try_at = 1 WHERE next_try_at IS NOT NULL"))
            for sending in deliverer.begin_due():
                sending.result(SECONDS)
        assert deliverer.begin_due() == []
        first, second = server.received
        for request in (first, second):
            assert Webhook(secret).verify(request.body, dict(request.headers))["type"] == "webapp.published"
        assert dict(first.headers)["webhook-id"] == dict(second.headers)["webhook-id"]
        assert [row.status for row in acme.select(DeliveryRow)] == ["succeeded"]
    finally:
        deliverer.stop()
        server.close()
