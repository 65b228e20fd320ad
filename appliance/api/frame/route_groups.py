"""The groups of routes in the API explorer, in the order people usually need them."""

from collections.abc import Mapping

FAMILIES: Mapping[str, str] = {
    "processes": "Definitions with their drafts and versions, executions of one process, tests, triggers and samples.",
    "executions": "Executions of all processes: find them, cancel or retry several at once.",
    "datapool": "Collections and their entities: query, write, import and export.",
    "documents": "Files with folders, metadata, reviews, retention, shares and publication.",
    "uploads": "Large documents, sent in parts that continue where the last one ended.",
    "integrations": "Connections to foreign systems, their actions and calls.",
    "connectors": "What is installed to connect foreign systems, with settings and actions.",
    "webapps": "WebApps with versions, routes, domains and traffic.",
    "approvals": "Requests that wait for a person's decision.",
    "logs": "Log lines, analytics, queues, failures, alerts and the audit trail.",
    "webhooks": "Delivery of events to other systems.",
    "agents": "Agents, their versions and runs.",
    "skills": "Knowledge for agents, as folders in the Agent Skills format.",
    "llm-profiles": "Language models with their credentials, limits and usage.",
    "policies": "Rules for tool and integration calls: drafts, versions, evaluation and replay.",
    "kill-switches": "Switch off the tenant, agents, tools or integrations at once.",
    "solutions": "Plan, apply and export everything of a tenant as one folder.",
    "secrets": "Sealed values that integrations, triggers and processes use; they are never read back.",
    "keys": "API keys: issue, rotate, adopt, revoke.",
    "service-accounts": "Programs as members of this tenant, whose keys depend on no person.",
    "members": "People who may work in this tenant, and their roles.",
    "invitations": "Links with which people join the tenant.",
    "quotas": "What this tenant may use, and what it has used.",
    "tenant": "The tenant itself and its settings.",
    "appliance": "The appliance itself, on its base host and with its own keys: tenants, users, backups, health and audit trail.",
}


def tags() -> list[dict[str, str]]:
    """The groups as the `tags` of the OpenAPI document."""
    return [{"name": name, "description": description} for name, description in FAMILIES.items()]
