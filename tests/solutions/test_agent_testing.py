"""`gos test --tenant`: cases of agents, tried with the model behind the tenant's own profile."""

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from appliance.app.parts import make_language_models
from appliance.app.store import open_store
from appliance.cli import main
from appliance.core import yaml12
from appliance.core.config import load_config
from appliance.core.database import db
from appliance.llm import Profile
from appliance.monitor import metrics
from appliance.solutions.folder import write_folder
from appliance.tenants import service as tenants
from tests.agents.model_server import Call, ChatMessage, ModelServer
from tests.solutions.conftest import make_solution

Home = tuple[Path, ModelServer]
GosTest = Callable[..., tuple[int, str, str]]
AGENT = {
    "id": "triage", "name": "Triage", "model": "smart", "instructions": "Triage.", "tools": ["query_entities", "erp:post"],
    "output": {"type": "object", "properties": {"verdict": {"type": "string"}}, "required": ["verdict"]},
}  # fmt: skip
POLICY = {
    "mode": "enforce",
    "rules": [{"id": "look", "effect": "allow", "reason": "may look", "tools": ["query_entities"]},
              {"id": "ask", "effect": "require_approval", "reason": "a person looks first", "integrations": ["erp"]}],
}  # fmt: skip
GET = {"tool": "query_entities", "input": {"collection": "things"}}
POST = {"integration": "erp", "operation": "post", "params": {"url": "/x"}}
CASES = {
    "agent": "triage",
    "mocks": {"query_entities": {"output": {"items": [{"code": "a"}]}}},
    "cases": [
        {"name": "asks first", "input": "look", "expect": {
            "calls": [GET], "never": [{"tool": "erp:post"}], "output": {"verdict": "a"}, "most_turns": 2,
        }},
        {"name": "writes", "input": {"do": "write"}, "mocks": {"erp:post": {"output": {"id": 1}}}, "expect": {
            "calls": [{"tool": "erp:post", "input": {"url": "/x"}}],
        }},
        {"name": "writes when asked", "input": {"do": "write"}, "mocks": {"erp:post": {"output": {"id": 1}}}, "expect": {
            "calls": [{"tool": "erp:post", "decision": "require_approval"}], "never": [{"tool": "erp:post", "decision": "allow"}],
        }},
        {"name": "writes by itself", "input": {"do": "write"}, "mocks": {"erp:post": {"output": {"id": 1}}}, "expect": {
            "calls": [{"tool": "erp:post", "decision": "allow"}],
        }},
        {"name": "must not write", "input": "write", "expect": {"never": [{"tool": "erp:post"}]}},
        {"name": "says otherwise", "input": "look", "expect": {"output_where": {"verdict": {"_eq": "b"}}}},
        {"name": "nobody", "agent": "gone", "input": "look"},
    ],
}  # fmt: skip


def turn(messages: list[ChatMessage], tools: dict[str, object]) -> Call:
    """Writes where the input says so, looks otherwise, then says what it found."""
    results = [message.text for message in messages if message.role == "tool"]
    if not results:
        writes = "write" in next(message.text for message in messages if message.role == "user")
        return Call("execute_tenant_integration", POST) if writes else Call("query_entities", {"collection": "things"})
    return Call("final_result", {"verdict": "a" if '"code":"a"' in results[-1].replace(" ", "") else "?"})


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    """A solution with cases, and beside it the data of an appliance whose tenant acme has the profile."""
    parts = {"agents/triage.yaml": AGENT, "policies/triage.yaml": POLICY, "tests/triage.yaml": CASES}
    files = make_solution(**{path: yaml12.dump(data) for path, data in parts.items()})
    write_folder(tmp_path / "solution", {path: text.encode() for path, text in files.items()})
    server = ModelServer(turn)
    config = load_config(environment={}, flags={"storage.data": str(tmp_path / "data")})
    sealer = open_store(config)
    tenants.create_tenant("acme", "Acme")
    profile = {"kind": "openai", "model": "small", "base_url": server.url, "price": {"input": 1.0, "output": 1.0}}
    llm = make_language_models(config, sealer)
    llm.put_profile(tenants.system_scope("acme"), "smart", Profile.model_validate(profile), "sk-home")
    db.close_database()
    yield tmp_path, server
    server.close()


@pytest.fixture
def gos_test(home: Home, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> GosTest:
    """Runs the command with the solution; answers exit code, output and errors."""
    folder, server = home
    for name in [name for name in os.environ if name.startswith("GOS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("GOS_DATA", str(folder / "data"))
    monkeypatch.setenv("GOS_EGRESS_ALLOW", f"127.0.0.1:{server.port}")
    monkeypatch.chdir(folder)
    # Its appliance is gone afterwards: nobody may go on asking it for its figures.
    monkeypatch.setattr(metrics.registry, "_metrics", {**metrics.registry._metrics})

    def run(*more: str) -> tuple[int, str, str]:
        code = main(["test", str(folder / "solution"), *more])
        return code, *capsys.readouterr()

    return run


def test_cases_of_agents_are_tried_with_the_tenants_profile_which_is_charged(home: Home, gos_test: GosTest) -> None:
    folder, server = home
    code, out, errors = gos_test("--tenant", "acme", "--json", "--junit", str(folder / "report.xml"))
    assert out, errors
    report = json.loads(out)
    cases = {case["name"]: case for case in report["cases"]}
    assert (code, report["passed"], report["failed"], report["left_out"]) == (1, 3, 4, 0), report
    assert cases["asks first"]["ok"]
    assert cases["asks first"]["output"] == {"verdict": "a"}
    assert (cases["asks first"]["kind"], cases["asks first"]["agent"]) == ("agent", "triage")
    assert cases["asks first"]["usage"] == {"input_tokens": 200, "output_tokens": 40, "cost": 0.00024}
    assert cases["writes"]["ok"]
    problem = "called erp:post with {'url': '/x'}: would need an approval: triage/ask: a person looks first"
    assert cases["writes"]["logs"] == [problem]
    assert cases["asks first"]["logs"] == ["called query_entities with {'collection': 'things'}: allowed"]
    assert cases["writes when asked"]["ok"]
    (wrong,) = cases["writes by itself"]["problems"]
    assert "allow" in wrong
    assert "require_approval" in wrong
    assert cases["must not write"]["problems"] == ["mocks: no answer matches erp:post with {'url': '/x'}"]
    assert cases["says otherwise"]["problems"] == ["output_where: it does not hold for {'verdict': 'a'}"]
    assert "gone" in cases["nobody"]["problems"][0]
    assert 'name="must not write"' in (folder / "report.xml").read_text()
    assert {request.headers["authorization"] for request in server.requests} == {"Bearer sk-home"}
    config = load_config(environment={}, flags={"storage.data": str(folder / "data")})
    sealer = open_store(config)
    try:
        usage = make_language_models(config, sealer).get_usage(tenants.system_scope("acme"), "smart").day
    finally:
        db.close_database()
    assert (usage.calls, usage.cost_nano) == (len(server.requests), len(server.requests) * 120_000)


def test_without_a_tenant_no_model_is_called_and_skipped_cases_are_reported(home: Home, gos_test: GosTest) -> None:
    _, server = home
    code, out, errors = gos_test()
    assert (code, errors, server.requests) == (0, "", [])
    assert "skipped: 7 cases of agents" in out
