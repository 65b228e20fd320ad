"""What of a tenant names an integration, an LLM profile or a secret, and so stops working without it."""

import fnmatch
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from appliance.agents import versions as agents
from appliance.core.scope import TenantScope
from appliance.governance.policies.service import active_policies
from appliance.integrations.service import Integrations
from appliance.llm.service import LanguageModels
from appliance.processes import versions
from appliance.solutions.changes import read_all

Kind = Literal["integration", "llm-profile", "secret"]
Name = tuple[str, str]
_SECRET = re.compile(r"\bsecrets\.([A-Za-z_]\w{0,62})", re.ASCII)


@dataclass(frozen=True)
class Dependent:
    """Something that names it: `kind` is process, agent, policy, integration or llm-profile."""

    kind: str
    id: str
    name: str


def dependents_of(
    scope: TenantScope, kind: Kind, name: str, integrations: Integrations | None = None, models: LanguageModels | None = None
) -> list[Dependent]:
    """Everything that names it, processes first; what integrations and profiles name is told where these are given."""
    found = [*_processes(scope, (kind, name)), *_agents(scope, kind, name)]
    if kind == "integration":
        found += _policies(scope, name)
    if integrations is not None:
        rows = read_all(lambda page: integrations.list_integrations(scope, page))
        found += [Dependent("integration", r.slug, r.name) for r in rows if (kind, name) in set(_references(r.settings))]
    if models is not None:
        for profile in read_all(lambda page: models.list_profiles(scope, page)):
            named = {("secret", profile.reference), *(("llm-profile", each) for each in profile.profile.fallbacks)}
            if (kind, name) in named:
                found.append(Dependent("llm-profile", profile.slug, profile.profile.name or profile.slug))
    return found


def _processes(scope: TenantScope, wanted: Name) -> Iterator[Dependent]:
    """Drafts and published versions alike: either may be what runs next."""
    for row in read_all(lambda page: versions.list_processes(scope, page)):
        definitions = [row.definition]
        if row.published_version is not None:
            definitions.append(versions.get_version(scope, row.id, row.published_version).definition)
        if any(wanted in set(names_in(each)) for each in definitions):
            yield Dependent("process", row.id, row.name)


def _agents(scope: TenantScope, kind: Kind, name: str) -> Iterator[Dependent]:
    if kind == "secret":
        return
    for agent in read_all(lambda page: agents.list_agents(scope, page)):
        definition = agents.get_version(scope, agent.id).definition
        if name in ([definition.model] if kind == "llm-profile" else [slug for slug, _ in definition.actions]):
            yield Dependent("agent", agent.id, agent.name)


def _policies(scope: TenantScope, slug: str) -> Iterator[Dependent]:
    """Policies with a rule about it; one about every integration is not about this one."""
    for policy in active_policies(scope):
        globs = [glob for rule in policy.document.get("rules", ()) for glob in rule.get("integrations") or () if glob != "*"]
        if any(fnmatch.fnmatchcase(slug, glob) for glob in globs):
            yield Dependent("policy", policy.name, policy.name)


def names_in(value: Any) -> Iterator[Name]:
    """(kind, name) of what a definition's steps, triggers and grants name, whether the definition is finished or not."""
    if isinstance(value, list):
        for each in value:
            yield from names_in(each)
    if not isinstance(value, Mapping):
        return
    for key, inner in value.items():
        if key == "integration" and isinstance(inner, Mapping):
            yield "integration", str(inner.get("use"))
        elif key == "llm" and isinstance(inner, Mapping):
            yield "llm-profile", str(inner.get("profile"))
        elif key == "verify" and isinstance(inner, Mapping):
            yield "secret", str(inner.get("secret"))
        elif key == "grants" and isinstance(inner, Mapping):
            yield from _granted(inner)
        yield from names_in(inner)


def _granted(grants: Mapping[str, Any]) -> Iterator[Name]:
    for key, kind in (("integrations", "integration"), ("llm", "llm-profile"), ("secrets", "secret")):
        named = grants.get(key)
        yield from ((kind, str(each)) for each in (named if isinstance(named, Iterable) and not isinstance(named, str) else ()))


def _references(settings: Any) -> Iterator[Name]:
    """Secrets that settings refer to."""
    if isinstance(settings, Mapping):
        for each in settings.values():
            yield from _references(each)
    elif isinstance(settings, list):
        for each in settings:
            yield from _references(each)
    elif isinstance(settings, str):
        for name in _SECRET.findall(settings):
            yield "secret", name
