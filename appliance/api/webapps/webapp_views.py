"""The bodies, query strings and views of WebApps and their versions."""

from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints

from appliance.api.frame.fields import CreatedAt, CreatedBy, Cursor, Limit, UpdatedAt
from appliance.api.frame.routing import Body, Call, Query, View
from appliance.core import clock
from appliance.core.pages import DEFAULT_LIMIT
from appliance.webapps import Version, WebApp

from .traffic import WebAppUsageView

Number = Annotated[int, Field(ge=1, le=10**9, description="Number of a version of this WebApp, counted from 1.")]
Text = Annotated[str, StringConstraints(max_length=500)]
Message = Annotated[str, Field(description="What changed in this version, at most 500 characters; empty if nothing was said.")]
Id = Annotated[
    str,
    Field(
        description="Chosen name, part of the host name: 1 to 24 lower-case letters, digits and single hyphens, beginning with a "
        "letter."
    ),
]
AppName = Annotated[str, Field(description="Name that people read, 1 to 200 characters; the id if left out at creation.")]
Description = Annotated[str, Field(description="What the WebApp is for, at most 2,000 characters; may be empty.")]
Sha256 = Annotated[str, Field(description="SHA-256 digest of the content, 64 lower-case hexadecimal digits.")]
Size = Annotated[int, Field(description="Length of the content in bytes.")]
SinglePage = Annotated[
    bool,
    Field(
        description="Whether paths without a file get `index.html` instead of 404, so that a single-page app routes them itself."
    ),
]
Redirects = Annotated[
    str,
    Field(
        description="Rules in the format of the file `_redirects`, one per line, which precede those of the file; at most 256 KiB."
    ),
]
Headers = Annotated[
    str, Field(description="Rules in the format of the file `_headers`, which precede those of the file; at most 256 KiB.")
]


class WebAppView(View):
    """A WebApp and where it is served."""

    id: Id
    name: AppName
    description: Description
    published_version: Annotated[
        int | None, Field(description="Number of the version that is served; absent while none is.")
    ] = None
    url: Annotated[str, Field(description="Address of the published version on the WebApp's own host; it stays the same.")]
    created_at: CreatedAt
    updated_at: UpdatedAt


class WholeWebAppView(WebAppView):
    """A WebApp with its usage."""

    usage: Annotated[WebAppUsageView, Field(description="What the WebApp stores and sends, beside its limits.")]


class WebAppVersionView(View):
    """One version; `required` lists the sha256 of contents that must still be uploaded, `reason` says why it failed."""

    version: Annotated[int, Field(description="Number of the version, counted from 1, never given twice.")]
    state: Annotated[
        Literal["uploading", "ready", "published", "superseded", "failed"],
        Field(
            description="`uploading` waits for contents, `ready` can be published, `published` is served, `superseded` was served "
            "before, "
            "`failed` was refused and says why in `reason`."
        ),
    ]
    message: Message
    commit: Annotated[str | None, Field(description="Revision of the source code, as its uploader stated; absent if not.")] = None
    ci_url: Annotated[
        str | None, Field(description="Address of the build that made it, as its uploader stated; absent if not.")
    ] = None
    spa: SinglePage
    access: Annotated[
        Any,
        Field(
            description="Who may open it: `public`, or an object with exactly one of `password`, `members`, `email` and `oidc` "
            "with its "
            "settings, and optionally `paths: {public: […]}`."
        ),
    ]
    files: Annotated[int, Field(description="Number of files in the version.")]
    bytes: Annotated[int, Field(description="Size of all files together, in bytes before compression.")]
    reason: Annotated[str | None, Field(description="Why the version failed, as a sentence; absent in other states.")] = None
    required: Annotated[
        list[str] | None, Field(description="SHA-256 of each content still to be sent; only while `uploading`.")
    ] = None
    created_at: CreatedAt
    created_by: CreatedBy
    published_at: Annotated[
        str | None, Field(description="When it was last published, RFC 3339 in UTC; absent if it never was.")
    ] = None


class WebAppFileView(View):
    sha256: Sha256
    size: Size


class WholeVersionView(WebAppVersionView):
    """A version with its files, routes and other settings."""

    contents: Annotated[
        dict[str, WebAppFileView], Field(description="Digest and size of each file, by its path without leading slash.")
    ]
    routes: Annotated[
        list[dict[str, Any]],
        Field(description="Paths that a process or a collection answers, as the manifest says; at most 100."),
    ]
    redirects: Redirects
    headers: Headers
    smoke: Annotated[
        list[dict[str, Any]],
        Field(
            description="Checks that run when it is published (`path`, `method`, `status`, `contains`, `header`, `max_ms`); at "
            "most 20."
        ),
    ]


class WebAppContentView(View):
    """A content that was stored."""

    sha256: Sha256
    size: Size


class WebAppContentsView(View):
    """The number of contents that were stored, and their total size."""

    contents: Annotated[int, Field(description="How many different contents the archive brought.")]
    bytes: Annotated[int, Field(description="Size of these contents together, before compression.")]


class WebAppDifferenceView(View):
    """The paths of a version compared with those of `against`; 0 if there is no other version."""

    against: Annotated[int, Field(description="Number of the version it was compared with; 0 for none.")]
    added: Annotated[list[str], Field(description="Paths that only this version has, sorted.")]
    changed: Annotated[list[str], Field(description="Paths that both have with different contents, sorted.")]
    removed: Annotated[list[str], Field(description="Paths that only the other version has, sorted.")]
    unchanged: Annotated[int, Field(description="How many paths have the same content in both.")]


class CreateWebApp(Body):
    id: Annotated[Id, StringConstraints(max_length=63)]
    name: AppName | None = None
    description: Description | None = None


class ChangeWebApp(Body):
    name: AppName | None = None
    description: Description | None = None


class DeleteQuery(Query):
    force: Annotated[bool, Field(description="Whether to delete it even while a version is published.")] = False


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

    message: Annotated[Message, StringConstraints(max_length=500)] = ""


class DiffQuery(Query):
    against: Annotated[
        Number, Field(description="Number of the version to compare with; by default the published one, or the one before.")
    ] | None = None


class VersionListQuery(Query):
    limit: Limit = DEFAULT_LIMIT
    cursor: Cursor = None


def webapp_view(call: Call, app: WebApp) -> WebAppView:
    return WebAppView(
        id=app.id, name=app.name, description=app.description, published_version=app.published_version,
        url=call.services.config.webapp_url(call.scope.tenant_id, app.id),
        created_at=clock.rfc3339(app.created_at), updated_at=clock.rfc3339(app.updated_at),
    )  # fmt: skip


def version_members(version: Version) -> dict[str, Any]:
    return {
        "version": version.number, "state": version.state, "message": version.message, "commit": version.source.commit or None,
        "ci_url": version.source.ci_url or None, "spa": version.settings.spa,
        "access": version.settings.access, "files": version.files, "bytes": version.bytes,
        "reason": version.reason, "required": list(version.required) if version.state == "uploading" else None,
        "created_at": clock.rfc3339(version.created_at), "created_by": version.created_by,
        "published_at": clock.optional_rfc3339(version.published_at),
    }  # fmt: skip


def version_view(version: Version) -> WebAppVersionView:
    return WebAppVersionView(**version_members(version))
