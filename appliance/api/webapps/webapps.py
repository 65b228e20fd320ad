"""/api/v1/webapps: WebApps and their versions."""

from pydantic import ValidationError

from appliance.api.frame.errors import from_pydantic
from appliance.api.frame.routing import Answer, Call, Json, route
from appliance.api.processes.processes import version_number
from appliance.api.tenants.tenants import DeletedView
from appliance.core.errors import (
    AlreadyExists,
    ApiKeyLeaked,
    Conflict,
    DefinitionInvalid,
    InvalidJson,
    InvalidRequest,
    PayloadTooLarge,
    ValidationFailed,
)
from appliance.core.json_text import load_json
from appliance.core.pages import PageRequest
from appliance.core.sentences import Sentence
from appliance.webapps import Difference, FileSpec, NewApp, NewVersion, Settings, Source
from appliance.webapps.files import validate_settings

from .traffic import read_usage
from .webapp_views import (
    ChangeWebApp,
    CreateWebApp,
    DeleteQuery,
    DiffQuery,
    NewVersionBody,
    NewVersionQuery,
    VersionListQuery,
    WebAppContentsView,
    WebAppContentView,
    WebAppDifferenceView,
    WebAppFileView,
    WebAppVersionView,
    WebAppView,
    WholeVersionView,
    WholeWebAppView,
    version_members,
    version_view,
    webapp_view,
)

LARGEST_MANIFEST = 4 << 20
MANIFEST = Json(
    "archive",
    "`application/json`: `{files: {path: {sha256, size}}, spa, redirects, headers, routes, access, message, "
    "source: {commit, ci_url}}`; "
    "or a zip or tar.gz of the files.",
)
CONTENT = Json("archive", "The bytes of one file.")
CONTENTS = Json("archive", "A zip, tar or tar.gz of `required` contents, under any names.")


@route("GET", "/webapps", scope="webapps.read", returns=WebAppView, listed=True)
def list_webapps(call: Call) -> object:
    """List the tenant's WebApps.

    Sorted by id unless `sort` says otherwise.
    """
    return call.services.webapps.apps.list_apps(call.scope, call.query.page).map(lambda app: webapp_view(call, app))


@route(
    "POST", "/webapps", scope="webapps.write", body=CreateWebApp, returns=WebAppView, status=201, errors=(AlreadyExists, Conflict)
)  # fmt: skip
def create_webapp(call: Call) -> Answer:
    """Create a WebApp.

    Its id becomes part of its host name. Nothing is served until a version is published.
    """
    body: CreateWebApp = call.body
    app = call.services.webapps.apps.create_app(call.scope, NewApp(body.id, body.name or "", body.description or ""))
    return Answer(webapp_view(call, app), 201, {"Location": f"/api/v1/webapps/{app.id}"})


@route("GET", "/webapps/{app}", scope="webapps.read", returns=WholeWebAppView)
def get_webapp(call: Call, app: str) -> WholeWebAppView:
    """Show a WebApp and its usage.

    The answer has its address, the number of the published version, and what it stores and sends beside its limits.
    """
    view = webapp_view(call, call.services.webapps.apps.get_app(call.scope, app))
    return WholeWebAppView(**view.model_dump(), usage=read_usage(call, app))


@route("PATCH", "/webapps/{app}", scope="webapps.write", body=ChangeWebApp, returns=WebAppView)
def change_webapp(call: Call, app: str) -> WebAppView:
    """Change the name or description of a WebApp.

    The id, which is part of its address, stays, and so do its versions.
    """
    return webapp_view(call, call.services.webapps.apps.change_app(call.scope, app, call.body.name, call.body.description))


@route("DELETE", "/webapps/{app}", scope="webapps.write", query=DeleteQuery, returns=DeletedView, errors=(Conflict,))
def delete_webapp(call: Call, app: str) -> DeletedView:
    """Delete a WebApp with its versions.

    Refused while one is published, unless forced. Its domains are released.
    """
    call.services.webapps.apps.delete_app(call.scope, app, force=call.query.force)
    return DeletedView(deleted=app)


@route(
    "POST", "/webapps/{app}/versions", scope="webapps.write", body=MANIFEST, query=NewVersionQuery, returns=WebAppVersionView,
    status=201, atomic=False,
    errors=(ApiKeyLeaked, Conflict, DefinitionInvalid, InvalidJson),
)  # fmt: skip
def create_webapp_version(call: Call, app: str) -> Answer:
    """Create a version of a WebApp.

    From a manifest, or as an archive in a single call. A manifest (JSON) starts an upload: send the `required` contents with
    `PUT …/blobs/{sha256}`, or many at once with `POST …/blobs`, then `POST …/finalize`. An archive is a complete version, which
    is ready when this call answers: an optional `app.yaml` (`spa`, `redirects`, `headers`, `routes`, `access`), and the content
    in `public/` or, without it, all other files.
    """
    media = (call.body.media_type or "").partition(";")[0].strip().lower()
    if media == "application/json":
        if call.query.message:
            raise InvalidRequest("a manifest has its own `message`; remove ?message= from the address")
        version = call.services.webapps.apps.create_version(call.scope, app, _read_manifest(call))
    else:
        with call.body.received.open() as file:
            version = call.services.webapps.apps.deploy_archive(call.scope, app, file, call.query.message)
    return Answer(version_view(version), 201, {"Location": f"/api/v1/webapps/{app}/versions/{version.number}"})


def _read_manifest(call: Call) -> NewVersion:
    received = call.body.received
    if received.size > LARGEST_MANIFEST:
        raise PayloadTooLarge(Sentence(
            "the manifest is larger than %(largest_manifest)s MiB; send the files as an archive instead",
            largest_manifest=LARGEST_MANIFEST >> 20,
        ))
    with received.open() as file:
        raw = file.read()
    load_json(raw, call.services.config.limits.json_depth)
    try:
        body = NewVersionBody.model_validate_json(raw)
    except ValidationError as error:
        raise from_pydantic(error) from error
    members = {name: getattr(body, name) for name in ("spa", "redirects", "headers", "routes", "access", "smoke")}
    settings: Settings = validate_settings(members)
    files = {path: FileSpec(file.sha256, file.size) for path, file in body.files.items()}
    if any("\0" in text for text in (body.message, body.source.commit, body.source.ci_url)):
        raise ValidationFailed("`message` or `source` contains a NUL character, which is not allowed", pointer="/message")
    return NewVersion(files, settings, body.message, Source(body.source.commit, body.source.ci_url))


@route(
    "GET", "/webapps/{app}/versions", scope="webapps.read", query=VersionListQuery, returns=WebAppVersionView, listed=True
)  # fmt: skip
def list_webapp_versions(call: Call, app: str) -> object:
    """List the versions of a WebApp, newest first.

    The one that is served now is `published`; those that were served before are `superseded`.
    """
    page = PageRequest(call.query.limit, call.query.cursor)
    return call.services.webapps.apps.list_versions(call.scope, app, page).map(version_view)


@route("GET", "/webapps/{app}/versions/{version}", scope="webapps.read", returns=WholeVersionView, errors=(ValidationFailed,))
def get_webapp_version(call: Call, app: str, version: str) -> WholeVersionView:
    """Show a version of a WebApp.

    With its files and the contents that must still be uploaded.
    """
    number = version_number(version)
    stored = call.services.webapps.apps.get_version(call.scope, app, number)
    files = call.services.webapps.apps.list_files(call.scope, app, number)
    contents = {path: WebAppFileView(sha256=spec.sha256, size=spec.size) for path, spec in files.items()}
    settings = stored.settings
    return WholeVersionView(
        **version_members(stored), contents=contents, routes=[dict(each) for each in settings.routes], redirects=settings.redirects,
        headers=settings.headers, smoke=[dict(each) for each in settings.smoke],
    )  # fmt: skip


@route(
    "GET", "/webapps/{app}/versions/{version}/diff", scope="webapps.read", query=DiffQuery, returns=WebAppDifferenceView,
    errors=(ValidationFailed,),
)  # fmt: skip
def get_webapp_diff(call: Call, app: str, version: str) -> WebAppDifferenceView:
    """Compare the files of two versions.

    This one and `against`, by default the published version or the one before.
    """
    apps = call.services.webapps.apps
    difference: Difference = apps.compare_versions(call.scope, app, version_number(version), call.query.against)
    return WebAppDifferenceView(
        against=difference.against, added=list(difference.added), changed=list(difference.changed),
        removed=list(difference.removed), unchanged=difference.unchanged,
    )  # fmt: skip


@route(
    "PUT", "/webapps/{app}/versions/{version}/blobs/{sha256}", scope="webapps.write", body=CONTENT, returns=WebAppContentView,
    atomic=False,
    errors=(ApiKeyLeaked, Conflict),
)  # fmt: skip
def put_webapp_content(call: Call, app: str, version: str, sha256: str) -> WebAppContentView:
    """Upload one content of a version.

    Sending it again changes nothing.
    """
    received = call.body.received
    call.services.webapps.apps.put_content(call.scope, app, version_number(version), sha256, received)
    return WebAppContentView(sha256=received.sha256, size=received.size)


@route(
    "POST", "/webapps/{app}/versions/{version}/blobs", scope="webapps.write", body=CONTENTS, returns=WebAppContentsView,
    atomic=False,
    errors=(ApiKeyLeaked, Conflict),
)  # fmt: skip
def put_webapp_contents(call: Call, app: str, version: str) -> WebAppContentsView:
    """Upload many contents of a version.

    They come as one archive; sending them again changes nothing. A file that is not a content of the version is refused; the
    files before it in the archive stay stored.
    """
    with call.body.received.open() as file:
        stored = call.services.webapps.apps.put_contents(call.scope, app, version_number(version), file)
    return WebAppContentsView(contents=len(stored), bytes=sum(spec.size for spec in stored))


@route(
    "POST", "/webapps/{app}/versions/{version}/finalize", scope="webapps.write", returns=WebAppVersionView, atomic=False,
    errors=(ApiKeyLeaked, Conflict, DefinitionInvalid),
)  # fmt: skip
def finalize_webapp_version(call: Call, app: str, version: str) -> WebAppVersionView:
    """Finish the upload of a version.

    All its contents must be stored; then it can be published. This reads `_redirects` and `_headers`, compresses new contents
    with gzip, and refuses contents that contain an API key; zstd and Brotli follow in the background.
    """
    return version_view(call.services.webapps.apps.finalize_version(call.scope, app, version_number(version)))
