"""The places in a tenant that currently use secrets, for choosing where a secret may be sent."""

from collections.abc import Iterator

from appliance.core.errors import NotFound, ValidationFailed
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.integrations import Integration, secret_names
from appliance.llm import service as llm
from appliance.processes.definitions import DefinitionProblems, publications, version_diff
from appliance.processes.host import find_secret_use
from appliance.solutions.kinds.changes import read_all
from appliance.solutions.referrers import Referrers
from appliance.tenants.grants import KINDS, Kind, SecretDestination, place_of_hosts, secret_bindings
from appliance.webapps.access import Access, parse_access
from appliance.webapps.access import destination_of as place_of_access


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


def unbound_uses(referrers: Referrers, scope: TenantScope, name: str) -> list[SecretDestination]:
    """Where a secret is used without being allowed there."""
    return [place for place in _list_uses(referrers, scope, name) if secret_bindings.find_unbound(scope, [name], place)]


def _list_uses(referrers: Referrers, scope: TenantScope, name: str) -> Iterator[SecretDestination]:
    """Where a secret is sent or would be sent; by processes and WebApps, those of the published version."""
    for integration in read_all(lambda page: referrers.integrations.list_integrations(scope, page)):
        if _is_used_by(referrers, integration, name):
            yield referrers.integrations.destination(scope, integration.slug)
    for profile in read_all(lambda page: referrers.llm.list_profiles(scope, page)):
        if profile.reference == name:
            yield llm.destination_of(profile.slug, profile.profile)
    for process_id, definition, files in publications.list_published_mentions(scope, name):
        yield from _list_uses_in_process(process_id, (definition, files), name)
    for app in read_all(lambda page: referrers.webapps.list_apps(scope, page)):
        if app.published_version is not None:
            access = _access(referrers, scope, app.id, app.published_version)
            if access.secret == name:
                yield place_of_access(app.id, access)


def _is_used_by(referrers: Referrers, row: Integration, name: str) -> bool:
    return referrers.integrations.find_connector(row.connector) is not None and name in secret_names(row.settings)


def _list_uses_in_process(process_id: str, content: version_diff.Content, name: str) -> Iterator[SecretDestination]:
    try:
        use = find_secret_use(*content)
    except DefinitionProblems:  # published by an earlier release and invalid in this one, so it cannot run
        return
    if name in use.granted:
        yield SecretDestination("process", process_id)
    if name in use.verifying:
        yield SecretDestination("webhook", process_id)
