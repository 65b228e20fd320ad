"""Routes: validation with pointers to each problem, and mapping of requests to the input of a process."""

import io
from typing import Any

import pytest

from appliance.blobs import Blobs
from appliance.core.errors import ValidationFailed
from appliance.core.scope import TenantScope
from appliance.solutions import write_zip
from appliance.webapps.access.visitors import Visitor
from appliance.webapps.files.archive import read_settings, validate_settings
from appliance.webapps.routes.mapping import RequestData, Text, map_input
from appliance.webapps.routes.route_table import RouteTable
from appliance.webapps.routes.routes import RateLimit, Upload, find_conflicts, parse_routes
from appliance.webapps.service import FileSpec, NewVersion, Settings, WebApps

ORDER: dict[str, Any] = {"path": "/api/orders/:id", "method": "POST", "process": "place-order", "access": "public"}
STOCK: dict[str, Any] = {"path": "/api/stock", "entities": "stock", "operations": ["list", "view", "create"], "access": "member"}
FULL = {
    **ORDER, "wait": 2.5, "input": {"order": "$body", "by": "$visitor.email", "n": "$path.id", "q": ["$query.q", "$$5", 7]},
    "rate_limit": {"requests": 3, "window_s": 60, "per": "session"}, "then": "/thanks.html",
    "upload": {"folder": "uploads/2026", "max_mb": 0.5, "types": ["image/*", "application/pdf"]},
}  # fmt: skip


def test_a_complete_route_is_parsed() -> None:
    route, entities = parse_routes([FULL, STOCK])
    assert (route.path, route.method, route.process, route.wait, route.then) == (
        "/api/orders/:id", "POST", "place-order", 2.5, "/thanks.html",
    )  # fmt: skip
    assert route.rate_limit == RateLimit(3, 60, "session")
    assert route.upload == Upload("uploads/2026", 0.5, ("image/*", "application/pdf"))
    assert route.input == FULL["input"]
    assert (entities.entities, entities.operations, entities.access) == ("stock", ("list", "view", "create"), "member")
    assert parse_routes([ORDER])[0].wait == 10


WRONG = [
    ("a list of routes", "/routes/0", "a route must be an object"),
    ({**ORDER, "entities": "stock"}, "/routes/0", "either a process or entities"),
    ({"path": "/a", "access": "public"}, "/routes/0", "either a process or entities"),
    ({**ORDER, "cors": True}, "/routes/0/cors", "unknown field 'cors'"),
    ({**STOCK, "wait": 1}, "/routes/0/wait", "unknown field 'wait'"),
    ({**ORDER, "path": "api"}, "/routes/0/path", "begin with /"),
    ({**ORDER, "path": "/_gos/executions"}, "/routes/0/path", "reserved for the appliance"),
    ({**ORDER, "path": "/_GOS"}, "/routes/0/path", "reserved for the appliance"),
    ({**ORDER, "path": "/a//b"}, "/routes/0/path", "'' is not a valid path segment"),
    ({**ORDER, "path": "/a/../b"}, "/routes/0/path", "'..' is not a valid"),
    ({**ORDER, "path": "/a/*"}, "/routes/0/path", "'*' is not a valid"),
    ({**ORDER, "path": "/:a/:a"}, "/routes/0/path", "only once"),
    ({**ORDER, "path": "/" + "a" * 200}, "/routes/0/path", "at most 200"),
    ({**ORDER, "method": "OPTIONS"}, "/routes/0/method", "method must be one of"),
    ({**ORDER, "process": "Place Order"}, "/routes/0/process", "not a valid name"),
    ({**ORDER, "wait": 31}, "/routes/0/wait", "up to 30"),
    ({**ORDER, "wait": True}, "/routes/0/wait", "up to 30"),
    ({name: value for name, value in ORDER.items() if name != "access"}, "/routes/0/access", "public, signed_in or member"),
    ({**ORDER, "access": "everybody"}, "/routes/0/access", "public, signed_in or member"),
    ({**ORDER, "input": "all"}, "/routes/0/input", "input must be an object"),
    ({**ORDER, "input": {"a": "$env.HOME"}}, "/routes/0/input/a", "'$env.HOME' is not valid"),
    ({**ORDER, "input": {"a": ["$path.number"]}}, "/routes/0/input/a/0", "not a placeholder of the path, which has $path.id"),
    ({**ORDER, "input": {"a": "$visitor.session"}}, "/routes/0/input/a", "available fields of the visitor"),
    ({**ORDER, "input": {"a": "$query.a.b"}}, "/routes/0/input/a", "has no fields"),
    ({**ORDER, "input": {"a": "$body.a b"}}, "/routes/0/input/a", "is not valid"),
    ({**ORDER, "input": {"a": float("inf")}}, "/routes/0/input/a", "not valid in JSON"),
    ({**ORDER, "method": "GET", "input": {"a": "$body.a"}}, "/routes/0/input/a", "$body is not available"),
    ({**ORDER, "method": "GET", "then": "/x"}, "/routes/0/then", "needs a body"),
    ({**ORDER, "then": "//evil.example"}, "/routes/0/then", "a page of this app"),
    ({**ORDER, "then": "https://evil.example"}, "/routes/0/then", "a page of this app"),
    ({**ORDER, "rate_limit": {"requests": 0, "window_s": 1}}, "/routes/0/rate_limit/requests", "an integer from 1"),
    ({**ORDER, "rate_limit": {"requests": 1, "window_s": 1, "per": "key"}}, "/routes/0/rate_limit/per", "address or session"),
    ({**ORDER, "upload": {"folder": "../x", "types": ["image/*"]}}, "/routes/0/upload/folder", "folder of documents"),
    ({**ORDER, "upload": {"folder": "x", "types": []}}, "/routes/0/upload/types", "media types"),
    ({**ORDER, "upload": {"folder": "x", "types": ["*/*"]}}, "/routes/0/upload/types", "media types"),
    ({**STOCK, "operations": ["drop"]}, "/routes/0/operations", "of list, view"),
    ({**STOCK, "operations": ["list", "list"]}, "/routes/0/operations", "listed only once"),
    ({**STOCK, "path": "/stock/:id"}, "/routes/0/path", "cannot have a placeholder"),
]  # fmt: skip


@pytest.mark.parametrize(("route", "pointer", "message"), WRONG)
def test_a_problem_is_reported_with_its_pointer(route: Any, pointer: str, message: str) -> None:
    with pytest.raises(ValidationFailed) as refused:
        parse_routes([route])
    assert (refused.value.details[0].pointer, message in refused.value.message) == (pointer, True)


def test_all_problems_are_reported_at_once() -> None:
    with pytest.raises(ValidationFailed, match="2 problems") as refused:
        parse_routes([{**ORDER, "wait": 99}, STOCK, {**ORDER, "method": "X"}])
    assert [each.pointer for each in refused.value.details] == ["/routes/0/wait", "/routes/2/method"]


def test_two_routes_cannot_handle_the_same_request() -> None:
    with pytest.raises(ValidationFailed, match="already handled by the route /api/orders/:id"):
        parse_routes([ORDER, {**ORDER, "path": "/api/orders/:number"}])
    with pytest.raises(ValidationFailed, match=r"GET /api/stock/:x is already handled"):
        parse_routes([STOCK, {**ORDER, "path": "/api/stock/:x", "method": "GET"}])
    assert len(parse_routes([ORDER, {**ORDER, "method": "PUT"}])) == 2


def test_a_version_has_at_most_a_hundred_routes() -> None:
    routes = [{**ORDER, "path": f"/r{number}"} for number in range(101)]
    assert len(parse_routes(routes[:100])) == 100
    with pytest.raises(ValidationFailed, match="at most 100"):
        parse_routes(routes)


def test_the_more_specific_path_wins() -> None:
    table = RouteTable(parse_routes([ORDER, {**ORDER, "path": "/api/orders/latest", "process": "other"}, STOCK]))
    latest, other = table.find("POST", "/api/orders/latest"), table.find("POST", "/api/orders/7")
    assert latest is not None
    assert other is not None
    assert (latest.route.process, other.route.process, other.values) == ("other", "place-order", {"id": "7"})
    assert table.find("GET", "/api/orders/7") is None
    for path in ("/api/orders/", "/api/orders/7/8", "/api/Orders/7", "/"):
        assert table.find("POST", path) is None
    view = table.find("GET", "/api/stock/ent_1")
    assert view is not None
    assert (view.operation, view.values) == ("view", {"id": "ent_1"})
    assert table.find("DELETE", "/api/stock/ent_1") is None
    assert (table.methods("/api/stock"), table.methods("/api/stock/1"), table.methods("/x")) == (["GET", "POST"], ["GET"], [])


def test_reserved_paths_never_match_a_route() -> None:
    table = RouteTable(parse_routes([{**ORDER, "path": "/:shop/:kind/:id", "method": "GET"}]))
    for path in ("/_gos/executions/x", "/_gos/sign-in/x"):
        assert (table.find("GET", path), table.methods(path)) == (None, [])
    assert table.find("GET", "/_goose/executions/x") is not None


def test_a_file_hidden_by_a_route_is_named() -> None:
    routes = parse_routes([{**ORDER, "path": "/api/:id", "method": "GET"}, {**ORDER, "path": "/contact"}])
    for path in ("api/list.json", "api/list.html", "api/list/index.html"):
        assert [each.message for each in find_conflicts(routes, [path])] == [
            f"the route /api/:id would hide the file {path}; rename one"
        ]
    assert find_conflicts(routes, ["contact.html", "api.html", "api/a/b.json", "index.html"]) == []


@pytest.mark.parametrize(
    ("access", "visitors", "message"),
    [
        ("public", "signed_in", "has no sign-in"), ({"password": {"secret": "DOOR"}}, "member", "has no sign-in"),
        ({"email": {"integration": "post", "allow": ["a@b.example"]}}, "member", "members do not sign in"),
    ],
)  # fmt: skip
def test_a_route_for_visitors_that_cannot_exist_is_refused(access: Any, visitors: str, message: str) -> None:
    with pytest.raises(ValidationFailed, match=f"the route /api/orders/:id is for .* {message}") as refused:
        validate_settings({"routes": [{**ORDER, "access": visitors}], "access": access})
    assert refused.value.details[0].pointer == "/routes/0/access"
    for fine in ("members", {"members": None}):
        assert validate_settings({"routes": [{**ORDER, "access": visitors}], "access": fine}).routes


SCHEMA = {
    "type": "object",
    "properties": {
        "n": {"type": "integer"}, "price": {"type": "number"}, "gift": {"type": "boolean"}, "name": {"type": "string"},
        "tags": {"type": "array", "items": {"type": "integer"}},
    },
}  # fmt: skip


def test_the_input_follows_the_mapping() -> None:
    visitor = Visitor("user", "usr_1", "a@b.example", "s")
    sent = RequestData({"id": "7"}, {"q": "x"}, {"name": "Ada", "deep": {"er": [1]}}, visitor)
    mapped = map_input(FULL["input"], sent)
    assert mapped == {"order": {"name": "Ada", "deep": {"er": [1]}}, "by": "a@b.example", "n": "7", "q": ["x", "$5", 7]}
    assert map_input({"e": "$body.deep.er", "no": "$body.none.at", "m": "$body.name.x", "k": "$visitor.kind"}, sent) == {
        "e": [1], "k": "user",
    }  # fmt: skip
    assert map_input({"by": "$visitor.email", "of": "$visitor.roles", "q": "$query.none"}, RequestData()) == {}
    member = RequestData(visitor=Visitor("member", "usr_1", roles=("viewer", "approver")))
    assert map_input({"of": "$visitor.roles"}, member, {"properties": {"of": {"type": "array"}}}) == {"of": ["viewer", "approver"]}


def test_without_a_mapping_the_request_is_passed_on_and_the_path_wins() -> None:
    assert map_input(None, RequestData({"id": "7"}, {"id": "8"}, {"id": "9", "a": 1})) == {"id": "7", "a": 1}
    assert map_input(None, RequestData({}, {"q": "x"})) == {"q": "x"}
    assert map_input("$body", RequestData({}, {}, {"a": None})) == {"a": None}
    for body in ([1], "text", 7):
        for mapping in (None, "$body"):
            with pytest.raises(ValidationFailed, match="must be a JSON object"):
                map_input(mapping, RequestData(body=body))


def test_form_values_are_converted_to_the_schema() -> None:
    form = {name: Text(value) for name, value in {"n": "7", "price": "1.5", "gift": "on", "name": "12", "tags": "3"}.items()}
    assert map_input(None, RequestData(body=form), SCHEMA) == {"n": 7, "price": 1.5, "gift": True, "name": "12", "tags": [3]}
    assert map_input({"n": "$query.n"}, RequestData(query={"n": Text("")}), SCHEMA) == {}
    assert map_input(None, RequestData(body={"n": Text("7x"), "price": Text("1e999"), "name": Text("")}), SCHEMA) == {
        "n": "7x", "price": "1e999", "name": "",
    }  # fmt: skip
    assert map_input(None, RequestData(body={"n": "7"}), SCHEMA) == {"n": "7"}


def test_a_version_stores_its_routes(webapps: WebApps, blobs: Blobs, acme: TenantScope) -> None:
    page = blobs.put(acme, b"page")
    files = {"index.html": FileSpec(page.sha256, page.size)}
    settings = validate_settings({"routes": [FULL]})
    assert read_settings(b"routes:\n  - {path: /a, method: GET, process: p, access: public}\n").routes[0]["path"] == "/a"
    version = webapps.create_version(acme, "shop", NewVersion(files, settings))
    webapps.finalize_version(acme, "shop", version.number)
    served = webapps.load_served(acme, "shop", version.number)
    assert served is not None
    assert parse_routes(served.routes) == parse_routes([FULL])
    hiding = Settings(routes=({**ORDER, "path": "/index.html", "method": "GET"},))
    with pytest.raises(ValidationFailed, match="would hide the file index"):
        webapps.create_version(acme, "shop", NewVersion(files, hiding))
    archive = write_zip({"app.yaml": b"routes: [{path: /_gos/x, method: GET, process: p, access: public}]", "index.html": b"x"})
    with pytest.raises(ValidationFailed, match=r"reserved for the appliance"):
        webapps.deploy_archive(acme, "shop", io.BytesIO(archive))
