"""/api/v1/webapps/{app}/visits: the sessions of a WebApp's visitors."""

from typing import Annotated

from pydantic import Field

from appliance.api.frame.routing import Call, View, route
from appliance.api.tenants.tenants import DeletedView
from appliance.core import clock


class VisitView(View):
    """A visitor's session in one browser; `kind` is password, member or user, `visitor` identifies the person where known."""

    id: Annotated[str, Field(description="Identifies the visit; `vis_…`.")]
    kind: Annotated[
        str,
        Field(
            description="How the visitor signed in: with the `password`, as a `member` of the tenant, or as a `user` of an e-mail "
            "address or identity provider."
        ),
    ]
    visitor: Annotated[
        str | None, Field(description="Who it is to the WebApp's processes; absent for a visitor who only knows the password.")
    ] = None
    email: Annotated[str | None, Field(description="Verified e-mail address; absent if the visitor proved none.")] = None
    created_at: Annotated[str, Field(description="When the visitor signed in, RFC 3339 in UTC with milliseconds.")]
    seen_at: Annotated[str, Field(description="When the visitor was last active, exact to five minutes, RFC 3339 in UTC.")]
    expires_at: Annotated[
        str, Field(description="When the visit ends at the latest, seven days after sign-in, RFC 3339 in UTC.")
    ]


@route("GET", "/webapps/{app}/visits", scope="webapps.write", returns=VisitView, listed=True)
def list_visits(call: Call, app: str) -> object:
    """List the open visits of a WebApp.

    Newest first unless sorted; visits end after 12 hours without use and after seven days.
    """
    visits = call.services.webapps.visits.list_visits(call.scope, app, call.query.page)
    return visits.map(
        lambda visit: VisitView(
            id=visit.id, kind=visit.kind, visitor=visit.subject or None, email=visit.email or None,
            created_at=clock.rfc3339(visit.created_at), seen_at=clock.rfc3339(visit.seen_at),
            expires_at=clock.rfc3339(visit.expires_at),
        )
    )  # fmt: skip


@route("DELETE", "/webapps/{app}/visits/{visit}", scope="webapps.write", returns=DeletedView)
def revoke_visit(call: Call, app: str, visit: str) -> DeletedView:
    """End a visit.

    The visitor has to sign in again.
    """
    call.services.webapps.visits.revoke_visit(call.scope, app, visit)
    return DeletedView(deleted=visit)
