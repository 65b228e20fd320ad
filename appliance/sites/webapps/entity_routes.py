"""Routes that access a collection: list, view, create, update and delete, under the collection's access rules."""

import re
from collections.abc import Mapping
from functools import partial
from typing import Any

from appliance.core.errors import InvalidFilter, InvalidJson, InvalidRequest, NotFound, PolicyDenied, ValidationFailed
from appliance.core.json_text import load_json
from appliance.core.sentences import Sentence
from appliance.datapool import Requester, access
from appliance.datapool import service as datapool
from appliance.web import Services
from appliance.webapps.routes import WITH_BODY, Match, Route, convert_texts

from .route_answers import Reply, as_json
from .route_bodies import Body, BodyLimits, BodyReader, read_fields
from .route_calls import RouteCall
from .sending import Sender

MOST_LISTED = 100
LIST_PARAMS = ("filter", "sort", "fields", "expand", "search", "limit", "cursor", "count")
VIEW_PARAMS = ("fields", "expand")
_ETAG = re.compile(r'\s*(?:W/)?"([0-9]{1,9})"\s*')
_NUMBER = re.compile(r"[0-9]{1,6}")
_TYPES = {"number": "number", "integer": "integer", "boolean": "boolean"}


class EntityRoutes:
    """Reads and changes entities on behalf of visitors."""

    def __init__(self, services: Services, sender: Sender) -> None:
        self._limits = services.config.limits
        self._sender = sender
        self._intake = BodyReader(services.documents.files.receiver, sender.in_thread, services.limits.large_bodies)

    async def read(self, call: RouteCall, route: Route) -> Body:
        """Read the body of the request, which has no files."""
        if call.request.method not in WITH_BODY:
            return Body()
        limits = BodyLimits(self._limits.json_body_kb << 10, self._limits.json_depth, None)
        return await self._intake.read(call.request, limits)

    async def run(self, call: RouteCall, match: Match, body: Body) -> Reply:
        """Run the operation; entities that the rules hide are answered with 404, forbidden operations with 403."""
        query = read_fields(call.request.query_string)
        return await self._sender.in_thread(partial(self._perform, call, match, query, body))

    def _perform(self, call: RouteCall, match: Match, query: dict[str, Any], body: Body) -> Reply:
        collection, entity_id = match.route.entities, match.values.get("id", "")
        target = (call.tenant, _requester(call), collection)
        try:
            if match.operation == "list":
                page = access.list_visible(*target, self._read_query(query, LIST_PARAMS))
                fields = {"next_cursor": page.next_cursor, "total": page.total}
                meta = {name: value for name, value in fields.items() if value is not None}
                return as_json(200, {"success": True, "data": page.items, "meta": meta})
            if match.operation == "view":
                view_query = datapool.parse_query(self._read_query(query, VIEW_PARAMS))
                return _entity(200, access.get_visible(*target, entity_id, query=view_query))
            if query:
                raise InvalidRequest(Sentence("this operation has no parameters; remove %(query)s", query=repr(min(query)[:60])))
            if match.operation == "delete":
                access.delete_allowed(*target, entity_id, if_version=_expected_version(call))
                return as_json(200, {"success": True, "data": {"deleted": entity_id}})
            values = self._values(call, collection, body)
            if match.operation == "create":
                return _entity(201, access.create_allowed(*target, values))
            return _entity(200, access.update_allowed(*target, entity_id, values, if_version=_expected_version(call)))
        except PolicyDenied as error:
            raise PolicyDenied("you do not have permission to do this") from error
        except NotFound as error:
            raise NotFound("there is nothing at this address") from error

    def _values(self, call: RouteCall, collection: str, body: Body) -> Any:
        if not isinstance(body.values, dict):
            raise ValidationFailed("the body must be a JSON object", pointer="")
        if not body.is_form:
            return body.values
        fields = datapool.get_collection(call.tenant, collection)["fields"]
        return convert_texts(body.values, {"properties": {each["name"]: {"type": _TYPES.get(each["type"])} for each in fields}})

    def _read_query(self, params: Mapping[str, Any], allowed: tuple[str, ...]) -> dict[str, Any]:
        """Parse query parameters; InvalidRequest for unknown or repeated ones, or values beyond the limits."""
        query: dict[str, Any] = {}
        for name, value in params.items():
            if name not in allowed:
                raise InvalidRequest(
                    Sentence(
                        "unknown parameter %(name)s; available are %(known)s",
                        name=repr(name[:60]), known=", ".join(allowed),
                    ),
                    pointer=f"/{name[:60]}",
                )
            if not isinstance(value, str):
                raise InvalidRequest(
                    Sentence("the parameter %(name)s is repeated; send it once", name=name), pointer=f"/{name}"
                )
            query[name] = str(value)
        limit = min(MOST_LISTED, self._limits.query_rows)
        if "limit" in query:
            if not _NUMBER.fullmatch(query["limit"]) or not 1 <= int(query["limit"]) <= limit:
                raise InvalidRequest(Sentence("limit must be between 1 and %(most)s", most=limit), pointer="/limit")
            query["limit"] = int(query["limit"])
        if "filter" in query:
            try:
                query["filter"] = load_json(query["filter"].encode(), self._limits.json_depth)
            except InvalidJson as error:
                raise InvalidFilter('filter must be JSON such as {"total": {"_gt": 100}}', pointer="/filter") from error
        return query


def _requester(call: RouteCall) -> Requester:
    visitor = call.visitor
    return Requester(visitor.kind, visitor.id, visitor.email, visitor.roles, call.app, call.request.method)


def _entity(status: int, entity: Mapping[str, Any]) -> Reply:
    tag = () if entity.get("_version") is None else (("etag", f'"{entity["_version"]}"'),)
    return as_json(status, {"success": True, "data": entity}, *tag)


def _expected_version(call: RouteCall) -> int | None:
    header = call.request.headers.get("if-match")
    if header is None or header.strip() == "*":
        return None
    match = _ETAG.fullmatch(header)
    if match is None:
        raise ValidationFailed('If-Match must be one ETag in quotes, such as "3"', pointer="/If-Match")
    return int(match[1])
