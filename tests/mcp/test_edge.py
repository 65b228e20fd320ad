"""/mcp over HTTP: authentication, origins, answer formats, and state that survives a restart."""

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from mcp import Client
from mcp_types import ElicitResult, InputRequiredResult

from appliance.mcp import tools
from appliance.mcp.server import make_server
from appliance.mcp.skills import SkillHandlers
from appliance.mcp.tools import ToolHandlers
from appliance.testing.running import Running
from tests.api.resources import Resources, fresh
from tests.mcp.client import ERAS, read, talk
from tests.mcp.serving import serving

PARAMS: dict[str, Any] = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
INITIALIZE = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": PARAMS}
BOTH = {"Accept": "application/json, text/event-stream"}


@pytest.fixture
def post(running: Running, key: str) -> Callable[..., httpx.Response]:
    """Send a JSON-RPC message to acme's /mcp; a header that is None is left out."""

    def send(body: Any = None, host: str = "acme.localhost", **headers: str | None) -> httpx.Response:
        request_headers = {"X-API-Key": key, **BOTH} | {name.replace("_", "-"): value for name, value in headers.items()}
        with running.client(host, {name: value for name, value in request_headers.items() if value is not None}) as client:
            return client.post("/mcp", json=INITIALIZE if body is None else body)

    return send


def code_of(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


def test_without_a_key_the_answer_names_the_required_one(running: Running, post: Callable[..., httpx.Response]) -> None:
    answer = post(X_API_Key=None)
    assert code_of(answer) == (401, "missing_api_key")
    assert "error=" not in answer.headers["www-authenticate"]
    where = answer.headers["www-authenticate"].partition('resource_metadata="')[2].rstrip('"')
    base = f"http://acme.localhost{running.config.port_suffix}"
    assert where == f"{base}/.well-known/oauth-protected-resource/mcp"
    with running.client("acme.localhost") as client:
        result = client.get(where.removeprefix(base)).raise_for_status().json()
    assert (result["resource"], result["bearer_methods_supported"]) == (f"{base}/mcp", ["header"])
    assert "authorization_servers" not in result  # there is none, so none is named
    assert "entities.read" in result["scopes_supported"]


def test_a_wrong_key_and_another_tenants_look_alike(running: Running, post: Callable[..., httpx.Response]) -> None:
    answers = [post(X_API_Key=text) for text in ("gos_test_" + "x" * 36, running.key("globex"))]
    assert {code_of(answer) for answer in answers} == {(401, "invalid_api_key")}
    assert 'error="invalid_token"' in answers[0].headers["www-authenticate"]
    assert post(X_API_Key=running.key("globex", kind="agent"), host="globex.localhost").status_code == 200


def test_a_key_can_be_sent_as_bearer_token(post: Callable[..., httpx.Response], key: str) -> None:
    assert post(X_API_Key=None, Authorization=f"Bearer {key}").status_code == 200
    assert code_of(post(Authorization=f"Bearer {key}")) == (400, "invalid_request")
    assert code_of(post(X_API_Key=None, Authorization=f"Basic {key}")) == (401, "missing_api_key")


def test_the_base_host_takes_the_tenant_from_the_key(post: Callable[..., httpx.Response]) -> None:
    assert post(host="localhost").status_code == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Origin": "https://evil.example"}, 403), ({"Origin": "null"}, 403), ({"Sec_Fetch_Site": "cross-site"}, 403),
        ({"host": "evil.example"}, 421), ({"host": "nobody.localhost"}, 421),
    ],
)  # fmt: skip
def test_web_pages_and_foreign_names_are_refused(post: Callable[..., httpx.Response], headers: dict[str, str], status: int) -> None:
    assert post(**headers).status_code == status


def test_only_post_with_a_bounded_body_is_accepted(post: Callable[..., httpx.Response], running: Running, key: str) -> None:
    with running.client("acme.localhost", {"X-API-Key": key, **BOTH}) as client:
        for method in ("GET", "DELETE"):
            answer = client.request(method, "/mcp")
            assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
    assert post({**INITIALIZE, "more": "x" * (running.config.limits.json_body_kb << 10)}).status_code == 413


def test_the_answer_has_an_accepted_content_type(post: Callable[..., httpx.Response]) -> None:
    events = post()
    assert events.headers["content-type"].startswith("text/event-stream")
    plain = post(Accept="application/json")
    assert plain.json()["result"]["protocolVersion"] == "2025-06-18"
    assert json.loads(events.text.partition("data: ")[2].splitlines()[0]) == plain.json()
    assert plain.headers["x-request-id"].startswith("req_")


def test_the_rate_limit_of_the_key_holds(running: Running, post: Callable[..., httpx.Response]) -> None:
    few = running.key("acme", rate_requests=2, kind="agent")
    answers = [post(X_API_Key=few) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert "r=1" in answers[0].headers["ratelimit"]
    assert "retry-after" in answers[2].headers


@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"])
def test_every_earlier_revision_is_supported(post: Callable[..., httpx.Response], version: str) -> None:
    arguments = INITIALIZE | {"params": {**PARAMS, "protocolVersion": version}}
    assert post(arguments, Accept="application/json").json()["result"]["protocolVersion"] == version


def test_an_unknown_tool_is_an_error_of_the_protocol(running: Running, key: str) -> None:
    async def call(client: Client) -> str:
        with pytest.raises(Exception, match="there is no tool") as refused:
            await client.call_tool("rm_rf", {})
        return type(refused.value).__name__

    assert [talk(running, key, call, era) for era in ERAS] == ["MCPError", "MCPError"]


def approval_arguments(collection: str) -> dict[str, Any]:
    """The arguments that request approval of one write, with an idempotency key."""
    write = {"operations": [{"op": "create", "collection": collection, "values": {"number": "1"}}]}
    action = {"tool": "write_entities", "arguments": write}
    return {"kind": "approval", "title": "May I?", "action": action, "idempotency_key": fresh("once")}


def test_accepting_the_page_in_the_client_is_no_approval(
    running: Running, key: str, ours: Resources, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tools, "LOOK_SECONDS", 0)
    pages: list[str] = []
    arguments = approval_arguments(ours.collection())

    async def accept(context: Any, params: Any) -> ElicitResult:
        pages.append(params.url)
        return ElicitResult(action="accept")

    async def ask(client: Client) -> dict[str, Any]:
        return read(await client.call_tool("request_human_input", arguments))

    result = talk(running, key, ask, elicitation_callback=accept)
    assert result["status"] == "pending"
    assert pages == [result["review_url"]]


def test_a_restarted_server_accepts_only_the_state_it_sealed(
    running: Running, key: str, ours: Resources, decide: Callable[..., Any]
) -> None:
    services, arguments = running.services, approval_arguments(ours.collection())

    def send(url: str, state: str | None = None, **changes: Any) -> httpx.Response:
        params: dict[str, Any] = {"name": "request_human_input", "arguments": {**arguments, **changes}}
        params |= {"requestState": state} if state else {}
        params["_meta"] = {
            "io.modelcontextprotocol/protocolVersion": ERAS[0],
            "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"url": {}}},
        }
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        headers = {"MCP-Protocol-Version": ERAS[0], "Mcp-Method": "tools/call", "Mcp-Name": "request_human_input"}
        return httpx.post(url, json=body, headers={**headers, "Accept": "application/json"}, timeout=60, trust_env=False)

    def server() -> Any:
        skills = SkillHandlers(services.agents.skills, services.agents.tools, services.threads)
        handlers = ToolHandlers(services.agents.tools, services.threads, services.limits.streams)
        return make_server(handlers, services.sealer, [skills])

    with serving(running, server(), key) as url:
        first = send(url).json()["result"]
    assert InputRequiredResult.model_validate(first).result_type == "input_required"
    state = first["requestState"]
    request_id = ours.ask("GET", "/approvals?status=pending&limit=1")[0]["id"]
    assert request_id not in state
    decide(request_id)
    with serving(running, server(), key) as url:
        result = send(url, state).json()["result"]["structuredContent"]
        assert (result["request_id"], result["status"]) == (request_id, "approved")
        tampered = f"{state[:-4]}{'aaaa' if state[-4:] != 'aaaa' else 'bbbb'}"
        for answer in (send(url, tampered), send(url, state, title="Another?")):
            assert answer.json()["error"]["data"] == {"reason": "invalid_request_state"}
    with serving(running, server(), running.key("acme", kind="agent")) as url:
        assert send(url, state).json()["error"]["data"] == {"reason": "invalid_request_state"}
