"""Registers the tools that agents and MCP clients can call; each uses the same services as the REST API."""

from collections.abc import Iterator
from functools import partial

from appliance.agents.tools import (
    DocumentTools,
    HumanTools,
    IntegrationTools,
    LogTools,
    ProcessTools,
    SkillTools,
    Tool,
    WebAppTools,
    entity_tools,
)
from appliance.core.scope import TenantScope
from appliance.governance import Governor
from appliance.governance.approvals import ActionApprovals
from appliance.web import Services


def add_tools(services: Services, governor: Governor, actions: ActionApprovals) -> None:
    """Add every tool to the toolbox, when the tools are first needed: many appliances have no agents."""
    services.agents.tools.add_later(partial(_make_tools, services, governor, actions))


def _make_tools(services: Services, governor: Governor, actions: ActionApprovals) -> Iterator[Tool]:
    from appliance.api import make_shapes  # its views take long to load, which a start can do without

    shapes, toolbox, config = make_shapes(), services.agents.tools, services.config

    def review_url(scope: TenantScope, approval_id: str) -> str:
        return f"{config.tenant_url(scope.tenant_id)}/console/approvals/{approval_id}"

    yield from SkillTools(services.agents.skills).tools()
    yield from IntegrationTools(services.integrations, services.governance.executor, governor, shapes.preview).tools()
    yield from HumanTools(actions, governor, toolbox.action_of, review_url, services.governance.executor.submit).tools()
    yield from ProcessTools(services.processes, shapes.execution).tools()
    yield from entity_tools()
    yield from DocumentTools(services.documents.files, shapes.document).tools()
    yield from LogTools(shapes.line).tools()
    yield from WebAppTools(services.webapps.publishing, shapes.version, shapes.publication).tools()
