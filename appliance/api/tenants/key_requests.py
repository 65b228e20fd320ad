"""/api/v1/keys/{key_id}/requests: the request log of an API key."""

from typing import Annotated

from pydantic import Field

from appliance.api.frame.routing import Call, ListQuery, View, route
from appliance.core import clock
from appliance.core.errors import ValidationFailed
from appliance.core.pages import Page
from appliance.tenants.keys import RequestFilter, key_requests


class KeyRequestsQuery(ListQuery):
    method: Annotated[str | None, Field(max_length=10, description="Only requests with this method, such as `POST`.")] = None
    path: Annotated[
        str | None, Field(max_length=200, description="Only requests to this path template, such as `/api/v1/keys/{key_id}`.")
    ] = None
    status: Annotated[int | None, Field(ge=100, le=599, description="Only requests answered with this status.")] = None
    failed: Annotated[
        bool | None, Field(description="Only requests answered with a status from 400 on (`true`), or below (`false`).")
    ] = None
    address: Annotated[str | None, Field(max_length=45, description="Only requests from this IP address.")] = None
    since: Annotated[str | None, Field(description="Only requests at or after this time; RFC 3339.")] = None
    until: Annotated[str | None, Field(description="Only requests before this time; RFC 3339.")] = None


class KeyRequestView(View):
    """An answered request, without the values of its path, its query and its body."""

    id: Annotated[str, Field(description="Identifies the entry; `krq_…`.")]
    at: Annotated[str, Field(description="When it was answered; RFC 3339, UTC.")]
    method: Annotated[str, Field(description="The method, such as `GET`.")]
    path: Annotated[str, Field(description="The template of the path, such as `/api/v1/keys/{key_id}`, or `/mcp`.")]
    status: Annotated[int, Field(description="The status of the answer.")]
    duration_ms: Annotated[float, Field(description="Milliseconds until the answer began.")]
    address: Annotated[str, Field(description="The IP address that it came from.")]


@route(
    "GET", "/keys/{key_id}/requests", scope="keys.read", query=KeyRequestsQuery, returns=KeyRequestView, listed=True,
    errors=(ValidationFailed,),
)  # fmt: skip
def list_key_requests(call: Call, key_id: str) -> Page[KeyRequestView]:
    """List the recorded requests of an API key.

    The newest come first. Requests are recorded for keys with `records_requests`, and kept for `retention.key_requests_days`.
    """
    query: KeyRequestsQuery = call.query
    criteria = RequestFilter(
        method=query.method, path=query.path, status=query.status, is_error=query.failed, address=query.address,
        since=clock.parse_rfc3339(query.since, pointer="/since") if query.since else None,
        until=clock.parse_rfc3339(query.until, pointer="/until") if query.until else None,
    )  # fmt: skip
    rows = key_requests.list_requests(call.scope, key_id, criteria, query.page)
    return rows.map(
        lambda row: KeyRequestView(
            id=row.id, at=clock.rfc3339(row.at), method=row.method, path=row.path, status=row.status,
            duration_ms=round(row.ms, 1), address=row.address,
        )
    )  # fmt: skip
