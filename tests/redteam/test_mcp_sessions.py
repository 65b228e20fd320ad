"""Surface: /mcp as a meeting of strangers: foreign session ids, streams, states and cancellations, swapped credentials, hosts."""

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import httpx
import pytest

from appliance.testing.running import Running
from tests.api.resources import Resources, fresh
from tests.redteam.attempts import attempts

NEW, OLD = "2026-07-28", "2025-06-18"
BOTH = "application/json, text/event-stream"
Send = Callable[..., httpx.Response]


class Client:
    """Somebody with a key who speaks JSON-RPC by hand."""

    def __init__(self, running: Running, stack: ExitStack, tenant: str) -> None:
        self.key = running.key(tenant, kind="agent")
        self.http = stack.enter_context(
            running.client(f"{tenant}.localhost", {"X-API-Key": self.key, "Accept": "application/json"})
        )

    def call(self, tool: str, arguments: Any, era: str = NEW, number: Any = 1, **headers: str) -> httpx.Response:
        return self.send(message(tool, arguments, era, number), **headers_of(tool, era), **headers)

    def send(self, body: Any, **headers: str) -> httpx.Response:
        fields = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.http.post("/mcp", content=json.dumps(body).encode(), headers={"Content-Type": "application/json", **fields})


def message(tool: str, arguments: Any, era: str, number: Any = 1) -> dict[str, Any]:
    params: dict[str, Any] = {"name": tool, "arguments": arguments}
    if era == NEW:
        params["_meta"] = {"io.modelcontextprotocol/protocolVersion": NEW, "io.modelcontextprotocol/clientCapabilities": {}}
    return {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}


def headers_of(tool: str, era: str) -> dict[str, str]:
    return {"MCP_Protocol_Version": era} | ({"Mcp_Method": "tools/call", "Mcp_Name": tool} if era == NEW else {})


@pytest.fixture
def people(running: Running) -> Iterator[tuple[Client, Client, Client]]:
    """Two with keys of acme, one with a key of globex."""
    with ExitStack() as stack:
        yield Client(running, stack, "acme"), Client(running, stack, "acme"), Client(running, stack, "globex")


def test_mcp_clients_of_different_tenants_stay_apart(
    running: Running, ours: Resources, theirs: Resources, people: tuple[Client, Client, Client]
) -> None:
    own, colleague, stranger = people
    name, canary = fresh("mcp"), fresh("canary-of-globex")
    fields = [{"name": "number", "type": "text"}]
    for tenant, text in ((ours, "acme's own"), (theirs, canary)):
        tenant.ask("POST", "/datapool", {"name": name, "fields": fields})
        tenant.ask("POST", f"/datapool/{name}/entities", {"number": text})
    query = {"collection": name}
    for era in (NEW, OLD):
        assert canary in stranger.call("query_entities", query, era).text, "the control: whose it is sees it"
        assert "acme's own" in own.call("query_entities", query, era).text
    with attempts() as table:

        def unseen(attempt: str, answer: httpx.Response, *statuses: int) -> None:
            wrong = canary in answer.text or (statuses and answer.status_code not in statuses)
            table.check(attempt, not wrong, (answer.status_code, answer.text))

        _mix(unseen, running, own, stranger, name)
        unseen(
            "the header of another tool", own.send(message("query_entities", query, NEW), **headers_of("get_execution", NEW)), 400
        )
        unseen(
            "the body of another revision",
            own.send(message("query_entities", query, OLD), **headers_of("query_entities", NEW)),
            400,
        )
        unseen("a method in the header only", own.send({"jsonrpc": "2.0", "id": 1}, **headers_of("query_entities", NEW)), 400)
        for method in ("GET", "DELETE", "PUT"):
            answer = own.http.request(method, "/mcp", headers={"Accept": BOTH, "Mcp-Session-Id": "1", "Last-Event-ID": "1"})
            unseen(f"a stream by {method}", answer, 405)
        _swap(table, own, stranger, query, canary)
        _cancel(table, own, colleague, stranger, name)


def _mix(unseen: Callable[..., None], running: Running, own: Client, stranger: Client, name: str) -> None:
    """What a message says about who sends it, beside its credential, in both eras."""
    query = {"collection": name}
    for era in (NEW, OLD):
        for session in ("1", stranger.key, "00000000-0000-0000-0000-000000000000", "../globex", "globex"):
            unseen(f"session {session[:8]} ({era})", own.call("query_entities", query, era, Mcp_Session_Id=session))
        unseen(f"resumed from a foreign event ({era})", own.call("query_entities", query, era, Last_Event_ID="1"))
        unseen(f"the tenant as an argument ({era})", own.call("query_entities", {**query, "tenant": "globex"}, era))
        unseen(f"the tenant in the name ({era})", own.call("query_entities", {"collection": f"globex/{name}"}, era))
        unseen(f"the tenant in a header ({era})", own.call("query_entities", query, era, X_Tenant="globex", X_Tenant_Id="globex"))
        unseen(f"another host ({era})", own.call("query_entities", query, era, Host=_host(running, "globex")), 401)
        unseen(f"forwarded for another host ({era})", own.call("query_entities", query, era, X_Forwarded_Host="globex.localhost"))
        unseen(f"an unknown host ({era})", own.call("query_entities", query, era, Host="evil.example"), 421)
        unseen(f"a page's origin ({era})", own.call("query_entities", query, era, Origin="https://evil.example"), 403)
        unseen(
            f"an origin of the other tenant ({era})",
            own.call("query_entities", query, era, Origin=f"http://{_host(running, 'globex')}"),
            403,
        )
        unseen(f"no origin at all ({era})", own.call("query_entities", query, era, Origin="null"), 403)
        unseen(f"two credentials ({era})", own.call("query_entities", query, era, Authorization=f"Bearer {stranger.key}"), 400)
        batch = [message("query_entities", query, era, n) for n in (1, 2)]
        unseen(f"a batch ({era})", own.send(batch, **headers_of("query_entities", era)), 400)


def _host(running: Running, tenant: str) -> str:
    return f"{tenant}.localhost{running.config.port_suffix}"


def _swap(table: Any, own: Client, stranger: Client, query: Any, canary: str) -> None:
    """One connection, and the credential changes from request to request: each answer is that of its own request."""
    keys = [own.key, stranger.key] * 4
    answers = [
        own.http.post(
            "/mcp",
            json=message("query_entities", query, OLD, number),
            headers={"X-API-Key": key, "MCP-Protocol-Version": OLD, "Host": _swapped(own, key, stranger)},
        )
        for number, key in enumerate(keys)
    ]
    seen = [canary in answer.text for answer in answers]
    table.check("credentials swapped on one connection", seen == [False, True] * 4, [each.text[:200] for each in answers])
    numbers = [each.json()["id"] for each in answers]
    table.check("answers carry the number of their request", numbers == list(range(8)), numbers)


def _swapped(own: Client, key: str, stranger: Client) -> str:
    return str((own if key == own.key else stranger).http.headers["host"])


def _cancel(table: Any, own: Client, colleague: Client, stranger: Client, name: str) -> None:
    """Requests of others with the same number are cancelled while they run; each is answered all the same."""
    cancelled = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7, "reason": "not yours"}}

    def ask(_: int) -> httpx.Response:
        return own.call("query_entities", {"collection": name}, OLD, 7)

    def disturb(number: int) -> httpx.Response:
        return (stranger, colleague)[number % 2].send(cancelled, MCP_Protocol_Version=OLD)

    with ThreadPoolExecutor(4) as threads:
        asking = [threads.submit(ask, number) for number in range(10)]
        disturbing = [threads.submit(disturb, number) for number in range(10)]
        answers = [each.result() for each in asking]
        statuses = {each.result().status_code for each in disturbing}
    table.check("cancellations are taken, or refused, quietly", statuses <= {202, 400}, statuses)
    table.check("cancelled by others", all("acme's own" in each.text for each in answers), [each.text for each in answers])


def test_a_revoked_key_is_refused_in_the_middle_of_a_conversation(running: Running, ours: Resources) -> None:
    """There is no session that outlives the credential: the very next message is refused."""
    issued = ours.ask("POST", "/keys", {"name": "ends", "scopes": ["entities.read"], "kind": "agent"})
    with running.client("acme.localhost", {"X-API-Key": issued["key"], "Accept": "application/json"}) as http:
        listed = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
        headers = {"MCP-Protocol-Version": OLD}
        first = http.post("/mcp", json=listed, headers=headers)
        assert (first.status_code, "result" in first.json()) == (200, True)
        ours.ask("DELETE", f"/keys/{issued['id']}")
        assert http.post("/mcp", json=listed, headers=headers).status_code == 401
