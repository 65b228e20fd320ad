"""Agents in a solution folder: planned, applied, written back and pruned."""

import pytest

from appliance.agents import versions
from appliance.core.errors import Conflict
from appliance.core.pages import PageRequest
from appliance.solutions.exporting import export_solution
from tests.solutions.conftest import SolutionTenant, make_solution, read
from tests.solutions.test_definition import problems_of
from tests.solutions.test_service import actions_of

AGENT = "name: Triage\nmodel: default\ninstructions: Sort it.\ntools: [query_entities, 'erp:get']\nbudget: {turns: 3}\n"


def with_agent(text: str = AGENT) -> dict[str, str]:
    return make_solution(**{"agents/triage.yaml": text})


def test_an_agent_is_applied_once_and_again_when_it_changed(tenant: SolutionTenant) -> None:
    assert actions_of(tenant.apply(with_agent()))["agent triage"] == "create"
    assert actions_of(tenant.apply(with_agent()))["agent triage"] == "unchanged"
    change = next(each for each in tenant.plan(with_agent(AGENT.replace("Sort it", "Sift it"))) if each.kind == "agent")
    assert (change.action, change.summary) == ("update", "instructions changed; version 2")
    tenant.apply(with_agent(AGENT.replace("Sort it", "Sift it")))
    assert versions.get_version(tenant.scope, "triage").definition.instructions == "Sift it."


def test_an_agent_is_written_back_as_it_was_applied(tenant: SolutionTenant) -> None:
    tenant.apply(with_agent())
    files = export_solution(tenant.scope, tenant.tools.integrations)
    again = read({"solution.yaml": "name: x\n", "agents/triage.yaml": files["agents/triage.yaml"].decode()})
    assert again.agents["triage"] == versions.get_version(tenant.scope, "triage").definition


def test_an_agent_whose_integration_is_nowhere_is_blocked(tenant: SolutionTenant) -> None:
    with pytest.raises(Conflict, match=r"integrations/crm\.yaml"):
        tenant.apply(with_agent(AGENT.replace("erp:get", "crm:get")))


def test_a_problem_of_an_agent_is_reported_with_its_line() -> None:
    problems = problems_of(with_agent(AGENT.replace("query_entities", "query_everything")))
    assert problems.keys() == {"agents/triage.yaml"}
    assert problems["agents/triage.yaml"].startswith("agents/triage.yaml:4: /tools/0 ")


def test_a_leftover_agent_is_pruned(tenant: SolutionTenant) -> None:
    tenant.apply(with_agent())
    assert actions_of(tenant.apply(make_solution()))["agent triage"] == "leftover"
    assert actions_of(tenant.apply(make_solution(), prune=True))["agent triage"] == "delete"
    assert versions.list_agents(tenant.scope, PageRequest()).items == []
