"""The families of routes, as the explorer lists them: what people begin with comes first."""

from collections.abc import Mapping

FAMILIES: Mapping[str, str] = {
    "processes": "Definitions with their drafts and versions, executions of one process, tests, triggers and samples.",
    "executions": "Executions of all processes: find them, cancel or retry several at once.",
    "datapool": "Collections and their entities: query, write, import and export.",
    "documents": "Files with folders, metadata, reviews, retention, shares and publication.",
    "integrations": "Connections to foreign systems, their actions and calls.",
    "webapps": "WebApps with versions, routes, domains and traffic.",
    "approvals": "Requests for a person's decision.",
    "logs": "Log lines, analytics, queues, failures, alerts and the audit trail.",
    "webhooks": "Deliveries of events to other systems.",
    "agents": "Agents, their versions and runs.",
    "skills": "What agents know, as folders in the Agent Skills format.",
    "llm-profiles": "Language models with their credentials, limits and use.",
    "policies": "Rules that tool and integration calls pass, their drafts, explanations and replays.",
    "kill-switches": "Stop integrations, agents and models at once.",
    "solutions": "Plan, apply and export everything of a tenant as one folder.",
    "secrets": "Sealed values that integrations and triggers refer to; they are never read back.",
    "keys": "API keys: issue, rotate, adopt, revoke.",
    "members": "Who may work in this tenant.",
    "invitations": "Links by which people join.",
    "tenant": "The tenant itself and its settings.",
}


def tags() -> list[dict[str, str]]:
    """As the `tags` of an OpenAPI document."""
    return [{"name": name, "description": description} for name, description in FAMILIES.items()]
