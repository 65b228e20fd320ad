"""Adds every declared page of the console to the application."""

from collections import defaultdict
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from quart import Blueprint, Quart, Response

from appliance.solutions.services import Services

from . import (
    about,
    account,
    agents,
    alerts,
    appliance,
    appliance_tenants,
    approvals,
    audit,
    backups,
    bulk,
    certificates,
    confirmations,
    connecting,
    datapool,
    deploying,
    document_files,
    document_list,
    documents,
    domains,
    dry_runs,
    editor,
    entities,
    executions,
    failures,
    home,
    importing,
    integration_calls,
    integration_edit,
    integrations,
    invitations,
    keys,
    kill_switches,
    llm_profiles,
    logs,
    members,
    monitor,
    policies,
    policy_decisions,
    processes,
    replay,
    retention,
    retry_plan,
    schemas,
    shares,
    sign_in,
    skills,
    step_runs,
    tenant_export,
    tenant_reset,
    tenant_secrets,
    tenant_settings,
    traffic,
    trying,
    versions,
    visiting,
    webapps,
)
from .dispatch import Edge
from .rendering import Renderer
from .routing import BASE_PAGES, PAGES, BaseRoute, PageRoute

AREAS = (
    about, account, agents, alerts, appliance, appliance_tenants, approvals, audit, backups, bulk, certificates, confirmations,
    connecting,
    datapool, deploying, document_files, document_list, documents, domains, dry_runs, editor, entities, executions, failures,
    home, importing, integration_calls, integration_edit, integrations, invitations, keys, kill_switches, llm_profiles, logs,
    members, monitor, policies, policy_decisions, processes, replay, retention, retry_plan, schemas, shares, sign_in, skills,
    step_runs, tenant_export, tenant_reset, tenant_secrets, tenant_settings, traffic, trying, versions, visiting, webapps,
)  # fmt: skip


def register(quart: Quart, services: Services) -> None:
    """Add the console: its pages on tenants' hosts, sign-in on the base host."""
    templates = Path(str(quart.template_folder))
    edge = Edge(services, Renderer(templates, templates.parent / "static", services.config))
    blueprint = Blueprint("console", __name__)
    on_tenant: dict[str, dict[str, PageRoute]] = defaultdict(dict)
    for page in PAGES:
        on_tenant[page.path][page.method] = page
    on_base: dict[str, dict[str, BaseRoute]] = defaultdict(dict)
    for base_page in BASE_PAGES:
        on_base[base_page.path][base_page.method] = base_page
    on_tenant["/console/<path:rest>"] = {}
    for path, routes in on_tenant.items():
        blueprint.add_url_rule(path, f"tenant {path}", _tenant_view(edge, routes), methods=["GET", "POST"])
    for path, base_routes in on_base.items():
        blueprint.add_url_rule(path, f"base {path}", _base_view(edge, base_routes), methods=["GET", "POST"])
    quart.register_blueprint(blueprint)


def _tenant_view(edge: Edge, routes: dict[str, PageRoute]) -> Callable[..., Awaitable[Response]]:
    async def view(**path_args: Any) -> Response:
        return await edge.tenant(routes, path_args)

    return view


def _base_view(edge: Edge, routes: dict[str, BaseRoute]) -> Callable[..., Awaitable[Response]]:
    async def view() -> Response:
        return await edge.base(routes)

    return view
