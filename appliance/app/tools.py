"""Registers the tools that agents and MCP clients can call; each uses the same services as the REST API."""

from appliance.agents.tools import (
    DocumentTools,
    HumanTools,
    IntegrationTools,
    LogTools,
    ProcessTools,
    SkillTools,
    WebAppTools,
    entity_tools,
)
from appliance.api import make_shapes
from appliance.core.scope import TenantScope
from appliance.governance import Governor
from appliance.governance.approvals import ActionApprovals
from appliance.web import Services


def add_tools(services: Services, governor: Governor, actions: ActionApprovals) -> None:
    """Add every tool to the toolbox."""
    shapes, toolbox, config = make_shapes(), services.agents.tools, services.config

    def review_url(scope: TenantScope, approval_id: str) -> str:
        return f"{config.tenant_url(scope.tenant_id)}/console/approvals/{approval_id}"

    for tools in (
        SkillTools(services.agents.skills).tools(),
        IntegrationTools(services.integrations, services.governance.executor, governor, shapes.preview).tools(),
        HumanTools(actions, governor, toolbox.action_of, review_url, services.governance.executor.submit).tools(),
        ProcessTools(services.processes, shapes.execution).tools(),
        entity_tools(),
        DocumentTools(services.documents.files, shapes.document).tools(),
        LogTools(shapes.line).tools(),
        WebAppTools(services.webapps.publishing, shapes.version, shapes.publication).tools(),
    ):
        for tool in tools:
            toolbox.add(tool)
