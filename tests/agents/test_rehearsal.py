"""Rehearsals of runs: the real model, instructions, schemas and budgets, with tools that answer from a test."""

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest

from appliance.agents.definition import parse_definition
from appliance.agents.model import ProfileModel
from appliance.agents.rehearsal import RehearsalResult, rehearse
from appliance.agents.run_segment import RunDependencies
from appliance.agents.tool_mocks import MockedTools, ToolMock, ToolUse
from appliance.agents.tools.tool import Caller, Tool
from appliance.agents.tools.toolbox import Toolbox
from appliance.connectors.egress import Egress
from appliance.core.crypto import Sealer
from appliance.core.database import db
from appliance.core.scope import TenantScope
from appliance.governance import Governor
from appliance.governance.policies import PolicyService
from appliance.llm import LanguageModels, Profile, usage
from appliance.migrations import migrate
from appliance.tenants import service as tenants
from tests.agents.model_server import Answer, Call, ModelServer, script

OBJECT: dict[str, Any] = {"type": "object"}
NAME_SCHEMA = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
RESULT = {"type": "object", "properties": {"items": {"type": "array"}}, "required": ["items"]}
SKILL = {"name": "rules", "version_digest": "d", "trust": "trusted", "instructions": "Be kind."}


def tool(name: str, call: Any, arguments: Mapping[str, Any] = OBJECT, result: Mapping[str, Any] = OBJECT) -> Tool:
    return Tool(name, name, name, arguments, result, "write", frozenset(), call)


def never(caller: Caller, arguments: Mapping[str, Any]) -> dict[str, Any]:
    raise AssertionError("a test must not do anything")


@dataclass
class Stage:
    """An agent of tenant acme whose tools would fail the test if they were really called."""

    server: ModelServer
    scope: TenantScope
    dependencies: RunDependencies

    def run(self, *answers: ToolMock, **more: Any) -> tuple[RehearsalResult, MockedTools]:
        mocks = MockedTools(answers)
        settings = {"instructions": "Help.", "tools": ["query_entities", "erp:get"], "skills": ["rules"], **more}
        return rehearse(self.scope, parse_definition("triage", settings), {"n": 1}, mocks, self.dependencies), mocks


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    template = tmp_path_factory.mktemp("rehearsal") / "gos.db"
    db.open_database(f"sqlite:///{template}")
    migrate()
    tenants.create_tenant("acme", "acme")
    db.close_database()
    return template


@pytest.fixture
def stage(empty: Path, tmp_path: Path) -> Iterator[Stage]:
    shutil.copy(empty, tmp_path / "gos.db")
    db.open_database(f"sqlite:///{tmp_path}/gos.db")
    server = ModelServer(script("hello"))
    sealer, scope = Sealer(b"k" * 32), tenants.system_scope("acme")
    llm = LanguageModels(
        Egress.of([f"127.0.0.1:{server.port}"]), sealer, lambda scope, name: tenants.unseal_secret(scope, sealer, name)
    )
    profile = {"kind": "openai", "model": "small", "base_url": server.url, "price": {"input": 1.0, "output": 2.0}}
    llm.put_profile(scope, "default", Profile.model_validate(profile), None)
    toolbox = Toolbox(cast(Any, None))
    toolbox.add(tool("query_entities", never, NAME_SCHEMA, RESULT))
    toolbox.add(tool("execute_tenant_integration", never))
    toolbox.add(tool("list_tenant_integrations", lambda caller, arguments: {"items": []}))
    toolbox.add(tool("load_tenant_skill", lambda caller, arguments: SKILL, NAME_SCHEMA))
    governor = Governor(PolicyService(), cast(Any, None))
    dependencies = RunDependencies(
        toolbox, governor, cast(Any, None), partial(ProfileModel, llm), lambda scope, name: f"about {name}"
    )
    yield Stage(server, scope, dependencies)
    server.close()
    db.close_database()


def test_a_rehearsal_uses_mocked_answers_and_books_its_cost(stage: Stage) -> None:
    about = {"integration": "erp", "operation": "get"}
    stage.server.turn = script(
        [Call("query_entities", {"name": "orders"}), Call("execute_tenant_integration", {**about, "params": {"id": 7}})],
        Call("load_tenant_skill", {"name": "rules"}), "all done",
    )  # fmt: skip
    done, mocks = stage.run(ToolMock("query_entities", {}, ({"items": ["canary"]},)), ToolMock("erp:get", {}, (99,)))
    assert (done.status, done.output, done.turns) == ("succeeded", "all done", 3)
    assert done.usage == {"input_tokens": 300, "output_tokens": 60, "cost": 0.00042}
    assert [replace(each, why=()) for each in mocks.calls] == [
        ToolUse("query_entities", {"name": "orders"}, "deny"), ToolUse("erp:get", {"id": 7}, "deny"),
        ToolUse("load_tenant_skill", {"name": "rules"}, "deny"),
    ], "nothing allows this agent anything, and the test answers all the same"  # fmt: skip
    assert "denied: no rule allows an agent" in mocks.calls[0].decision_text
    assert (mocks.problems, list(mocks.unused())) == ([], [])
    messages = stage.server.requests[-1].messages
    assert "Help." in messages[0].text
    assert messages[1].text == '{"n": 1}'
    results = [message.text for message in messages if message.role == "tool"]
    assert "canary" in results[0]
    assert "99" in results[1]
    assert "Be kind." in results[2]
    assert usage.used_since(stage.scope, "default", "").calls == 3
    assert db.rows("SELECT count(*) FROM agent_run")[0][0] == 0


def test_a_call_without_an_answer_ends_the_run(stage: Stage) -> None:
    stage.server.turn = script(Call("query_entities", {"name": "orders"}), "all done")
    done, mocks = stage.run()
    assert (done.status, len(stage.server.requests)) == ("failed", 1)
    assert mocks.problems == ["mocks: no answer matches query_entities with {'name': 'orders'}"]


def test_refused_and_invalid_calls_are_reported_to_the_model_and_not_counted(stage: Stage) -> None:
    other = {"integration": "erp", "operation": "put"}
    stage.server.turn = script(Call("execute_tenant_integration", other), Call("query_entities", {"name": 5}), "sorry")
    done, mocks = stage.run(ToolMock("erp:put", {}, (1,)), ToolMock("query_entities", {}, ({"items": []},)))
    assert (done.status, mocks.calls) == ("succeeded", [])
    results = [message.text for message in stage.server.requests[-1].messages if message.role == "tool"]
    assert "policy_denied" in results[0]
    assert "validation_failed" in results[1]


def test_its_budget_and_a_failing_model_end_a_run_at_once(stage: Stage) -> None:
    stage.server.turn = script(Call("query_entities", {"name": "orders"}))
    done, _ = stage.run(ToolMock("query_entities", {}, ({"items": []},)), budget={"turns": 2})
    assert (done.status, (done.error or {})["code"], len(stage.server.requests)) == ("failed", "budget_exceeded", 2)
    stage.server.turn = script(Answer(status=503))
    done, _ = stage.run()
    assert (done.status, (done.error or {})["code"], len(stage.server.requests)) == ("failed", "connector_failed", 3)


def test_the_output_fits_the_schema_of_the_agent(stage: Stage) -> None:
    schema = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}
    stage.server.turn = script(Call("final_result", {}), Call("final_result", {"ok": True}))
    done, _ = stage.run(output=schema)
    assert done.output == {"ok": True}
