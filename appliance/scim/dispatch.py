"""Answers the requests of a provider: finds the resource, checks and changes it, and renders it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from scim2_models import Context, ListResponse, Meta, PatchOp, Resource, SearchRequest

from appliance.core.config.sign_in import IdentityProvider
from appliance.core.database import db
from appliance.core.errors import InvalidJson, MethodNotAllowed, NotFound, NotSupported, PolicyDenied, VersionConflict
from appliance.core.json_text import load_json
from appliance.core.sentences import Sentence
from appliance.tenants.provisioning import GroupRecord, Slice, UserRecord, groups, users
from appliance.tenants.single_sign_on import ReservedLogins
from appliance.web import Request, Response

from .errors import CONTENT_TYPE
from .filters import read_filter
from .resources import (
    CONFIG,
    MOST_RESULTS,
    POLICY,
    PROVIDER,
    Group,
    User,
    group_fields,
    group_resource,
    user_fields,
    user_resource,
)

R = TypeVar("R")
PATH = "/scim/v2"
DEFAULT_RESULTS = 100
MOST_OFFSET = 1 << 31
TRIES = 2  # of a PATCH whose resource somebody else changes meanwhile
MOST_DEPTH = 20
_UNSUPPORTED = {"Bulk", "Me", ".search"}


@dataclass(frozen=True)
class ProviderRequest:
    """A request of an authenticated provider, and the logins that it cannot provision."""

    request: Request
    provider: IdentityProvider
    reserved: ReservedLogins
    base_url: str
    body: bytes

    @property
    def method(self) -> str:
        return self.request.method

    def parse_body(self) -> Any:
        """The JSON object of the body; InvalidJson."""
        data = load_json(self.body, MOST_DEPTH)
        if not isinstance(data, dict):
            raise InvalidJson("the body must be a JSON object")
        return data

    def parameters(self, model: type[Resource[Any]]) -> SearchRequest[Any]:
        """The parameters of the query, without the filter."""
        names = ("attributes", "excludedAttributes", "startIndex", "count")
        values = {name: self.request.arg(name) for name in names if self.request.arg(name)}
        parameters: SearchRequest[Any] = SearchRequest[model].model_validate(values)  # type: ignore[valid-type]
        return parameters


def answer_request(call: ProviderRequest, path: str) -> Response:
    """The response; raises the errors that `errors.render_error` renders."""
    if not path.isprintable():  # no id has such characters, and a database may refuse them
        raise NotFound("there is nothing at this address")
    kind, _, name = path.strip("/").partition("/")
    if kind in _UNSUPPORTED or name.endswith(".search"):
        raise NotSupported(Sentence("%(kind)s is not supported here", kind=repr(path[:80])))
    with POLICY:
        if kind == "Users":
            return _answer_user(call, name) if name else _answer_users(call)
        if kind == "Groups":
            return _answer_group(call, name) if name else _answer_groups(call)
        return _describe(call, kind, name)


# -- people


def _answer_users(call: ProviderRequest) -> Response:
    parameters = call.parameters(User)
    if call.method == "POST":
        sent = User.model_validate(_with_active(call.parse_body(), active=True), scim_ctx=Context.RESOURCE_CREATION_REQUEST)
        record = users.create_user(call.provider, call.reserved, user_fields(sent))
        return _respond(201, user_resource(record, call.base_url), Context.RESOURCE_CREATION_RESPONSE, parameters)
    _require(call, "GET", "POST")
    listing = users.list_users(call.provider, read_filter(call.request.arg("filter"), User), _slice(parameters))
    resources = [user_resource(each, call.base_url) for each in listing.items]
    return _list(User, resources, listing.total, parameters)


def _answer_user(call: ProviderRequest, user_id: str) -> Response:
    parameters = call.parameters(User)
    if call.method == "DELETE":
        users.delete_user(call.provider, call.reserved, user_id)
        return Response(204)
    if call.method == "PUT":
        body = _with_active(call.parse_body(), active=users.get_user(call.provider, user_id).active)
        sent = User.model_validate(body, scim_ctx=Context.RESOURCE_REPLACEMENT_REQUEST)
        record = users.replace_user(call.provider, call.reserved, user_id, user_fields(sent), None)
        return _respond(200, user_resource(record, call.base_url), Context.RESOURCE_REPLACEMENT_RESPONSE, parameters)
    if call.method == "PATCH":
        patch = PatchOp[User].model_validate(call.parse_body(), scim_ctx=Context.RESOURCE_PATCH_REQUEST)
        record = _retry(lambda: _patch_user(call, user_id, patch))
        return _respond(200, user_resource(record, call.base_url), Context.RESOURCE_PATCH_RESPONSE, parameters)
    _require(call, "GET", "PUT", "PATCH", "DELETE")
    record = users.get_user(call.provider, user_id)
    return _respond(200, user_resource(record, call.base_url), Context.RESOURCE_QUERY_RESPONSE, parameters)


def _with_active(body: dict[str, Any], *, active: bool) -> dict[str, Any]:
    """The body with `active`, which some providers leave out: that must not bring back whoever has left."""
    return body if any(name.casefold() == "active" for name in body) else {**body, "active": active}


def _patch_user(call: ProviderRequest, user_id: str, patch: PatchOp[User]) -> UserRecord:
    record = users.get_user(call.provider, user_id)
    resource = user_resource(record, call.base_url)
    if not patch.patch(resource):
        return record
    return users.replace_user(call.provider, call.reserved, user_id, user_fields(resource), record.version)


# -- groups


def _answer_groups(call: ProviderRequest) -> Response:
    parameters = call.parameters(Group)
    if call.method == "POST":
        sent = Group.model_validate(call.parse_body(), scim_ctx=Context.RESOURCE_CREATION_REQUEST)
        record = groups.create_group(call.provider, group_fields(sent))
        return _respond(201, group_resource(record, call.base_url), Context.RESOURCE_CREATION_RESPONSE, parameters)
    _require(call, "GET", "POST")
    criteria = read_filter(call.request.arg("filter"), Group)
    listing = groups.list_groups(call.provider, criteria, _slice(parameters), with_members=_wants_members(parameters))
    resources = [group_resource(each, call.base_url) for each in listing.items]
    return _list(Group, resources, listing.total, parameters)


def _answer_group(call: ProviderRequest, group_id: str) -> Response:
    parameters = call.parameters(Group)
    if call.method == "DELETE":
        groups.delete_group(call.provider, group_id)
        return Response(204)
    if call.method == "PUT":
        sent = Group.model_validate(call.parse_body(), scim_ctx=Context.RESOURCE_REPLACEMENT_REQUEST)
        record = groups.replace_group(call.provider, group_id, group_fields(sent), None)
        return _respond(200, group_resource(record, call.base_url), Context.RESOURCE_REPLACEMENT_RESPONSE, parameters)
    if call.method == "PATCH":
        patch = PatchOp[Group].model_validate(call.parse_body(), scim_ctx=Context.RESOURCE_PATCH_REQUEST)
        _retry(lambda: _patch_group(call, group_id, patch))
        return Response(204)  # the members may be many
    _require(call, "GET", "PUT", "PATCH", "DELETE")
    record = groups.get_group(call.provider, group_id, with_members=_wants_members(parameters))
    return _respond(200, group_resource(record, call.base_url), Context.RESOURCE_QUERY_RESPONSE, parameters)


def _patch_group(call: ProviderRequest, group_id: str, patch: PatchOp[Group]) -> GroupRecord:
    record = groups.get_group(call.provider, group_id)
    resource = group_resource(record, call.base_url)
    if not patch.patch(resource):
        return record
    return groups.replace_group(call.provider, group_id, group_fields(resource), record.version)


def _wants_members(parameters: SearchRequest[Any]) -> bool:
    """Whether the members are returned: a list of large groups is call for without them."""
    return not any(str(each).casefold() == "members" for each in parameters.excluded_attributes or ())


# -- what the service is


def _describe(call: ProviderRequest, kind: str, name: str) -> Response:
    """ServiceProviderConfig, ResourceTypes and Schemas (RFC 7644 § 4)."""
    described: dict[str, list[Resource[Any]]] = {
        "ResourceTypes": [each.model_copy() for each in PROVIDER.resource_types],
        "Schemas": [each.model_copy() for each in PROVIDER.schemas],
    }
    if kind == "ServiceProviderConfig" and not name:
        _require(call, "GET")
        return _respond(200, _located(CONFIG.model_copy(), "ServiceProviderConfig", call.base_url + "/ServiceProviderConfig"))
    if kind not in described:
        raise NotFound(Sentence("there is nothing at %(path)s", path=repr(f"{PATH}/{kind}"[:80])))
    _require(call, "GET")
    if call.request.arg("filter"):
        raise PolicyDenied("this list cannot be filtered")
    entries = [
        _located(each, kind.removesuffix("s"), f"{call.base_url}/{kind}/{each.id}") for each in described[kind]
    ]
    if not name:
        return _list(type(entries[0]), entries, len(entries), None)
    for entry in entries:
        if str(entry.id).casefold() == name.casefold():
            return _respond(200, entry)
    raise NotFound(Sentence("there is no %(name)s in %(kind)s", name=repr(name[:80]), kind=kind))


def _located(resource: Resource[Any], kind: str, location: str) -> Resource[Any]:
    resource.meta = Meta(resource_type=kind, location=location)
    return resource


# -- what they share


def _slice(parameters: SearchRequest[Any]) -> Slice:
    count = DEFAULT_RESULTS if parameters.count is None else min(parameters.count, MOST_RESULTS)
    return Slice(min(parameters.start_index_0 or 0, MOST_OFFSET), count)


def _retry(change: Callable[[], R]) -> R:
    """The result of a change of what it has read before; if somebody else keeps changing that meanwhile, inside a write.

    Outside, a change of a group with many members does not keep other writes waiting.
    """
    for _ in range(TRIES):
        try:
            return change()
        except VersionConflict:
            continue
    return db.write(change)


def _require(call: ProviderRequest, *methods: str) -> None:
    if call.method not in methods:
        raise MethodNotAllowed(
            Sentence("%(method)s is not possible here", method=call.method), headers={"Allow": ", ".join(methods)}
        )


def _list(model: type[Resource[Any]], resources: list[Any], total: int, parameters: SearchRequest[Any] | None) -> Response:
    start = (parameters.start_index_0 or 0) + 1 if parameters else 1
    listing = ListResponse[model].model_validate(  # type: ignore[valid-type]
        {"totalResults": total, "startIndex": start, "itemsPerPage": len(resources), "Resources": resources}
    )
    text = listing.model_dump_json(scim_ctx=Context.RESOURCE_QUERY_RESPONSE, response_parameters=parameters)
    return _json(200, text)


def _respond(
    status: int, resource: Resource[Any], context: Context = Context.RESOURCE_QUERY_RESPONSE,
    parameters: SearchRequest[Any] | None = None,
) -> Response:  # fmt: skip
    location = str(resource.meta.location) if resource.meta and resource.meta.location else ""
    return _json(status, resource.model_dump_json(scim_ctx=context, response_parameters=parameters), location)


def _json(status: int, text: str, location: str = "") -> Response:
    headers = {"Content-Type": CONTENT_TYPE, "Cache-Control": "no-store"}
    if status == 201:
        headers["Location"] = location
    return Response(status, text.encode("utf8", "replace"), headers)
