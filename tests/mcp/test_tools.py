"""The tools over MCP: each behaves like its REST counterpart, under policies, approvals, scopes and tenants."""

import asyncio
import base64
import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError

from appliance.connectors.testing import LoopbackServer
from appliance.core import clock
from appliance.solutions import write_zip
from appliance.testing.running import Running
from tests.api.resources import Resources, fresh
from tests.mcp.client import ERAS, read, talk

Ask = Callable[..., Any]
TOOLS = [
    "list_tenant_skills", "load_tenant_skill", "list_tenant_integrations", "execute_tenant_integration", "request_human_input",
    "get_human_input", "execute_process", "get_execution", "query_entities", "write_entities", "search_documents",
    "read_document", "read_logs", "publish_webapp",
]  # fmt: skip


def create(collection: str, number: str, **more: Any) -> dict[str, Any]:
    """The arguments of write_entities that create one entity."""
    return {"operations": [{"op": "create", "collection": collection, "values": {"number": number}}], **more}


def approval_of(ask: Ask, tool: str, arguments: dict[str, Any], **more: Any) -> Any:
    action = {"tool": tool, "arguments": arguments}
    return ask("request_human_input", kind="approval", title="May I?", reason="the test wants it", action=action, **more)


@pytest.mark.parametrize("era", ERAS)
def test_the_tools_of_the_contract_are_offered_with_schemas_and_hints(running: Running, key: str, era: str) -> None:
    async def listed(client: Client) -> Any:
        return (await client.list_tools()).tools

    tools = {tool.name: tool for tool in talk(running, key, listed, era)}
    assert list(tools) == TOOLS
    for tool in tools.values():
        assert tool.input_schema["additionalProperties"] is False
        assert tool.output_schema["type"] == "object"
        assert tool.annotations.title
    hints = {name: (t.annotations.read_only_hint, t.annotations.destructive_hint) for name, t in tools.items()}
    assert hints["query_entities"] == (True, False)
    assert hints["write_entities"] == (False, True)
    assert hints["request_human_input"] == (False, False)


@pytest.mark.parametrize("era", ERAS)
def test_entities_are_read_as_over_rest(ask: Ask, ours: Resources, era: str) -> None:
    collection = ours.collection()
    entity = ours.entity(collection)
    result = ask("query_entities", era, collection=collection, filter={"total": {"_gte": 1}})
    assert result == {"items": ours.ask("POST", f"/datapool/{collection}/query", {})}
    assert result["items"][0]["id"] == entity
    assert ask("query_entities", era, collection="nothing")["error"]["code"] == "not_found"


def test_an_approval_covers_exactly_one_call_and_is_used_once(
    ask: Ask, running: Running, key: str, ours: Resources, decide: Ask
) -> None:
    collection = ours.collection()
    arguments = create(collection, "1")
    assert ask("write_entities", **arguments)["error"]["code"] == "approval_required"
    once = fresh("ask-once")
    approval = approval_of(ask, "write_entities", arguments, idempotency_key=once)
    assert approval_of(ask, "write_entities", arguments, idempotency_key=once)["request_id"] == approval["request_id"]
    assert approval["status"] == "pending"
    assert approval["review_url"].endswith(f"/console/approvals/{approval['request_id']}")
    granted = {**arguments, "approval_id": approval["request_id"]}
    assert ask("write_entities", **granted)["error"]["reason"] == "pending"
    decide(approval["request_id"])
    assert ask("get_human_input", request_id=approval["request_id"])["status"] == "approved"
    other = create(collection, "2", approval_id=approval["request_id"])
    assert ask("write_entities", **other)["error"]["reason"] == "digest_differs"

    async def at_once(client: Client) -> list[Any]:
        return [read(each) for each in await asyncio.gather(*(client.call_tool("write_entities", granted) for _ in range(20)))]

    answers = talk(running, key, at_once)
    done = [answer for answer in answers if "outcomes" in answer]
    assert len(done) == 1
    assert {answer["error"]["reason"] for answer in answers if "error" in answer} == {"used"}
    assert [each["number"] for each in ours.ask("POST", f"/datapool/{collection}/query", {})] == ["1"]
    assert ask("get_human_input", request_id=approval["request_id"])["status"] == "used"


def test_a_write_whose_verb_fails_leaves_its_approval_unused(ask: Ask, ours: Resources, decide: Ask) -> None:
    collection = ours.collection()
    arguments = create(collection, "1")
    approval = approval_of(ask, "write_entities", arguments)
    decide(approval["request_id"])
    ours.ask("POST", f"/datapool/{collection}/entities", {"number": "1"})
    assert ask("write_entities", **arguments, approval_id=approval["request_id"])["error"]["code"] == "validation_failed"
    assert ask("get_human_input", request_id=approval["request_id"])["status"] == "approved"


def test_pages_of_operations_are_never_too_large(ask: Ask, ours: Resources, erp: LoopbackServer) -> None:
    """100 operations of 6 KB each are more than an answer may have; every one is listed once on some page."""
    members = {f"member_{'x' * 50}_{number}": {"type": "string"} for number in range(70)}
    body = {"content": {"application/json": {"schema": {"type": "object", "properties": members}}}}
    operation = {"requestBody": body, "responses": {"200": {"description": "done"}}}
    paths = {f"/things/{number}": {"post": {**operation, "operationId": f"make_{number:03}"}} for number in range(100)}
    document = {"openapi": "3.0.3", "info": {"title": "t", "version": "1"}, "servers": [{"url": erp.url}], "paths": paths}
    slug = fresh("large")
    erp.answer("/openapi.json", 200, json.dumps(document).encode())
    settings = {"document_url": f"{erp.url}/openapi.json", "base_url": erp.url}
    ours.ask("POST", "/integrations", {"slug": slug, "connector": "openapi", "settings": settings})
    ours.ask("POST", f"/integrations/{slug}/test")
    seen: list[str] = []
    cursor: dict[str, str] = {}
    while True:
        page = ask("list_tenant_integrations", integration=slug, limit=100, **cursor)
        assert "error" not in page, page["error"]
        seen += [each["operation"] for each in page["items"][0]["operations"]]
        if "next_cursor" not in page:
            break
        cursor = {"cursor": page["next_cursor"]}
    assert seen == [f"make_{number:03}" for number in range(100)]
    overview = ask("list_tenant_integrations", limit=100)
    assert "error" not in overview, overview["error"]
    assert "truncated" not in overview


def test_operations_of_integrations_are_found_previewed_and_executed(
    ask: Ask, ours: Resources, erp: LoopbackServer, decide: Ask
) -> None:
    slug = fresh("erp")
    ours.ask("POST", "/integrations", {"slug": slug, "connector": "http", "settings": {"base_url": erp.url}})
    (results,) = ask("list_tenant_integrations", integration=slug, operation="post")["items"]
    assert results["operations"][0]["approval"] == "required"
    assert results["operations"][0]["params"]["type"] == "object"
    searched = ask("list_tenant_integrations", integration=slug, search="get")["items"][0]["operations"]
    assert [(each["operation"], each["approval"]) for each in searched if each["operation"] == "get"] == [("get", "none")]

    about = {"integration": slug, "operation": "post", "params": {"url": "/orders", "json": {"number": "7"}}}
    view = ask("execute_tenant_integration", **about, mode="preview")
    assert (view["status"], view["policy"]["verdict"]) == ("previewed", "require_approval")
    assert view["preview"]["requests"][0]["method"] == "POST"
    refused = ask("execute_tenant_integration", **about)
    assert (refused["status"], refused["action_digest"]) == ("approval_required", view["action_digest"])
    assert erp.received == []

    approval = approval_of(ask, "execute_tenant_integration", about)
    assert approval["action_digest"] == view["action_digest"]
    decide(approval["request_id"])
    done = ask("execute_tenant_integration", **about, approval_id=approval["request_id"])
    assert (done["status"], done["result"]["body"]) == ("succeeded", {"number": "7"})
    again = ask("execute_tenant_integration", **about, approval_id=approval["request_id"])
    assert (again["status"], again["error"]["code"]) == ("denied", "policy_denied")
    assert len(erp.received) == 1
    assert ask("execute_tenant_integration", integration=slug, operation="get", params={"url": "/orders"})["status"] == "succeeded"


def test_an_integration_that_is_switched_off_is_denied(ask: Ask, ours: Resources, erp: LoopbackServer) -> None:
    slug = fresh("erp")
    ours.ask("POST", "/integrations", {"slug": slug, "connector": "http", "settings": {"base_url": erp.url}})
    arguments = {"integration": slug, "operation": "get", "params": {"url": "/orders"}}
    assert ask("execute_tenant_integration", **arguments)["status"] == "succeeded"
    ours.ask("PUT", "/kill-switches", {"integration": slug, "off": True, "reason": "it misbehaves"})
    result = ask("execute_tenant_integration", **arguments)
    assert result["status"] == "denied"
    assert "it misbehaves" in result["error"]["message"]
    assert len(erp.received) == 1


def test_a_process_is_executed_and_followed(ask: Ask, ours: Resources, decide: Ask) -> None:
    process = ours.process()
    arguments = {"process_id": process, "wait": 30, "idempotency_key": fresh("once")}
    approval = approval_of(ask, "execute_process", arguments)
    decide(approval["request_id"])
    done = ask("execute_process", **arguments, approval_id=approval["request_id"])
    assert (done["status"], done["output"]) == ("succeeded", 2)
    assert ask("get_execution", execution_id=done["execution_id"]) == ours.ask(
        "GET", f"/processes/{process}/executions/{done['execution_id']}"
    )
    refused = ask("execute_process", **{**arguments, "idempotency_key": fresh("twice")}, approval_id=approval["request_id"])
    assert refused["error"]["reason"] == "digest_differs"
    assert len(ours.ask("GET", f"/processes/{process}/executions")) == 1


def test_a_document_is_found_and_read_in_pieces(ask: Ask, ours: Resources) -> None:
    text = "ä" * 70_000 + fresh(" gherkin")
    name = fresh("long") + ".txt"
    document = ours.ask("POST", "/documents", None, params={"name": name}, content=text.encode())
    (results,) = ask("search_documents", name=name)["items"]
    view = ours.ask("GET", f"/documents/{document['id']}")
    assert results | {"text_state": ""} == view | {"text_state": ""}  # its text is extracted in the background
    until = clock.monotonic() + 60
    while (result := ask("read_document", document_id=document["id"]))["state"] == "pending":
        assert clock.monotonic() < until, "the text is not read"
    pieces = [result["text"]]
    while "next_offset" in result:
        result = ask("read_document", document_id=document["id"], offset=result["next_offset"])
        pieces.append(result["text"])
    assert (len(pieces), "".join(pieces).strip()) == (2, text)
    result = ask("read_document", document_id=document["id"], form="content", offset=len(text.encode()) - 4)
    assert result["content"] == base64.b64encode(text.encode()[-4:]).decode()


def test_a_webapp_is_published(ask: Ask, ours: Resources, decide: Ask) -> None:
    app = ours.webapp()
    archive = write_zip({"app.yaml": b"smoke: [{path: /}]", "public/index.html": b"<h1>third</h1>"})
    ours.ask("POST", f"/webapps/{app}/versions", None, content=archive, headers={"Content-Type": "application/zip"})
    arguments = {"app": app, "version": 3, "if_current": 2}
    approval = approval_of(ask, "publish_webapp", arguments)
    decide(approval["request_id"])
    result = ask("publish_webapp", **arguments, approval_id=approval["request_id"])
    assert (result["state"], result["version"]["version"]) == ("published", 3)
    assert ask("get_human_input", request_id=approval["request_id"])["status"] == "used"


def test_a_question_is_answered_by_a_person(ask: Ask, decide: Ask) -> None:
    arguments = {"kind": "choice", "title": fresh("Which"), "choices": ["red", "blue"], "idempotency_key": fresh("key")}
    request = ask("request_human_input", **arguments)
    assert ask("request_human_input", **arguments)["request_id"] == request["request_id"]
    decide(request["request_id"], "answer", answer="blue")
    result = ask("get_human_input", request_id=request["request_id"], wait_seconds=30)
    assert (result["status"], result["answer"], result["decided_by"]) == ("answered", "blue", "mcp-approver")
    assert ask("request_human_input", kind="approval", title="of nothing")["error"]["code"] == "validation_failed"


def test_a_key_sees_and_calls_what_its_scopes_allow(running: Running, ours: Resources) -> None:
    narrow = running.key("acme", ["entities.read"], kind="agent")

    async def look(client: Client) -> Any:
        names = [tool.name for tool in (await client.list_tools()).tools]
        refused = read(await client.call_tool("read_logs", {}))
        return names, refused["error"]["code"], (await client.list_resources()).resources

    assert talk(running, narrow, look) == (["query_entities"], "scope_missing", [])


def test_one_tenant_never_reaches_another(running: Running, ask: Ask, ours: Resources) -> None:
    stranger = running.key("globex", kind="agent")
    collection, process, document = ours.collection(), ours.process(), ours.document()
    execution = ours.execution(process)
    approval = approval_of(ask, "write_entities", create(collection, "1"))

    async def look(client: Client) -> list[str]:
        calls: list[tuple[str, dict[str, Any]]] = [
            ("query_entities", {"collection": collection}), ("get_execution", {"execution_id": execution}),
            ("read_document", {"document_id": document}), ("get_human_input", {"request_id": approval["request_id"]}),
        ]  # fmt: skip
        return [read(await client.call_tool(name, arguments))["error"]["code"] for name, arguments in calls]

    host = {"Host": f"globex.localhost{running.config.port_suffix}"}
    assert talk(running, stranger, look, headers=host) == ["not_found"] * 4


def test_arguments_that_do_not_fit_are_refused_with_pointers(ask: Ask) -> None:
    refused = ask("query_entities", collection=7, surprise=True)["error"]
    assert refused["code"] == "validation_failed"
    assert sorted(each["pointer"] for each in refused["details"]) == ["/collection", "/surprise"]


def test_skills_are_resources_prompts_and_an_extension(running: Running, key: str, acme: httpx.Client) -> None:
    name = fresh("refunds")
    about = f"---\nname: {name}\ndescription: How refunds are made.\n---\nAsk before you refund.\n"
    archive = write_zip({"SKILL.md": about.encode(), "reference/limits.md": b"At most 50 EUR.\n"})
    response = acme.put(f"/api/v1/skills/{name}", content=archive, headers={"Content-Type": "application/zip"})
    assert response.status_code == 201, response.text

    async def look(client: Client) -> Any:
        resources = {each.uri for each in (await client.list_resources()).resources}
        file = (await client.read_resource(f"skill://{name}/reference/limits.md")).contents[0]
        prompt = await client.get_prompt(name)
        loaded = read(await client.call_tool("load_tenant_skill", {"name": name}))
        return resources, file, prompt.messages[0].content, loaded

    for era in ERAS:
        resources, file, text, loaded = talk(running, key, look, era)
        assert f"skill://{name}/SKILL.md" in resources
        assert (file.text, file.mime_type) == ("At most 50 EUR.\n", "text/markdown")
        assert text.text.strip() == "Ask before you refund."
        assert (loaded["trust"], [each["path"] for each in loaded["files"]]) == ("untrusted", ["SKILL.md", "reference/limits.md"])


def test_a_skill_is_served_whole_or_refused_never_cut(running: Running, key: str, acme: httpx.Client) -> None:
    name = fresh("manual")
    about = f"---\nname: {name}\ndescription: Long.\n---\n" + "Ask before you write.\n" * 4_000
    files = {"SKILL.md": about.encode(), "long.md": b"A line.\n" * 30_000, "longer.md": b"A line.\n" * 40_000}
    response = acme.put(f"/api/v1/skills/{name}", content=write_zip(files), headers={"Content-Type": "application/zip"})
    assert response.status_code == 201, response.text

    async def look(client: Client) -> Any:
        with pytest.raises(MCPError) as refused:
            await client.read_resource(f"skill://{name}/longer.md")
        file = (await client.read_resource(f"skill://{name}/long.md")).contents[0]
        text: Any = (await client.get_prompt(name)).messages[0].content
        error_data: Any = refused.value.error.data
        whole: Any = file
        return whole.text, text.text, error_data["code"]

    content, text, code = talk(running, key, look)
    assert (content.encode(), code) == (files["long.md"], "payload_too_large")
    assert text.count("Ask before you write.") == 4_000
