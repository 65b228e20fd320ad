"""The places in a tenant that currently use secrets, for choosing where a secret may be sent."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from appliance.core.errors import NotFound, ValidationFailed
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.integrations import Integration, secret_names
from appliance.llm import StoredProfile
from appliance.llm import service as llm
from appliance.processes import Process
from appliance.processes.definitions import DefinitionProblems, versions
from appliance.processes.host import find_secret_use
from appliance.solutions.kinds.changes import read_all
from appliance.solutions.referrers import Referrers
from appliance.tenants import is_secret_name
from appliance.tenants.grants import KINDS, Kind, SecretDestination, place_of_hosts, secret_bindings
from appliance.webapps import WebApp
from appliance.webapps.access import Access, parse_access
from appliance.webapps.access import destination_of as place_of_access


@dataclass(frozen=True)
class SecretUse:
    """A secret that a stored item sends, or would send, to a place."""

    name: str
    place: SecretDestination


def find_place(referrers: Referrers, scope: TenantScope, kind: Kind, target: str, hosts: str = "") -> SecretDestination:
    """The current place of this kind and name; with `hosts`, an integration or profile for exactly these, even if it does not
    exist.

    ValidationFailed if there is none.
    """
    if kind not in KINDS:
        raise ValidationFailed(Sentence("kind must be one of %(kinds)s", kinds=', '.join(KINDS)), pointer="/kind")
    if hosts:
        if kind not in ("integration", "llm-profile"):
            raise ValidationFailed("only integrations and LLM profiles have hosts; omit `hosts`", pointer="/hosts")
        return place_of_hosts(kind, target, hosts)
    if kind in ("process", "webhook"):
        return SecretDestination(kind, target)
    try:
        place = _place(referrers, scope, kind, target)
    except NotFound as error:
        advice = "; create it first, or give its `hosts` too" if kind == "integration" else "; create it first"
        raise ValidationFailed(Sentence("%(message)s%(more)s", message=error.message, more=advice), pointer="/target") from error
    return place


def _place(referrers: Referrers, scope: TenantScope, kind: Kind, target: str) -> SecretDestination:
    if kind == "integration":
        return referrers.integrations.destination(scope, target)
    if kind == "llm-profile":
        return llm.destination_of(target, referrers.llm.get_profile(scope, target).profile)
    access = _access(referrers, scope, target, referrers.webapps.get_app(scope, target).published_version)
    return place_of_access(target, access)


def _access(referrers: Referrers, scope: TenantScope, app: str, version: int | None) -> Access:
    if version is None:
        raise NotFound(Sentence("the WebApp %(app)s has no published version", app=app))
    return parse_access(referrers.webapps.get_version(scope, app, version).settings.access)


def list_uses(referrers: Referrers, scope: TenantScope) -> Iterator[SecretUse]:
    """Every use of a secret in the tenant; for processes and WebApps those of the published version."""
    for integration in read_all(lambda page: referrers.integrations.list_integrations(scope, page)):
        yield from _of_integration(referrers, scope, integration)
    for profile in read_all(lambda page: referrers.llm.list_profiles(scope, page)):
        yield from _of_profile(profile)
    for process in read_all(lambda page: versions.list_processes(scope, page)):
        yield from _of_process(scope, process)
    for app in read_all(lambda page: referrers.webapps.list_apps(scope, page)):
        yield from _of_webapp(referrers, scope, app)


def unbound_uses(referrers: Referrers, scope: TenantScope, name: str) -> list[SecretDestination]:
    """Where a secret is used without being allowed there."""
    uses = [use for use in list_uses(referrers, scope) if use.name == name]
    return [use.place for use in uses if secret_bindings.find_unbound(scope, [name], use.place)]


def _of_integration(referrers: Referrers, scope: TenantScope, row: Integration) -> Iterator[SecretUse]:
    if referrers.integrations.find_connector(row.connector) is not None and (names := secret_names(row.settings)):
        yield from _to_uses(names, referrers.integrations.destination(scope, row.slug))


def _of_profile(profile: StoredProfile) -> Iterator[SecretUse]:
    if profile.reference is not None:
        yield SecretUse(profile.reference, llm.destination_of(profile.slug, profile.profile))


def _of_process(scope: TenantScope, row: Process) -> Iterator[SecretUse]:
    if row.published_version is None:
        return
    version = versions.get_version(scope, row.id, row.published_version)
    try:
        use = find_secret_use(version.definition, version.files)
    except DefinitionProblems:  # published by an earlier release and invalid in this one, so it cannot run
        return
    yield from _to_uses(use.granted, SecretDestination("process", row.id))
    yield from _to_uses(use.verifying, SecretDestination("webhook", row.id))


def _of_webapp(referrers: Referrers, scope: TenantScope, app: WebApp) -> Iterator[SecretUse]:
    if app.published_version is not None:
        access = _access(referrers, scope, app.id, app.published_version)
        yield from _to_uses([access.secret] if access.secret else [], place_of_access(app.id, access))


def _to_uses(names: Iterable[str], place: SecretDestination) -> Iterator[SecretUse]:
    """The uses of these names at a place, without names that no secret can have (a grant may contain them)."""
    yield from (SecretUse(name, place) for name in sorted(names) if is_secret_name(name))
