"""New WebApps and new versions in the console, and what a version changes against another."""

from appliance.console.frame.routing import Answer, Page, Redirect, Visit, page
from appliance.core.errors import ApplianceError, NotFound, ValidationFailed
from appliance.core.sentences import Sentence
from appliance.webapps import NewApp

from .webapps import app_page, apps_page

ARCHIVE = "file"
MOST_PATHS = 200


@page("POST", "/webapps", scope="webapps.write")
def create_webapp(visit: Visit) -> Answer:
    """A new WebApp, of which nothing is published."""
    field = visit.asked.field
    try:
        made = visit.services.webapps.create_app(visit.scope, NewApp(field("id").strip(), field("name").strip()))
    except ApplianceError as refusal:
        return apps_page(visit, refusal)
    return Redirect(f"/console/webapps/{made.id}")


@page("POST", "/webapps/<app>/versions", scope="webapps.write", takes_files=True)
def deploy_version(visit: Visit, app: str) -> Answer:
    """A version of what is in the archive, ready to be looked at and published."""
    visit.services.webapps.get_app(visit.scope, app)
    sent = visit.asked.file(ARCHIVE)
    try:
        if sent is None:
            raise ValidationFailed("no archive was chosen; choose a zip or tar.gz of the built files", pointer="/file")
        message = visit.asked.field("message").strip()
        if len(message) > 500:
            raise ValidationFailed("a message has at most 500 characters", pointer="/message")
        with sent.received.open() as file:
            made = visit.services.webapps.deploy_archive(visit.scope, app, file, message)
    except NotFound:
        raise
    except ApplianceError as refusal:
        return app_page(visit, app, refusal)
    return Redirect(f"/console/webapps/{app}/versions/{made.number}")


@page("GET", "/webapps/<app>/versions/<number>", scope="webapps.read")
def show_version(visit: Visit, app: str, number: str) -> Answer:
    """One version: which files and routes it adds, changes and removes against another."""
    webapps, against = visit.services.webapps, visit.asked.args.get("against", "")
    found = webapps.get_version(visit.scope, app, _number(number))
    difference = webapps.compare_versions(visit.scope, app, found.number, _number(against) if against else None)
    before = webapps.get_version(visit.scope, app, difference.against) if difference.against else None
    routes = [dict(each) for each in found.settings.routes]
    earlier = [dict(each) for each in before.settings.routes] if before else []
    latest = webapps.list_versions(visit.scope, app, visit.page(limit=20)).items
    values = {
        "app": webapps.get_app(visit.scope, app), "version": found, "difference": difference, "most": MOST_PATHS,
        "others": [each.number for each in latest if each.number != found.number],
        "routes": [(each, each in earlier) for each in routes], "gone": [each for each in earlier if each not in routes],
    }  # fmt: skip
    return Page("webapp_version.html", values)


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < len(text) < 10):
        raise NotFound(Sentence("there is no version %(text)s of this WebApp; its page lists them", text=repr(text[:20])))
    return int(text)
