"""/api/v1/webapps: publish, preview, roll back and unpublish versions."""

import asyncio
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints

from appliance.api.frame.routing import Acts, Answer, Body, Call, Query, View, route
from appliance.api.frame.tool_arguments import publication_arguments
from appliance.api.processes.processes import version_number
from appliance.core import clock
from appliance.webapps.publishing import Publication, previews

from .webapps import Number, WebAppVersionView, WebAppView, version_view, webapp_view


class PublishWebApp(Body):
    """With `if_current`, publish only if that version is still the published one; 0 stands for none."""

    if_current: Annotated[int, Field(ge=0, le=10**9)] | None = None


class PublishQuery(Query):
    """`wait` is the number of seconds to wait for the version's checks."""

    wait: Annotated[float, Field(ge=0, le=120)] = 30


class RollBackWebApp(Body):
    version: Number | None = None


class PreviewWebApp(Body):
    """`expires_in` is a duration of at most 30 days."""

    expires_in: Annotated[str, StringConstraints(max_length=30)] = "24h"


class WebAppPreviewView(View):
    """A link that opens a version until it expires."""

    url: str
    expires_at: str


class WebAppCheckView(View):
    """The result of a check of the preview or of the live version; if it failed, with the `problem` and the beginning of the
    response (`seen`)."""

    phase: Literal["preview", "live"]
    method: str
    path: str
    status: int | None = None
    ms: int
    outcome: Literal["passed", "failed"]
    problem: str | None = None
    seen: str | None = None


class WebAppPublicationView(View):
    """The publication of a version: `checking` (its preview), `switched` (live, being checked), `published`; or `refused` (the
    preview failed), `switched_back` (the live checks failed), `overtaken` (another publication changed what is served)."""

    version: int
    state: Literal["checking", "switched", "published", "switched_back", "refused", "overtaken"]
    previous: int | None = None
    checks: list[WebAppCheckView]
    reason: str | None = None
    started_by: str
    started_at: str
    ended_at: str | None = None


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
)  # fmt: skip
async def publish_webapp(call: Call, app: str, version: str) -> Answer:
    """Publish a version; with `if_current`, only if that version is still the published one.

    The `smoke` checks of a version run against its preview first, then against the live version; if one fails there, the
    previous version is served again. Answers 200 when the version is published within `wait` seconds, 409 with the checks that
    failed, else 202 with the publication to follow. A version without checks is published at once.
    """
    number = version_number(version)
    publishing = call.services.publishing
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


@route("GET", "/webapps/{app}/versions/{version}/publication", scope="webapps.read", returns=WebAppPublicationView)
def get_webapp_publication(call: Call, app: str, version: str) -> WebAppPublicationView:
    """Show the publication of a version, in progress or finished, with the results of its checks."""
    return publication_view(call.services.publishing.get_publication(call.scope, app, version_number(version)))


@route(
    "POST", "/webapps/{app}/versions/{version}/preview", scope="webapps.write", body=PreviewWebApp, returns=WebAppPreviewView
)  # fmt: skip
def preview_webapp(call: Call, app: str, version: str) -> WebAppPreviewView:
    """Create a link with which people can look at a ready version before it is published.

    Anyone with the link can open it until it expires; its pages are neither indexed nor cached.
    """
    number = version_number(version)
    lifetime_ms = clock.parse_duration(call.body.expires_in, pointer="/expires_in")
    link = previews.preview_version(call.scope, call.services.sealer, app, number, lifetime_ms)
    url = call.services.config.webapp_url(call.scope.tenant_id, app, number)
    return WebAppPreviewView(url=link.at(url), expires_at=clock.rfc3339(link.expires_at))


@route("POST", "/webapps/{app}/rollback", scope="webapps.publish", body=RollBackWebApp, returns=WebAppVersionView)
def roll_back_webapp(call: Call, app: str) -> WebAppVersionView:
    """Roll back to an older version: `version`, or by default the one that was published before."""
    return version_view(call.services.webapps.roll_back(call.scope, app, call.body.version))


@route("POST", "/webapps/{app}/unpublish", scope="webapps.publish", returns=WebAppView)
def unpublish_webapp(call: Call, app: str) -> WebAppView:
    """Unpublish a WebApp, so that nothing is served; its versions stay."""
    return webapp_view(call, call.services.webapps.unpublish_app(call.scope, app))
