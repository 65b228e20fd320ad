"""Routes that reach a collection: list, view, create, update and delete under its access rules, as REST does for keys."""

import re
from collections.abc import Mapping
from functools import partial
from typing import Any

from appliance.core.errors import InvalidFilter, InvalidJson, InvalidRequest, NotFound, PolicyDenied, ValidationFailed
from appliance.core.json_text import load_json
from appliance.core.sentences import Sentence
from appliance.datapool import Requester, access
from appliance.datapool import service as datapool
from appliance.solutions import Services
from appliance.webapps.routes import WITH_BODY, Match, Route, read_texts

from .route_answers import Reply, as_json
from .route_bodies import Body, BodyLimits, Intake, read_fields
from .route_calls import RouteCall
from .sending import Sender

MOST_LISTED = 100
LISTING = ("filter", "sort", "fields", "expand", "search", "limit", "cursor", "count")
VIEWING = ("fields", "expand")
_ETAG = re.compile(r'\s*(?:W/)?"([0-9]{1,9})"\s*')
_NUMBER = re.compile(r"[0-9]{1,6}")
_TYPES = {"number": "number", "integer": "integer", "boolean": "boolean"}


class EntityRoutes:
    """Reads and changes entities for whoever opens an app."""

    def __init__(self, services: Services, sender: Sender) -> None:
        self._limits = services.config.limits
        self._sender = sender
        self._intake = Intake(services.documents.receiver, sender.in_thread, services.large_bodies)

    async def read(self, call: RouteCall, route: Route) -> Body:
        """What was sent, which has no files."""
        if call.method not in WITH_BODY:
            return Body()
        limits = BodyLimits(self._limits.json_body_kb << 10, self._limits.json_depth, None)
        return await self._intake.read(call.exchange.receive, call.headers, limits, call.tenant.tenant_id)

    async def run(self, call: RouteCall, match: Match, body: Body) -> Reply:
        """The operation's answer; what the rules hide is 404, what they forbid is 403."""
        query = read_fields(call.exchange.scope["query_string"])
        return await self._sender.in_thread(partial(self._perform, call, match, query, body))

    def _perform(self, call: RouteCall, match: Match, query: dict[str, Any], body: Body) -> Reply:
        collection, entity_id = match.route.entities, match.values.get("id", "")
        about = (call.tenant, _requester(call), collection)
        try:
            if match.operation == "list":
                page = access.list_visible(*about, self._read_query(query, LISTING))
                told = {"next_cursor": page.next_cursor, "total": page.total}
                meta = {name: value for name, value in told.items() if value is not None}
                return as_json(200, {"success": True, "data": page.items, "meta": meta})
            if match.operation == "view":
                wanted = datapool.read_query(self._read_query(query, VIEWING))
                return _entity(200, access.get_visible(*about, entity_id, query=wanted))
            if query:
                raise InvalidRequest(Sentence("this takes no parameter; remove %(query)s", query=repr(min(query)[:60])))
            if match.operation == "delete":
                access.delete_allowed(*about, entity_id, if_version=_wanted_version(call))
                return as_json(200, {"success": True, "data": {"deleted": entity_id}})
            values = self._values(call, collection, body)
            if match.operation == "create":
                return _entity(201, access.create_allowed(*about, values))
            return _entity(200, access.update_allowed(*about, entity_id, values, if_version=_wanted_version(call)))
        except PolicyDenied as error:
            raise PolicyDenied("you may not do this here") from error
        except NotFound as error:
            raise NotFound("there is nothing at this address") from error

    def _values(self, call: RouteCall, collection: str, body: Body) -> Any:
        if not isinstance(body.values, dict):
            raise ValidationFailed("the body must be a JSON object", pointer="")
        if not body.is_form:
            return body.values
        fields = datapool.get_collection(call.tenant, collection)["fields"]
        return read_texts(body.values, {"properties": {each["name"]: {"type": _TYPES.get(each["type"])} for each in fields}})

    def _read_query(self, given: Mapping[str, Any], known: tuple[str, ...]) -> dict[str, Any]:
        """The parameters as a query; InvalidRequest for what is unknown, comes twice, or asks for too much."""
        query: dict[str, Any] = {}
        for name, value in given.items():
            if name not in known:
                raise InvalidRequest(
                    Sentence(
                        "the parameter %(name)s is not known here; known are %(known)s",
                        name=repr(name[:60]), known=", ".join(known),
                    ),
                    pointer=f"/{name[:60]}",
                )
            if not isinstance(value, str):
                raise InvalidRequest(
                    Sentence("the parameter %(name)s is given several times; give it once", name=name), pointer=f"/{name}"
                )
            query[name] = str(value)
        most = min(MOST_LISTED, self._limits.query_rows)
        if "limit" in query:
            if not _NUMBER.fullmatch(query["limit"]) or not 1 <= int(query["limit"]) <= most:
                raise InvalidRequest(Sentence("limit must be between 1 and %(most)s", most=most), pointer="/limit")
            query["limit"] = int(query["limit"])
        if "filter" in query:
            try:
                query["filter"] = load_json(query["filter"].encode(), self._limits.json_depth)
            except InvalidJson as error:
                raise InvalidFilter('filter is JSON such as {"total": {"_gt": 100}}', pointer="/filter") from error
        return query


def _requester(call: RouteCall) -> Requester:
    visitor = call.visitor
    return Requester(visitor.kind, visitor.id, visitor.email, visitor.roles, call.app, call.method)


def _entity(status: int, entity: Mapping[str, Any]) -> Reply:
    tag = () if entity.get("_version") is None else (("etag", f'"{entity["_version"]}"'),)
    return as_json(status, {"success": True, "data": entity}, *tag)


def _wanted_version(call: RouteCall) -> int | None:
    given = call.headers.get("if-match")
    if given is None or given.strip() == "*":
        return None
    found = _ETAG.fullmatch(given)
    if found is None:
        raise ValidationFailed('If-Match takes one ETag in quotes, such as "3"', pointer="/If-Match")
    return int(found[1])
