"""Previews: what would be sent is shown without credentials, and nothing leaves."""

from collections.abc import Iterator
from typing import Any

import pytest

from appliance.connectors.contract import Context
from appliance.connectors.preview import SentRequest
from appliance.connectors.registry import Installed
from appliance.connectors.testing import LoopbackServer
from appliance.core.errors import PolicyDenied
from appliance.core.pages import PageRequest
from appliance.governance.executor.requests import ActionFailed, ActionRequest
from appliance.integrations import CallFilter, IntegrationSpec, history
from tests.governance.ruling import put_rules
from tests.integrations.world import Ledger, World

TOKEN = "tok-4711/geheim"


@pytest.fixture
def server() -> Iterator[LoopbackServer]:
    server = LoopbackServer()
    yield server
    server.close()


def erp(world: World, server: LoopbackServer, **auth: str) -> None:
    settings = {"base_url": f"{server.url}/v1", "auth": auth or {"kind": "bearer", "token": TOKEN}}
    world.integrations.create_integration(world.one, "erp", IntegrationSpec("http", settings))


def preview(
    world: World, action: str, payload: dict[str, Any], slug: str = "erp", key: str | None = None
) -> tuple[SentRequest, ...]:
    request = ActionRequest(slug, action, payload, mode="preview", idempotency_key=key)
    result = world.executor.execute(world.one, request)
    assert result.preview is not None
    assert list(history.search_calls(world.one, CallFilter(), PageRequest()).items) == []
    return result.preview.requests


def test_the_exact_request_is_shown_without_credentials(world: World, server: LoopbackServer) -> None:
    erp(world, server)
    payload = {"url": "/orders", "query": {"dry": "a b"}, "json": {"number": 1, "note": TOKEN}, "headers": {"X-Trace": "7"}}
    [request] = preview(world, "post", payload, key="order-1")
    assert (request.method, request.url) == ("POST", f"{server.url}/v1/orders?dry=a+b")
    headers = {name.lower(): value for name, value in request.headers}
    assert (headers["authorization"], headers["x-trace"]) == ("Bearer [redacted]", "7")
    assert (headers["idempotency-key"], headers["host"]) == ("order-1", server.url.removeprefix("http://"))
    assert (request.body, request.encoding) == ('{"number":1,"note":"[redacted]"}', "text")
    assert server.received == []


def test_a_preview_equals_the_request_that_is_sent(world: World, server: LoopbackServer) -> None:
    erp(world, server)
    server.answer("/v1/orders", 200, b"{}")
    payload = {"url": "/orders", "json": {"b": 1, "a": [2]}}
    [request] = preview(world, "put", payload, key="k")
    world.executor.execute(world.one, ActionRequest("erp", "put", payload, idempotency_key="k"))
    [sent] = server.received
    hidden = {"authorization", "connection", "gos-egress"}  # the last is how this appliance knows its own calls
    assert (sent.method, sent.path, sent.body.decode()) == ("PUT", "/v1/orders", request.body)
    headers = {name.lower(): value for name, value in request.headers}
    assert {k: v for k, v in headers.items() if k not in hidden} == {k: v for k, v in sent.headers.items() if k not in hidden}


@pytest.mark.parametrize(
    "auth",
    [
        {"kind": "basic", "username": "anna", "password": TOKEN},
        {"kind": "header", "name": "X-Api-Key", "value": TOKEN},
        {"kind": "header", "name": "X-Other", "value": TOKEN},
        {"kind": "query", "name": "key", "value": TOKEN},
    ],
)
def test_no_kind_of_credential_is_shown(world: World, server: LoopbackServer, auth: dict[str, str]) -> None:
    erp(world, server, **auth)
    [request] = preview(world, "get", {"url": "/x"})
    for canary in (TOKEN, "tok-4711", "geheim", "dG9rLTQ3MTE", "YW5uYTp0b2s"):
        assert canary not in repr(request)


def test_a_policy_denies_a_preview_too(world: World, server: LoopbackServer) -> None:
    erp(world, server)
    put_rules(world.one, {"id": "no", "effect": "deny", "reason": "no"})
    with pytest.raises(PolicyDenied):
        preview(world, "get", {"url": "/x"})


def test_a_preview_refuses_what_the_call_would_refuse(world: World, server: LoopbackServer) -> None:
    erp(world, server)
    with pytest.raises(ActionFailed) as caught:
        preview(world, "get", {"url": "http://elsewhere.example/x"})
    assert (caught.value.error_class, caught.value.outcome) == ("config_error", "not_done")


class Stubborn(Ledger):
    """Swallows exceptions and tries the next way to connect."""

    name = "stubborn"
    previews = True
    connected: list[str] = []  # noqa: RUF012

    def call(self, action: str, input: Any, ctx: Context) -> dict[str, Any]:  # noqa: A002 - the contract's word
        for name, connect in (("dial", lambda: ctx.dial("127.0.0.1", 1)), ("folder", lambda: getattr(ctx, "open_folder")("/"))):  # noqa: B009
            try:
                connect()
            except Exception:  # noqa: BLE001 - what a careless plugin does
                self.connected.append(name)
        return {}


def test_a_plugin_that_swallows_failures_connects_nowhere(world: World) -> None:
    installed = {**world.integrations.registry.installed, "stubborn": Installed(Stubborn, "test")}
    object.__setattr__(world.integrations.registry, "installed", installed)
    world.integrations.create_integration(world.one, "odd", IntegrationSpec("stubborn", {"token": "tok"}))
    assert preview(world, "book", {}, "odd") == ()
    assert Stubborn.connected == []


def test_a_live_connection_is_not_used_for_a_preview(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Ledger, "previews", True)
    world.ledger()
    world.executor.execute(world.one, world.request("look"))
    Ledger.closed.clear()
    world.executor.execute(world.one, world.request("look", mode="preview"))
    assert len(Ledger.closed) == 1, "it had a connector of its own"
