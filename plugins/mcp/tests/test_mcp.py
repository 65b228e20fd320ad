"""The contract suite, and tools called on servers of the official SDK, with sessions and without."""

from collections.abc import Callable
from typing import Any

import pytest
from gos_connector_mcp import McpConnector

from appliance.connectors.contract import Action, AuthError, ConfigError, Context, Rejected, Withdrawn
from appliance.connectors.testing import ConnectorContract, HeldDocuments, open_context, schema_problems, with_documents

Outside = Any
Start = Callable[..., Outside]
Discover = Callable[..., dict[str, Action]]
TOKEN = "outside-very-secret"


def login(outside: Outside) -> dict[str, Any]:
    return {"url": outside.url, "auth": {"kind": "bearer", "token": TOKEN}}


class TestContract(ConnectorContract):
    connector = McpConnector

    @pytest.fixture
    def settings(self, liar: Any, allow_tools: Any) -> dict[str, Any]:
        settings: dict[str, Any] = allow_tools({"url": liar.url}, "act")
        return settings

    @pytest.fixture
    def broken_settings(self) -> dict[str, Any]:
        return {"url": "http://127.0.0.1:1/mcp"}


@pytest.mark.parametrize(
    ("how", "revision"),
    [
        ({}, "2026-07-28"),
        ({"modern": False}, "2025-11-25"),
        ({"json_response": False}, "2026-07-28"),
        ({"json_response": False, "modern": False}, "2025-11-25"),
        ({"stateless": True, "modern": False}, "2025-11-25"),
    ],
)
def test_allowed_tools_are_called_in_both_eras(
    outside: Start, allow_tools: Any, ctx: Context, how: dict[str, bool], revision: str, discover: Discover
) -> None:
    server = outside(**how)
    settings = allow_tools(login(server), "placeOrder", price="read")
    it, actions = McpConnector(settings), discover(settings)
    assert it.check(ctx) == f"Shop speaks MCP {revision} and serves 3 tools."
    assert sorted(actions) == ["place_order", "price"]
    output = it.perform(actions["price"], {"article": "bolt"}, ctx)
    assert output["structured"] == {"article": "bolt", "amount": 12.5}
    assert schema_problems(actions["price"].output, output) == []
    assert it.perform(actions["place_order"], {"article": "bolt", "count": 3}, ctx)["text"] == "ordered 3 bolt"
    assert server.shop.orders == ["3 bolt"]
    sent_headers = [headers for method, headers in server.requests if method == "POST"]
    assert sent_headers[-1]["mcp-protocol-version"] == revision
    assert sent_headers[-1].get("mcp-name") == ("placeOrder" if revision == "2026-07-28" else None)
    assert ("mcp-session-id" in sent_headers[-1]) == (revision != "2026-07-28" and "stateless" not in how)


@pytest.mark.parametrize("revision", ["2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26"])
def test_a_revision_can_be_chosen(outside: Start, ctx: Context, revision: str) -> None:
    server = outside()
    assert f"speaks MCP {revision} " in McpConnector({**login(server), "protocol": revision}).check(ctx)


def test_a_lost_session_is_reestablished(outside: Start, allow_tools: Any, ctx: Context, discover: Discover) -> None:
    server = outside(modern=False)
    settings = allow_tools(login(server), "placeOrder")
    it, action = McpConnector(settings), discover(settings)["place_order"]
    it.perform(action, {"article": "bolt"}, ctx)
    server.forget_sessions()
    it.perform(action, {"article": "nut"}, ctx)
    assert server.shop.orders == ["1 bolt", "1 nut"]


def test_nothing_is_allowed_by_default(outside: Start, ctx: Context, discover: Discover) -> None:
    server = outside()
    assert discover(login(server)) == {}
    with pytest.raises(Withdrawn, match="placeOrder is not allowed"):
        McpConnector(login(server)).perform(
            Action("place_order", "", {}, {}, "write", plan={"tool": "placeOrder"}), {"article": "bolt"}, ctx
        )
    assert server.shop.orders == []


def test_the_effect_is_what_the_administrator_says(outside: Start, allow_tools: Any, list_tools: Any, discover: Discover) -> None:
    server = outside()
    assert list_tools(login(server))["price"]["hints"] == {"read_only": True}
    assert discover(allow_tools(login(server), "price"))["price"].effect == "write"
    assert discover(allow_tools(login(server), price="read"))["price"].effect == "read"


def test_a_failing_tool_is_rejected_with_its_message(outside: Start, allow_tools: Any, ctx: Context, discover: Discover) -> None:
    settings = allow_tools(login(outside()), "placeOrder")
    with pytest.raises(Rejected, match=r"placeOrder failed: .*too many") as caught:
        McpConnector(settings).perform(discover(settings)["place_order"], {"article": "bolt", "count": 100}, ctx)
    assert caught.value.outcome == "not_done"


def test_images_are_left_out_or_stored_as_documents(outside: Start, allow_tools: Any, discover: Discover) -> None:
    settings = allow_tools(login(outside()), "picture")
    action, documents = discover(settings)["picture"], HeldDocuments()
    with open_context(seconds=60) as plain:
        ctx = with_documents(plain, documents)
        (part,) = McpConnector(settings).perform(action, {"article": "bolt"}, ctx)["content"]
        assert part["kind"] == "left_out"
        assert "set `binaries`" in part["reason"]
        keeping = McpConnector({**settings, "binaries": "documents"})
        (part,) = keeping.perform(action, {"article": "bolt"}, ctx)["content"]
        assert part == {"kind": "document", "content_type": "image/png", "bytes": 9, "document_id": "doc_1"}
        assert documents.documents == {"doc_1": ("picture-image", "image/png", b"\x89PNG fake")}
        (part,) = keeping.perform(action, {"article": "bolt"}, plain)["content"]
        assert part["kind"] == "left_out"
        assert "could not be stored" in part["reason"]


def test_refused_credentials_are_an_auth_error(outside: Start, ctx: Context) -> None:
    with pytest.raises(AuthError):
        McpConnector({"url": outside().url}).check(ctx)


def test_an_address_without_a_server_is_a_config_error(liar: Any, ctx: Context) -> None:
    with pytest.raises(ConfigError, match="no MCP server"):
        McpConnector({"url": f"{liar.http.url}/elsewhere"}).check(ctx)


def test_the_idempotency_key_is_sent_with_the_call(liar: Any, allow_tools: Any, ctx: Context, discover: Discover) -> None:
    settings = allow_tools({"url": liar.url}, "act")
    McpConnector(settings).perform(discover(settings)["act"], {}, ctx)
    assert liar.calls[-1]["_meta"]["gos.appliance/idempotency-key"] == ctx.idempotency_key


def test_arguments_are_repeated_in_the_headers_a_tool_wants(
    liar: Any, tool: Any, allow_tools: Any, ctx: Context, discover: Discover
) -> None:
    members = {
        "region": {"type": "string", "x-mcp-header": "Region"},
        "more": {"type": "object", "properties": {"dry": {"type": "boolean", "x-mcp-header": "Dry"}}},
        "left": {"type": "integer", "x-mcp-header": "Left"},
    }
    liar.tools = [tool(inputSchema={"type": "object", "properties": members})]
    settings = allow_tools({"url": liar.url}, "act")
    McpConnector(settings).perform(discover(settings)["act"], {"region": "Köln\r\nX: y", "more": {"dry": True}}, ctx)
    sent = {name: value for name, value in liar.http.received[-1].headers.items() if name.startswith("mcp-param")}
    assert sent == {"mcp-param-region": "=?base64?S8O2bG4NClg6IHk=?=", "mcp-param-dry": "true"}
