"""Runs the cases of agents, each with the model of its profile in a tenant used only for tests."""

from collections.abc import Iterator
from dataclasses import replace

from appliance.agents import MockedTools, RunDependencies, get_version
from appliance.core import clock
from appliance.core.errors import ApplianceError
from appliance.core.scope import TenantScope
from appliance.solutions.testing.agent_cases import AgentCase
from appliance.solutions.testing.agent_evaluation import evaluate_run
from appliance.solutions.testing.runner import CaseResult, temporary_records


def run_agent_case(scope: TenantScope, case: AgentCase, dependencies: RunDependencies) -> CaseResult:
    """Run one case: its records exist while it runs, tools give the answers of the case, and policies evaluate each call."""
    from appliance.agents import rehearse  # imported late because the model clients take long to load

    began = clock.monotonic()
    result = CaseResult("agent", case.file, case.line, case.name, "", (), agent=case.agent)
    answering = MockedTools((*case.own_answers, *case.shared_answers))
    try:
        definition = get_version(scope, case.agent).definition
        with temporary_records(scope, case.records):
            run = rehearse(scope, definition, case.input, answering, dependencies)
    except ApplianceError as error:
        return replace(result, problems=tuple(_refusal(error)), duration_ms=_elapsed_ms(began), status="refused")
    return replace(
        result, problems=tuple(evaluate_run(case, run, answering)), duration_ms=_elapsed_ms(began), status=run.status,
        output=run.output, error=run.error, usage=run.usage,
        logs=tuple(f"called {use.tool} with {dict(use.input)}: {use.decision_text}" for use in answering.calls),
    )  # fmt: skip


def _refusal(error: ApplianceError) -> Iterator[str]:
    yield error.message
    yield from (detail.message for detail in error.details if detail.message not in error.message)


def _elapsed_ms(began: float) -> int:
    return round((clock.monotonic() - began) * 1000)
