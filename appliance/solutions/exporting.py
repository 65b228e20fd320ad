"""Exports a tenant as the files of a solution folder; secrets are never exported."""

from collections.abc import Mapping
from typing import Any

from appliance.agents import versions as agents
from appliance.core import yaml12
from appliance.core.database import db
from appliance.core.scope import TenantScope
from appliance.datapool import service as datapool
from appliance.integrations import DEFAULT_CONCURRENCY, Integration, Integrations, open_settings
from appliance.processes.definitions import versions
from appliance.solutions.definition import PROCESS_FILE, ROOT_FILE
from appliance.solutions.kinds.changes import read_all
from appliance.solutions.kinds.policies import export_policies
from appliance.solutions.kinds.webapps import SolutionApp, write_app
from appliance.solutions.models import SolutionItem
from appliance.solutions.planning import META, strip_markers

_READS = ("entities.read", "integrations.read", "processflow.read")


def export_solution(
    scope: TenantScope, integrations: Integrations, webapps: Mapping[str, SolutionApp] | None = None, *, drafts: bool = False
) -> dict[str, bytes]:
    """The tenant's collections, integrations, agents, policies, processes and these WebApps as files by path.

    Exports published versions, or with `drafts` all drafts; a process that was never published is left out without
    `drafts`.  ScopeMissing.
    """
    for name in _READS:
        scope.require(name)
    files: dict[str, str] = {}
    with db.snapshot():
        connectors: set[str] = set()
        secrets: set[str] = set()
        for collection in read_all(lambda page: datapool.list_collections(scope, page)):
            document = {member: value for member, value in collection.items() if member not in META}
            files[f"collections/{collection['name']}.yaml"] = yaml12.dump(document)
        for integration in read_all(lambda page: integrations.list_integrations(scope, page)):
            files[f"integrations/{integration.slug}.yaml"] = yaml12.dump(_integration(integration))
            connectors.add(integration.connector)
            open_settings(integration.settings, {}, secrets.add)
        for agent in read_all(lambda page: agents.list_agents(scope, page)):
            scope.require("agents.read")
            files[f"agents/{agent.id}.yaml"] = yaml12.dump(agents.get_version(scope, agent.id).definition.document())
        for name, policy in export_policies(scope, drafts=drafts):
            files[f"policies/{name}.yaml"] = yaml12.dump(policy)
        for process in read_all(lambda page: versions.list_processes(scope, page)):
            files |= _process(scope, process, drafts)
    apps = dict(webapps or {})
    secrets |= {app.access.secret for app in apps.values() if app.access.secret}
    app_files = {path: content for app_id, app in sorted(apps.items()) for path, content in write_app(app_id, app).items()}
    root = {"name": solution_name(scope), "needs": {"connectors": sorted(connectors), "secrets": sorted(secrets)}}
    return {path: text.encode() for path, text in {ROOT_FILE: yaml12.dump(root), **files}.items()} | app_files


def solution_name(scope: TenantScope) -> str:
    """The name of the solution that the tenant's items came from; the tenant's id if there are several or none."""
    names = {row.solution for row in scope.select(SolutionItem, SolutionItem.solution)}
    return names.pop() if len(names) == 1 else scope.tenant_id


def _integration(integration: Integration) -> dict[str, Any]:
    usual = integration.concurrency == DEFAULT_CONCURRENCY
    return {
        "name": integration.name, "connector": integration.connector, "settings": strip_markers(integration.settings),
        **({} if usual else {"concurrency": integration.concurrency}),
    }  # fmt: skip


def _process(scope: TenantScope, row: Any, drafts: bool) -> dict[str, str]:
    if not drafts and row.published_version is None:
        return {}
    source = row if drafts else versions.get_version(scope, row.id, row.published_version)
    folder = f"processes/{row.id}"
    return {f"{folder}/{PROCESS_FILE}": yaml12.dump(source.definition)} | {
        f"{folder}/{path}": text for path, text in source.files.items()
    }
