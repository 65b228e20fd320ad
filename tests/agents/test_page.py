"""The examples, limits and names in docs/agents.md match the code."""

import re
from dataclasses import asdict
from typing import get_args

from appliance.agents.definition import MEMBERS, MOST_BUDGET, TOOLS, UNLISTED, Budget, parse_definition
from appliance.agents.schema import agent_schema
from appliance.api.agents.agent_runs import Status
from appliance.core import yaml12
from appliance.core.json_schema import compile_schema
from appliance.governance import Subject
from appliance.governance.policies import Facts, ToolAction, decide
from tests.architecture.source_tree import ROOT
from tests.governance.policies.facts import compile_policies

PAGE = (ROOT / "docs" / "agents.md").read_text("utf-8")
FILES = dict(re.findall(r"```yaml\n# (\w+/[a-z-]+)\.yaml\n(.*?)```", PAGE, re.DOTALL))
AGENT, POLICY = yaml12.load(FILES["agents/triage"]), yaml12.load(FILES["policies/desk"])


def decide_tool(tool: str, effect: str = "read", **more: str) -> str:
    subject = Subject("run:r", "agent", "triage", "r")
    return decide(compile_policies(desk=POLICY), Facts(subject, ToolAction(tool, effect, {}, **more))).verdict  # type: ignore[arg-type]


def test_the_agent_in_the_docs_is_valid() -> None:
    assert compile_schema(agent_schema()).problems(AGENT) == []
    assert parse_definition("triage", AGENT).budget == Budget(10, 20, 50_000, 0.5, 300)


def test_the_policy_in_the_docs_decides_as_described() -> None:
    assert {decide_tool(tool) for tool in ("query_entities", "load_tenant_skill", "list_tenant_integrations")} == {"allow"}
    erp = {"integration": "erp", "operation": "get_order"}
    assert decide_tool("execute_tenant_integration", **erp) == "allow"
    assert decide_tool("execute_tenant_integration", "write", **{**erp, "operation": "create_order"}) == "require_approval"
    assert decide_tool("read_logs") == "deny"


def test_the_docs_list_every_member_tool_limit_and_status() -> None:
    assert [name for name in MEMBERS if f"`{name}`" not in PAGE] == []
    assert [name for name in TOOLS if name not in UNLISTED and f"`{name}`" not in PAGE] == []
    assert [name for name in get_args(Status) if f"`{name}`" not in PAGE] == []
    for name, usual in asdict(Budget()).items():
        row = next(line for line in PAGE.splitlines() if line.startswith(f"| `{name}`") and line.count("|") == 4)
        most = MOST_BUDGET.get(name, 1_000)
        assert row.endswith(f"| {usual:,g} | {most:,} |" if name == "cost" else f"| {usual:,} | {most:,} |"), row
