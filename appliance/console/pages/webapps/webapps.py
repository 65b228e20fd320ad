"""Pages of WebApps: the list, and one WebApp with its versions: preview, publish, roll back, unpublish, delete."""

from dataclasses import dataclass

from appliance.console.frame.people import Names
from appliance.console.frame.routing import Answer, Page, Redirect, Visit, page
from appliance.console.pages.govern.confirmations import permission_lines
from appliance.core.errors import ApplianceError, NotFound, ValidationFailed
from appliance.core.pages import MAX_LIMIT, PageRequest
from appliance.core.sentences import Sentence
from appliance.tenants.grants import may_decide
from appliance.webapps.publishing import previews, served_grants


@dataclass(frozen=True)
class Preview:
    """A link to preview a version, which expires at `expires_at` (epoch ms)."""

    number: int
    url: str
    expires_at: int


@page("GET", "/webapps", scope="webapps.read")
def list_webapps(visit: Visit) -> Answer:
    """The tenant's WebApps by name."""
    return apps_page(visit)


def apps_page(visit: Visit, problem: ApplianceError | None = None) -> Page:
    """The list, with the error of creating a WebApp if there was one."""
    result = visit.services.webapps.apps.list_apps(visit.scope, visit.page(limit=100, sort="name"))
    rows = [(app, _address(visit, app.id)) for app in result.items]
    sent = {name: visit.request.field(name) for name in ("id", "name")}
    values = {"rows": rows, "next_cursor": result.next_cursor, "problem": problem, "sent": sent}
    return Page("webapps.html", values, problem.status if problem else 200)


def _address(visit: Visit, app_id: str) -> str:
    return visit.services.config.webapp_url(visit.scope.tenant_id, app_id)


@page("GET", "/webapps/<app>", scope="webapps.read")
def show_webapp(visit: Visit, app: str) -> Answer:
    """One WebApp: its URLs and its versions, newest first."""
    return app_page(visit, app)


def app_page(visit: Visit, app_id: str, problem: ApplianceError | None = None, preview: Preview | None = None) -> Page:
    """One WebApp; optionally with an error, or with the link of a new preview."""
    webapps, publishing = visit.services.webapps.apps, visit.services.webapps.publishing
    app = webapps.get_app(visit.scope, app_id)
    versions = webapps.list_versions(visit.scope, app_id, visit.page(limit=20))
    domains = visit.services.webapps.domains.list_domains(visit.scope, app_id, PageRequest(MAX_LIMIT))
    values = {
        "app": app, "address": _address(visit, app_id), "versions": versions.items, "next_cursor": versions.next_cursor,
        "names": Names(visit), "problem": problem, "preview": preview, "message": visit.request.field("message"),
        "before": webapps.version_before(visit.scope, app_id), "version_count": webapps.count_versions(visit.scope, app_id),
        "hosts": [domain.host for domain in domains.items],
        "reach": permission_lines(access) if (access := served_grants.required_access_of_published(visit.scope, app_id)) else [],
        "grant": served_grants.find_served_grant(visit.scope, app_id), "may_decide": may_decide(visit.scope),
        "is_suspended": served_grants.is_suspended(served_grants.find_served(visit.scope, app_id).allowed_until),
        "publications": publishing.list_publications(visit.scope, app_id, [row.number for row in versions.items]),
    }  # fmt: skip
    return Page("webapp.html", values, problem.status if problem else 200)


@page("POST", "/webapps/<app>/publish", scope="webapps.publish")
def publish_webapp(visit: Visit, app: str) -> Answer:
    """Publish a version, unless another one has been published since the page was opened."""
    try:
        current = _number(visit, "current")
        visit.services.webapps.publishing.publish_version(visit.scope, app, _number(visit, "version"), if_current=current)
    except ApplianceError as refusal:
        return app_page(visit, app, refusal)
    return Redirect(f"/console/webapps/{app}")


@page("POST", "/webapps/<app>/preview", scope="webapps.write")
def preview_webapp(visit: Visit, app: str) -> Answer:
    """Create a preview link to a version, and show it."""
    try:
        number = _number(visit, "version")
        preview = previews.preview_version(visit.scope, visit.services.sealer, app, number)
    except ApplianceError as refusal:
        return app_page(visit, app, refusal)
    address = visit.services.config.webapp_url(visit.scope.tenant_id, app, number)
    return app_page(visit, app, preview=Preview(number, preview.at(address), preview.expires_at))


def _number(visit: Visit, name: str) -> int:
    text = visit.request.field(name)
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise ValidationFailed(Sentence("`%(name)s` must be a version number; choose a version on the page", name=name))
    return int(text)


@page("POST", "/webapps/<app>/rollback", scope="webapps.publish")
def roll_back_webapp(visit: Visit, app: str) -> Answer:
    """Publish the chosen earlier version again."""
    try:
        visit.services.webapps.apps.roll_back(visit.scope, app, _number(visit, "version"))
    except ApplianceError as refusal:
        return app_page(visit, app, refusal)
    return Redirect(f"/console/webapps/{app}")


@page("POST", "/webapps/<app>/unpublish", scope="webapps.publish")
def unpublish_webapp(visit: Visit, app: str) -> Answer:
    """Unpublish the WebApp."""
    visit.services.webapps.apps.unpublish_app(visit.scope, app)
    return Redirect(f"/console/webapps/{app}")


@page("POST", "/webapps/<app>/withdraw", scope="keys.write")
def withdraw_webapp_grant(visit: Visit, app: str) -> Answer:
    """Withdraw the permissions granted to the WebApp, and unpublish it."""
    served_grants.revoke(visit.scope, visit.services.webapps.apps, app, visit.request.field("digest"))
    return Redirect(f"/console/webapps/{app}")


@page("POST", "/webapps/<app>/delete", scope="webapps.write")
def delete_webapp(visit: Visit, app: str) -> Answer:
    """Delete the app with its versions; a published app only with the field `force`."""
    try:
        visit.services.webapps.apps.delete_app(visit.scope, app, force=visit.request.field("force") == "yes")
    except NotFound:
        raise
    except ApplianceError as refusal:
        return app_page(visit, app, refusal)
    return Redirect("/console/webapps")
