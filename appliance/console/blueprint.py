"""Registers every declared page of the console with the application."""

from collections import defaultdict
from functools import partial
from pathlib import Path

from quart import Blueprint, Quart

from appliance.web import Services, view

from .frame.dispatch import Dispatcher
from .frame.rendering import Renderer
from .frame.routing import BASE_PAGES, PAGES, BaseRoute, PageRoute
from .pages.agents import agents, skills
from .pages.datapool import datapool, entities, importing, schemas
from .pages.documents import document_files, document_list, documents, retention, shares
from .pages.govern import audit, confirmations, kill_switches, policies, policy_decisions
from .pages.integrations import connecting, integration_actions, integration_calls, integration_edit, integrations, llm_profiles
from .pages.operate import alerts, approvals, bulk, executions, failures, logs, monitor, replay, retry_plan, step_runs
from .pages.processes import dry_runs, editor, processes, versions
from .pages.settings import (
    about,
    account,
    account_factors,
    appliance,
    appliance_keys,
    appliance_tenants,
    backups,
    invitations,
    keys,
    master_key,
    members,
    personal_data,
    quotas,
    scim_tokens,
    service_accounts,
    tenant_export,
    tenant_reset,
    tenant_secrets,
    tenant_settings,
)
from .pages.start import (
    confirmation,
    home,
    new_factors,
    password_reset,
    provider_sign_in,
    proxy_sign_in,
    second_factor,
    sign_in,
    temporary_password,
    visiting,
)
from .pages.webapps import certificates, deploying, domains, traffic, webapps
from .provider_logout import receive_logout

__all__ = ["BASE_PAGES", "PAGES", "register"]  # the pages are complete as soon as this module is imported
AREAS = (
    about, account, account_factors, agents, alerts, appliance, appliance_keys, appliance_tenants, approvals, audit, backups, bulk,
    certificates, confirmations,
    confirmation, connecting,
    datapool, deploying, document_files, document_list, documents, domains, dry_runs, editor, entities, executions, failures,
    home, importing, integration_calls, integration_edit, integrations, invitations, keys, kill_switches, llm_profiles, logs,
    master_key, members, monitor, new_factors, password_reset, personal_data,
    policies, policy_decisions, processes, provider_sign_in, proxy_sign_in, quotas, replay, retention, retry_plan,
    schemas, scim_tokens, shares,
    second_factor, service_accounts, sign_in, skills, step_runs, temporary_password,
    tenant_export, tenant_reset, tenant_secrets, tenant_settings, traffic, integration_actions, versions, visiting,
    webapps,
)  # fmt: skip


def register(quart: Quart, services: Services) -> None:
    """Register the console's pages on the tenants' hosts, and sign-in on the base host."""
    templates = Path(str(quart.template_folder))
    edge = Dispatcher(services, Renderer(templates, templates.parent / "static", services.config))
    blueprint = Blueprint("console", __name__)
    on_tenant: dict[str, dict[str, PageRoute]] = defaultdict(dict)
    for page in PAGES:
        on_tenant[page.path][page.method] = page
    on_base: dict[str, dict[str, BaseRoute]] = defaultdict(dict)
    for base_page in BASE_PAGES:
        on_base[base_page.path][base_page.method] = base_page
    on_tenant["/console/<path:rest>"] = {}
    for path, routes in on_tenant.items():
        blueprint.add_url_rule(path, f"tenant {path}", view(partial(edge.handle_tenant, routes)), methods=["GET", "POST"])
    for path, base_routes in on_base.items():
        blueprint.add_url_rule(path, f"base {path}", view(partial(edge.handle_base, base_routes)), methods=["GET", "POST"])
    blueprint.add_url_rule("/oidc/<provider>/logout", "provider_logout", view(partial(receive_logout, services)), methods=["POST"])
    quart.register_blueprint(blueprint)
