"""Create WebApps, deploy versions, and compare a version with another one."""

from appliance.console.frame.routing import Answer, Page, Redirect, Visit, page
from appliance.core.errors import ApplianceError, NotFound, ValidationFailed
from appliance.core.sentences import Sentence
from appliance.webapps import NewApp

from .webapps import app_page, apps_page

ARCHIVE = "file"
MOST_PATHS = 200


@page("POST", "/webapps", scope="webapps.write")
def create_webapp(visit: Visit) -> Answer:
    """Create a WebApp, without any version."""
    field = visit.request.field
    try:
        webapp = visit.services.webapps.apps.create_app(visit.scope, NewApp(field("id").strip(), field("name").strip()))
    except ApplianceError as refusal:
        return apps_page(visit, refusal)
    return Redirect(f"/console/webapps/{webapp.id}")


@page("POST", "/webapps/<app>/versions", scope="webapps.write", takes_files=True)
def deploy_version(visit: Visit, app: str) -> Answer:
    """Create a version from the uploaded archive, which can then be previewed and published."""
    visit.services.webapps.apps.get_app(visit.scope, app)
    sent = visit.request.file(ARCHIVE)
    try:
        if sent is None:
            raise ValidationFailed("no archive was chosen; choose a zip or tar.gz of the built files", pointer="/file")
        message = visit.request.field("message").strip()
        if len(message) > 500:
            raise ValidationFailed("a message has at most 500 characters", pointer="/message")
        with sent.received.open() as file:
            version = visit.services.webapps.apps.deploy_archive(visit.scope, app, file, message)
    except NotFound:
        raise
    except ApplianceError as refusal:
        return app_page(visit, app, refusal)
    return Redirect(f"/console/webapps/{app}/versions/{version.number}")


@page("GET", "/webapps/<app>/versions/<number>", scope="webapps.read")
def show_version(visit: Visit, app: str, number: str) -> Answer:
    """One version, with the files and routes that it adds, changes and removes compared with another one."""
    webapps, against = visit.services.webapps.apps, visit.request.args.get("against", "")
    version = webapps.get_version(visit.scope, app, _number(number))
    difference = webapps.compare_versions(visit.scope, app, version.number, _number(against) if against else None)
    before = webapps.get_version(visit.scope, app, difference.against) if difference.against else None
    routes = [dict(each) for each in version.settings.routes]
    previous_routes = [dict(each) for each in before.settings.routes] if before else []
    latest = webapps.list_versions(visit.scope, app, visit.page(limit=20)).items
    values = {
        "app": webapps.get_app(visit.scope, app), "version": version, "difference": difference, "most": MOST_PATHS,
        "others": [each.number for each in latest if each.number != version.number],
        "routes": [(each, each in previous_routes) for each in routes],
        "removed_routes": [each for each in previous_routes if each not in routes],
    }  # fmt: skip
    return Page("webapp_version.html", values)


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < len(text) < 10):
        raise NotFound(Sentence("this WebApp has no version %(text)s; choose one on its page", text=repr(text[:20])))
    return int(text)
