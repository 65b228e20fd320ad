"""Finds what refers to an integration, an LLM profile or a secret of a tenant, and would stop working without it."""

import fnmatch
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from appliance.agents import versions as agents
from appliance.core.scope import TenantScope
from appliance.governance.policies import active_policies
from appliance.processes.definitions import publications
from appliance.solutions.kinds.changes import read_all
from appliance.solutions.referrers import Referrers
from appliance.webapps.access import parse_access

Kind = Literal["integration", "llm-profile", "secret"]
Name = tuple[str, str]
_SECRET = re.compile(r"\bsecrets\.([A-Za-z_]\w{0,62})", re.ASCII)


@dataclass(frozen=True)
class Dependent:
    """Something that refers to it: `kind` is process, agent, policy, alert, webapp, integration, llm-profile or setting."""

    kind: str
    id: str
    name: str


def find_dependents(referrers: Referrers, scope: TenantScope, kind: Kind, name: str) -> list[Dependent]:
    """Everything that refers to it, processes first."""
    dependents = [*_processes(scope, (kind, name)), *_agents(scope, kind, name)]
    if kind == "integration":
        dependents += [*_policies(scope, name), *_alerts(referrers, scope, name)]
        if referrers.email_integration == name:
            dependents.append(Dependent("setting", "approvals.email_integration", "approvals.email_integration"))
    if kind != "llm-profile":
        dependents += _webapps(referrers, scope, (kind, name))
    if kind == "secret":
        rows = read_all(lambda page: referrers.integrations.list_integrations(scope, page))
        dependents += [Dependent("integration", r.slug, r.name) for r in rows if (kind, name) in set(_secrets_in(r.settings))]
    if kind != "integration":
        dependents += _profiles(referrers, scope, (kind, name))
    return dependents


def _alerts(referrers: Referrers, scope: TenantScope, slug: str) -> Iterator[Dependent]:
    """Alerts that notify through the integration or watch it."""
    for row in read_all(lambda page: referrers.alerts.list_alerts(scope, page)):
        if slug in (row.condition.get("integration"), *(action.get("integration") for action in row.actions)):
            yield Dependent("alert", row.id, row.name)


def _webapps(referrers: Referrers, scope: TenantScope, reference: Name) -> Iterator[Dependent]:
    """WebApps whose published version needs it for access."""
    for app in read_all(lambda page: referrers.webapps.list_apps(scope, page)):
        if app.published_version is None:
            continue
        access = parse_access(referrers.webapps.get_version(scope, app.id, app.published_version).settings.access)
        if reference in (("secret", access.secret), ("integration", access.integration)):
            yield Dependent("webapp", app.id, app.name or app.id)


def _profiles(referrers: Referrers, scope: TenantScope, reference: Name) -> Iterator[Dependent]:
    for profile in read_all(lambda page: referrers.llm.list_profiles(scope, page)):
        references = {("secret", profile.reference), *(("llm-profile", each) for each in profile.profile.fallbacks)}
        if reference in references:
            yield Dependent("llm-profile", profile.slug, profile.profile.name or profile.slug)


def _processes(scope: TenantScope, reference: Name) -> Iterator[Dependent]:
    """Processes whose draft or published version refers to it: either may run next."""
    mentions = publications.list_mentions(scope, reference[1])
    names = {id_: name for id_, name, definition in mentions if reference in set(list_references(definition))}
    for process_id, name in names.items():
        yield Dependent("process", process_id, name)


def _agents(scope: TenantScope, kind: Kind, name: str) -> Iterator[Dependent]:
    if kind == "secret":
        return
    for agent in read_all(lambda page: agents.list_agents(scope, page)):
        definition = agents.get_version(scope, agent.id).definition
        if name in ([definition.model] if kind == "llm-profile" else [slug for slug, _ in definition.actions]):
            yield Dependent("agent", agent.id, agent.name)


def _policies(scope: TenantScope, slug: str) -> Iterator[Dependent]:
    """Policies with a rule about this integration; rules about every integration do not count."""
    for policy in active_policies(scope):
        globs = [glob for rule in policy.document.get("rules", ()) for glob in rule.get("integrations") or () if glob != "*"]
        if any(fnmatch.fnmatchcase(slug, glob) for glob in globs):
            yield Dependent("policy", policy.name, policy.name)


def list_references(value: Any) -> Iterator[Name]:
    """(kind, name) of what the steps, triggers and grants of a definition refer to; the definition may be incomplete."""
    if isinstance(value, list):
        for each in value:
            yield from list_references(each)
    if not isinstance(value, Mapping):
        return
    for key, inner in value.items():
        if key == "integration" and isinstance(inner, Mapping):
            yield "integration", str(inner.get("use"))
        elif key == "llm" and isinstance(inner, Mapping):
            yield "llm-profile", str(inner.get("profile"))
        elif key == "verify" and isinstance(inner, Mapping):
            yield from _secrets_in(inner.get("secret"))
        elif key == "grants" and isinstance(inner, Mapping):
            yield from _grant_references(inner)
        yield from list_references(inner)


def _grant_references(grants: Mapping[str, Any]) -> Iterator[Name]:
    for key, kind in (("integrations", "integration"), ("llm", "llm-profile"), ("secrets", "secret")):
        granted = grants.get(key)
        if isinstance(granted, Iterable) and not isinstance(granted, str):
            yield from ((kind, str(each)) for each in granted)


def _secrets_in(settings: Any) -> Iterator[Name]:
    """The secrets that settings refer to."""
    if isinstance(settings, Mapping):
        for each in settings.values():
            yield from _secrets_in(each)
    elif isinstance(settings, list):
        for each in settings:
            yield from _secrets_in(each)
    elif isinstance(settings, str):
        for name in _SECRET.findall(settings):
            yield "secret", name
