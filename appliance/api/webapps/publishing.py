"""/api/v1/webapps, publishing: with a version's checks, rolling back, unpublishing, links to look before."""

import asyncio
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints

from appliance.api.frame.routing import Acts, Answer, Body, Call, Query, View, route
from appliance.api.frame.tool_arguments import publication
from appliance.api.processes.processes import version_number
from appliance.core import clock
from appliance.webapps.publishing import Publication, previews

from .webapps import Number, WebAppVersionView, WebAppView, version_view, webapp_view


class PublishWebApp(Body):
    """`if_current` is the version that must still be published, 0 for none."""

    if_current: Annotated[int, Field(ge=0, le=10**9)] | None = None


class PublishQuery(Query):
    """`wait` is how many seconds to wait for the version's checks."""

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
    """What a check saw, of the preview or live; of one that failed `problem` and the beginning of what was `seen`."""

    phase: Literal["preview", "live"]
    method: str
    path: str
    status: int | None = None
    ms: int
    outcome: Literal["passed", "failed"]
    problem: str | None = None
    seen: str | None = None


class WebAppPublicationView(View):
    """A version on its way to be published: `checking` its preview, `switched` to and checked live, `published`; or `refused`
    (its preview failed), `switched_back` (it failed live), `overtaken` (somebody else changed what is served)."""

    version: int
    state: Literal["checking", "switched", "published", "switched_back", "refused", "overtaken"]
    previous: int | None = None
    checks: list[WebAppCheckView]
    reason: str | None = None
    started_by: str
    started_at: str
    ended_at: str | None = None


def publication_view(found: Publication) -> WebAppPublicationView:
    return WebAppPublicationView(
        version=found.number, state=found.state, previous=found.previous or None,
        checks=[WebAppCheckView(**check) for check in found.checks], reason=found.reason, started_by=found.started_by,
        started_at=clock.rfc3339(found.started_at), ended_at=clock.optional_rfc3339(found.ended_at),
    )  # fmt: skip


@route(
    "POST", "/webapps/{app}/versions/{version}/publish", scope="webapps.publish", body=PublishWebApp, query=PublishQuery,
    returns=WebAppVersionView, also={202: WebAppPublicationView}, atomic=False,
    acts=Acts("publish_webapp", arguments=publication),
)  # fmt: skip
async def publish_webapp(call: Call, app: str, version: str) -> Answer:
    """Serve this version from now on; with `if_current` only while that one is published.

    A version with `smoke` checks is asked as a preview first, then served and asked again; if a check fails there, what was
    served before is served again. Answers 200 when the version is published within `wait` seconds, 409 with the checks that
    failed when it is not, else 202 with the publication to follow. A version without checks is published at once.
    """
    number = version_number(version)
    publishing = call.services.publishing
    in_thread: Any = partial(asyncio.get_running_loop().run_in_executor, call.services.threads)
    started = await in_thread(partial(publishing.publish_version, call.scope, app, number, if_current=call.body.if_current))
    if started.version is not None:
        return Answer(version_view(started.version))
    if started.over is not None:
        await asyncio.wait([asyncio.wrap_future(started.over)], timeout=call.query.wait)
    found: Publication = await in_thread(partial(publishing.get_publication, call.scope, app, number))
    if found.is_running:
        return Answer(publication_view(found), 202, {"Location": f"/api/v1/webapps/{app}/versions/{number}/publication"})
    return Answer(version_view(await in_thread(partial(publishing.published, call.scope, app, number))))


@route("GET", "/webapps/{app}/versions/{version}/publication", scope="webapps.read", returns=WebAppPublicationView)
def get_webapp_publication(call: Call, app: str, version: str) -> WebAppPublicationView:
    """Show how publishing a version with its checks goes, or went, and what each check saw."""
    return publication_view(call.services.publishing.get_publication(call.scope, app, version_number(version)))


@route(
    "POST", "/webapps/{app}/versions/{version}/preview", scope="webapps.write", body=PreviewWebApp, returns=WebAppPreviewView
)  # fmt: skip
def preview_webapp(call: Call, app: str, version: str) -> WebAppPreviewView:
    """Make a link to a version that is ready, for whoever shall look at it before it is published.

    Everybody who has the link can open it until it expires; nothing there is indexed or kept.
    """
    number = version_number(version)
    lasts = clock.parse_duration(call.body.expires_in, pointer="/expires_in")
    made = previews.preview_version(call.scope, call.services.sealer, app, number, lasts)
    url = call.services.config.webapp_url(call.scope.tenant_id, app, number)
    return WebAppPreviewView(url=made.at(url), expires_at=clock.rfc3339(made.expires_at))


@route("POST", "/webapps/{app}/rollback", scope="webapps.publish", body=RollBackWebApp, returns=WebAppVersionView)
def roll_back_webapp(call: Call, app: str) -> WebAppVersionView:
    """Publish an older version again: the named one, or the one that was published before."""
    return version_view(call.services.webapps.roll_back(call.scope, app, call.body.version))


@route("POST", "/webapps/{app}/unpublish", scope="webapps.publish", returns=WebAppView)
def unpublish_webapp(call: Call, app: str) -> WebAppView:
    """Serve nothing from now on; the versions stay."""
    return webapp_view(call, call.services.webapps.unpublish_app(call.scope, app))
