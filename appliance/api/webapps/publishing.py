"""/api/v1/webapps: publish, preview, roll back and unpublish versions."""

import asyncio
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints

from appliance.api.frame.routing import Acts, Answer, Body, Call, Query, View, route
from appliance.api.frame.tool_arguments import publication_arguments
from appliance.api.processes.processes import version_number
from appliance.core import clock
from appliance.core.errors import Conflict, GrantRequired, ValidationFailed
from appliance.webapps.publishing import Publication, previews

from .webapp_views import Number, WebAppVersionView, WebAppView, version_view, webapp_view


class PublishWebApp(Body):
    """With `if_current`, publish only if that version is still the published one; 0 stands for none."""

    if_current: Annotated[
        int,
        Field(
            ge=0, le=10**9,
            description="Number of the version that must still be published, 0 for none; otherwise 409. Unchecked if absent."
        ),
    ] | None = None


class PublishQuery(Query):
    """`wait` is the number of seconds to wait for the version's checks."""

    wait: Annotated[float, Field(ge=0, le=120, description="Seconds to wait for the checks before answering 202.")] = 30


class RollBackWebApp(Body):
    version: Annotated[
        Number, Field(description="Number of the version to serve again; by default the one published before.")
    ] | None = None


class PreviewWebApp(Body):
    """`expires_in` is a duration of at most 30 days."""

    expires_in: Annotated[
        str, StringConstraints(max_length=30),
        Field(description="How long the link works: a duration such as `30m`, `24h` or `7d`, at most 30 days."),
    ] = "24h"


class WebAppPreviewView(View):
    """A link that opens a version until it expires."""

    url: Annotated[str, Field(description="Address that opens this version for anyone who has it.")]
    expires_at: Annotated[str, Field(description="When the link stops working, RFC 3339 in UTC.")]


class WebAppCheckView(View):
    """The result of a check of the preview or of the live version; if it failed, with the `problem` and the beginning of the
    response (`seen`)."""

    phase: Annotated[
        Literal["preview", "live"], Field(description="Whether it ran before the version was served, or after.")
    ]
    method: Annotated[str, Field(description="HTTP method of the request, `GET` or `HEAD`.")]
    path: Annotated[str, Field(description="Path that was requested, with its query string.")]
    status: Annotated[int | None, Field(description="HTTP status of the response; absent if there was none.")] = None
    ms: Annotated[int, Field(description="Duration of the request in milliseconds; after 10,000 it is given up.")]
    outcome: Annotated[Literal["passed", "failed"], Field(description="Whether the response was as the check expects.")]
    problem: Annotated[str | None, Field(description="What was not as expected, as a sentence; absent if it passed.")] = None
    seen: Annotated[str | None, Field(description="The first 500 characters of the response; absent if it passed.")] = None


class WebAppPublicationView(View):
    """The publication of a version: `checking` (its preview), `switched` (live, being checked), `published`; or `refused` (the
    preview failed), `switched_back` (the live checks failed), `overtaken` (another publication changed what is served)."""

    version: Annotated[int, Field(description="Number of the version that is published.")]
    state: Annotated[
        Literal["checking", "switched", "published", "switched_back", "refused", "overtaken"],
        Field(
            description="How far it is: preview checked, live and checked, done; or how it failed: live checks failed, preview "
            "failed, "
            "another publication came first."
        ),
    ]
    previous: Annotated[int | None, Field(description="Number of the version served before; absent if there was none.")] = None
    checks: Annotated[list[WebAppCheckView], Field(description="Results of the checks so far, in the order in which they ran.")]
    reason: Annotated[
        str | None, Field(description="Why it failed, as a sentence; absent while it runs and after a success.")
    ] = None
    started_by: Annotated[str, Field(description="Who published the version: `user:…`, `key:…` or `system`.")]
    started_at: Annotated[str, Field(description="When it began, RFC 3339 in UTC with milliseconds.")]
    ended_at: Annotated[str | None, Field(description="When it ended, RFC 3339 in UTC; absent while it runs.")] = None


def publication_view(publication: Publication) -> WebAppPublicationView:
    return WebAppPublicationView(
        version=publication.number, state=publication.state, previous=publication.previous or None,
        checks=[WebAppCheckView(**check) for check in publication.checks], reason=publication.reason,
        started_by=publication.started_by,
        started_at=clock.rfc3339(publication.started_at), ended_at=clock.optional_rfc3339(publication.ended_at),
    )  # fmt: skip


@route(
    "POST", "/webapps/{app}/versions/{version}/publish", scope="webapps.publish", body=PublishWebApp, query=PublishQuery,
    returns=WebAppVersionView, also={202: WebAppPublicationView}, atomic=False,
    acts=Acts("publish_webapp", arguments=publication_arguments),
    errors=(Conflict, GrantRequired),
)  # fmt: skip
async def publish_webapp(call: Call, app: str, version: str) -> Answer:
    """Publish a version.

    With `if_current`, only if that version is still the published one. The `smoke` checks of a version run against its preview
    first, then against the live version; if one fails there, the previous version is served again. Answers 200 when the version
    is published within `wait` seconds, 409 with the checks that failed, else 202 with the publication to follow. A version
    without checks is published at once.
    """
    number = version_number(version)
    publishing = call.services.webapps.publishing
    in_thread: Any = partial(asyncio.get_running_loop().run_in_executor, call.services.threads)
    started = await in_thread(partial(publishing.publish_version, call.scope, app, number, if_current=call.body.if_current))
    if started.version is not None:
        return Answer(version_view(started.version))
    if started.future is not None:
        await asyncio.wait([asyncio.wrap_future(started.future)], timeout=call.query.wait)
    current: Publication = await in_thread(partial(publishing.get_publication, call.scope, app, number))
    if current.is_running:
        return Answer(publication_view(current), 202, {"Location": f"/api/v1/webapps/{app}/versions/{number}/publication"})
    return Answer(version_view(await in_thread(partial(publishing.get_published, call.scope, app, number))))


@route(
    "GET", "/webapps/{app}/versions/{version}/publication", scope="webapps.read", returns=WebAppPublicationView,
    errors=(ValidationFailed,),
)  # fmt: skip
def get_webapp_publication(call: Call, app: str, version: str) -> WebAppPublicationView:
    """Show the publication of a version.

    In progress or finished, with the results of its checks.
    """
    return publication_view(call.services.webapps.publishing.get_publication(call.scope, app, version_number(version)))


@route(
    "POST", "/webapps/{app}/versions/{version}/preview", scope="webapps.write", body=PreviewWebApp, returns=WebAppPreviewView,
    errors=(Conflict, GrantRequired),
)  # fmt: skip
def preview_webapp(call: Call, app: str, version: str) -> WebAppPreviewView:
    """Create a preview link of a version.

    People can look at a ready version with it before it is published. Anyone with the link can open it until it expires; its
    pages are neither indexed nor cached.
    """
    number = version_number(version)
    lifetime_ms = clock.parse_duration(call.body.expires_in, pointer="/expires_in")
    link = previews.preview_version(call.scope, call.services.sealer, app, number, lifetime_ms)
    url = call.services.config.webapp_url(call.scope.tenant_id, app, number)
    return WebAppPreviewView(url=link.at(url), expires_at=clock.rfc3339(link.expires_at))


@route(
    "POST", "/webapps/{app}/rollback", scope="webapps.publish", body=RollBackWebApp, returns=WebAppVersionView,
    errors=(Conflict, GrantRequired),
)  # fmt: skip
def roll_back_webapp(call: Call, app: str) -> WebAppVersionView:
    """Roll back to an older version.

    To `version`, or by default to the one that was published before.
    """
    return version_view(call.services.webapps.apps.roll_back(call.scope, app, call.body.version))


@route("POST", "/webapps/{app}/unpublish", scope="webapps.publish", returns=WebAppView)
def unpublish_webapp(call: Call, app: str) -> WebAppView:
    """Unpublish a WebApp.

    Nothing is served from then on; its versions stay.
    """
    return webapp_view(call, call.services.webapps.apps.unpublish_app(call.scope, app))
