"""/api/v1/webapps: WebApps and their versions."""

from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints, ValidationError

from appliance.api.frame.errors import from_pydantic
from appliance.api.frame.routing import Answer, Body, Call, Json, Query, View, route
from appliance.api.processes.processes import version_number
from appliance.api.tenants.tenants import DeletedView
from appliance.core import clock
from appliance.core.errors import InvalidRequest, PayloadTooLarge, ValidationFailed
from appliance.core.json_text import load_json
from appliance.core.pages import DEFAULT_LIMIT, PageRequest
from appliance.core.sentences import Sentence
from appliance.webapps import Difference, FileSpec, NewApp, NewVersion, Settings, Source, Version, WebApp
from appliance.webapps.files import validate_settings

from .traffic import WebAppUsageView, read_usage

LARGEST_MANIFEST = 4 << 20
MANIFEST = Json(
    "archive",
    "`application/json`: `{files: {path: {sha256, size}}, spa, redirects, headers, routes, access, message, "
    "source: {commit, ci_url}}`; "
    "or a zip or tar.gz of the files.",
)
CONTENT = Json("archive", "The bytes of one file.")
CONTENTS = Json("archive", "A zip, tar or tar.gz of `required` contents, under any names.")
Number = Annotated[int, Field(ge=1, le=10**9)]
Text = Annotated[str, StringConstraints(max_length=500)]


class WebAppView(View):
    """A WebApp and where it is served."""

    id: str
    name: str
    description: str
    published_version: int | None = None
    url: str
    created_at: str
    updated_at: str


class WholeWebAppView(WebAppView):
    """A WebApp with its usage."""

    usage: WebAppUsageView


class WebAppVersionView(View):
    """One version; `required` lists the sha256 of contents that must still be uploaded, `reason` says why it failed."""

    version: int
    state: Literal["uploading", "ready", "published", "superseded", "failed"]
    message: str
    commit: str | None = None
    ci_url: str | None = None
    spa: bool
    access: Any
    files: int
    bytes: int
    reason: str | None = None
    required: list[str] | None = None
    created_at: str
    created_by: str
    published_at: str | None = None


class WebAppFileView(View):
    sha256: str
    size: int


class WholeVersionView(WebAppVersionView):
    """A version with its files, routes and other settings."""

    contents: dict[str, WebAppFileView]
    routes: list[dict[str, Any]]
    redirects: str
    headers: str
    smoke: list[dict[str, Any]]


class WebAppContentView(View):
    """A content that was stored."""

    sha256: str
    size: int


class WebAppContentsView(View):
    """The number of contents that were stored, and their total size."""

    contents: int
    bytes: int


class WebAppDifferenceView(View):
    """The paths of a version compared with those of `against`; 0 if there is no other version."""

    against: int
    added: list[str]
    changed: list[str]
    removed: list[str]
    unchanged: int


class CreateWebApp(Body):
    id: Annotated[str, StringConstraints(max_length=63)]
    name: str | None = None
    description: str | None = None


class ChangeWebApp(Body):
    name: str | None = None
    description: str | None = None


class DeleteQuery(Query):
    force: bool = False


class File(Body):
    sha256: str
    size: Annotated[int, Field(ge=0, le=2**53)]


class SourceBody(Body):
    commit: Text = ""
    ci_url: Text = ""


class NewVersionBody(Body):
    """The manifest of a version."""

    files: dict[str, File]
    spa: bool = False
    redirects: str = ""
    headers: str = ""
    routes: Any = None
    access: Any = None
    smoke: Any = None
    message: Text = ""
    source: SourceBody = SourceBody()


class NewVersionQuery(Query):
    """The `message` of a version that is sent as an archive."""

    message: Text = ""


class DiffQuery(Query):
    against: Number | None = None


class VersionListQuery(Query):
    limit: int = DEFAULT_LIMIT
    cursor: str | None = None


def webapp_view(call: Call, app: WebApp) -> WebAppView:
    return WebAppView(
        id=app.id, name=app.name, description=app.description, published_version=app.published_version,
        url=call.services.config.webapp_url(call.scope.tenant_id, app.id),
        created_at=clock.rfc3339(app.created_at), updated_at=clock.rfc3339(app.updated_at),
    )  # fmt: skip


def _members(version: Version) -> dict[str, Any]:
    return {
        "version": version.number, "state": version.state, "message": version.message, "commit": version.source.commit or None,
        "ci_url": version.source.ci_url or None, "spa": version.settings.spa,
        "access": version.settings.access, "files": version.files, "bytes": version.bytes,
        "reason": version.reason, "required": list(version.required) if version.state == "uploading" else None,
        "created_at": clock.rfc3339(version.created_at), "created_by": version.created_by,
        "published_at": clock.optional_rfc3339(version.published_at),
    }  # fmt: skip


def version_view(version: Version) -> WebAppVersionView:
    return WebAppVersionView(**_members(version))


@route("GET", "/webapps", scope="webapps.read", returns=WebAppView, listed=True)
def list_webapps(call: Call) -> object:
    """List WebApps."""
    return call.services.webapps.list_apps(call.scope, call.query.page).map(lambda app: webapp_view(call, app))


@route("POST", "/webapps", scope="webapps.write", body=CreateWebApp, returns=WebAppView, status=201)
def create_webapp(call: Call) -> Answer:
    """Create a WebApp; its id becomes part of its host name."""
    body: CreateWebApp = call.body
    app = call.services.webapps.create_app(call.scope, NewApp(body.id, body.name or "", body.description or ""))
    return Answer(webapp_view(call, app), 201, {"Location": f"/api/v1/webapps/{app.id}"})


@route("GET", "/webapps/{app}", scope="webapps.read", returns=WholeWebAppView)
def get_webapp(call: Call, app: str) -> WholeWebAppView:
    """Show a WebApp and its usage."""
    view = webapp_view(call, call.services.webapps.get_app(call.scope, app))
    return WholeWebAppView(**view.model_dump(), usage=read_usage(call, app))


@route("PATCH", "/webapps/{app}", scope="webapps.write", body=ChangeWebApp, returns=WebAppView)
def change_webapp(call: Call, app: str) -> WebAppView:
    """Change the name or description of a WebApp."""
    return webapp_view(call, call.services.webapps.change_app(call.scope, app, call.body.name, call.body.description))


@route("DELETE", "/webapps/{app}", scope="webapps.write", query=DeleteQuery, returns=DeletedView)
def delete_webapp(call: Call, app: str) -> DeletedView:
    """Delete a WebApp with its versions; refused while one is published, unless forced."""
    call.services.webapps.delete_app(call.scope, app, force=call.query.force)
    return DeletedView(deleted=app)


@route(
    "POST", "/webapps/{app}/versions", scope="webapps.write", body=MANIFEST, query=NewVersionQuery, returns=WebAppVersionView,
    status=201, atomic=False,
)  # fmt: skip
def create_webapp_version(call: Call, app: str) -> Answer:
    """Create a version from a manifest, or deploy one as an archive in a single call.

    A manifest (JSON) starts an upload: send the `required` contents with `PUT …/blobs/{sha256}`, or many at once with
    `POST …/blobs`, then `POST …/finalize`. An archive is a complete version, which is ready when this call answers: an optional
    `app.yaml` (`spa`, `redirects`, `headers`, `routes`, `access`), and the content in `public/` or, without it, all other files.
    """
    media = (call.body.media_type or "").partition(";")[0].strip().lower()
    if media == "application/json":
        if call.query.message:
            raise InvalidRequest("a manifest has its own `message`; remove ?message= from the address")
        version = call.services.webapps.create_version(call.scope, app, _read_manifest(call))
    else:
        with call.body.received.open() as file:
            version = call.services.webapps.deploy_archive(call.scope, app, file, call.query.message)
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
    """List the versions of a WebApp, newest first."""
    page = PageRequest(call.query.limit, call.query.cursor)
    return call.services.webapps.list_versions(call.scope, app, page).map(version_view)


@route("GET", "/webapps/{app}/versions/{version}", scope="webapps.read", returns=WholeVersionView)
def get_webapp_version(call: Call, app: str, version: str) -> WholeVersionView:
    """Show a version with its files and the contents that must still be uploaded."""
    number = version_number(version)
    stored = call.services.webapps.get_version(call.scope, app, number)
    files = call.services.webapps.list_files(call.scope, app, number)
    contents = {path: WebAppFileView(sha256=spec.sha256, size=spec.size) for path, spec in files.items()}
    settings = stored.settings
    return WholeVersionView(
        **_members(stored), contents=contents, routes=[dict(each) for each in settings.routes], redirects=settings.redirects,
        headers=settings.headers, smoke=[dict(each) for each in settings.smoke],
    )  # fmt: skip


@route("GET", "/webapps/{app}/versions/{version}/diff", scope="webapps.read", query=DiffQuery, returns=WebAppDifferenceView)
def get_webapp_diff(call: Call, app: str, version: str) -> WebAppDifferenceView:
    """Compare the files of a version with `against`, by default the published version or the one before."""
    difference: Difference = call.services.webapps.compare_versions(call.scope, app, version_number(version), call.query.against)
    return WebAppDifferenceView(
        against=difference.against, added=list(difference.added), changed=list(difference.changed),
        removed=list(difference.removed), unchanged=difference.unchanged,
    )  # fmt: skip


@route(
    "PUT", "/webapps/{app}/versions/{version}/blobs/{sha256}", scope="webapps.write", body=CONTENT, returns=WebAppContentView,
    atomic=False,
)  # fmt: skip
def put_webapp_content(call: Call, app: str, version: str, sha256: str) -> WebAppContentView:
    """Upload one content of a version; sending it again changes nothing."""
    received = call.body.received
    call.services.webapps.put_content(call.scope, app, version_number(version), sha256, received)
    return WebAppContentView(sha256=received.sha256, size=received.size)


@route(
    "POST", "/webapps/{app}/versions/{version}/blobs", scope="webapps.write", body=CONTENTS, returns=WebAppContentsView,
    atomic=False,
)  # fmt: skip
def put_webapp_contents(call: Call, app: str, version: str) -> WebAppContentsView:
    """Upload many contents of a version as one archive; sending them again changes nothing.

    A file that is not a content of the version is refused; the files before it in the archive stay stored.
    """
    with call.body.received.open() as file:
        stored = call.services.webapps.put_contents(call.scope, app, version_number(version), file)
    return WebAppContentsView(contents=len(stored), bytes=sum(spec.size for spec in stored))


@route(
    "POST", "/webapps/{app}/versions/{version}/finalize", scope="webapps.write", returns=WebAppVersionView, atomic=False
)  # fmt: skip
def finalize_webapp_version(call: Call, app: str, version: str) -> WebAppVersionView:
    """Finish the upload of a version, once all its contents are stored, so that it can be published.

    This reads `_redirects` and `_headers`, compresses new contents with gzip, and refuses contents that contain an API key; zstd
    and Brotli follow in the background.
    """
    return version_view(call.services.webapps.finalize_version(call.scope, app, version_number(version)))
