"""The routes of a version: paths of the app that run a process or access a collection. Parsing and validation; pure functions."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

from appliance.core import ids
from appliance.core.errors import Detail, ValidationFailed
from appliance.core.sentences import Sentence

from .mapping import find_problem

MOST_ROUTES = 100
LONGEST_PATH = 200
LONGEST_WAIT = 30.0
RESERVED = "/_gos"
Access = Literal["public", "signed_in", "member"]
ACCESS = ("public", "signed_in", "member")
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
WITH_BODY = ("POST", "PUT", "PATCH")
# The HTTP method of each operation on a collection, and whether the path ends with the entity's id.
OPERATIONS = {
    "list": ("GET", False), "view": ("GET", True), "create": ("POST", False), "update": ("PATCH", True), "delete": ("DELETE", True),
}  # fmt: skip
_PROCESS_FIELDS = frozenset({"path", "method", "process", "wait", "input", "access", "rate_limit", "upload", "then"})
_ENTITIES_FIELDS = frozenset({"path", "entities", "operations", "access", "rate_limit"})
_AUDIENCES = {"signed_in": "signed-in visitors", "member": "members"}
_NO_SIGN_IN, _NO_MEMBERS = "this app has no sign-in", "members do not sign in to this app"
# Combinations that can never be satisfied: (access of the app, access of the route).
_UNREACHABLE = {
    ("public", "signed_in"): _NO_SIGN_IN, ("public", "member"): _NO_SIGN_IN, ("password", "signed_in"): _NO_SIGN_IN,
    ("password", "member"): _NO_SIGN_IN, ("email", "member"): _NO_MEMBERS, ("oidc", "member"): _NO_MEMBERS,
}  # fmt: skip
_PART = re.compile(r"[A-Za-z0-9_~-][A-Za-z0-9._~-]*")
_PLACEHOLDER = re.compile(r":[A-Za-z_][A-Za-z0-9_]{0,49}")
_COLLECTION = re.compile(r"[a-z]([a-z0-9_-]{0,61}[a-z0-9])?")
_FOLDER = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._-]{0,80}(/[A-Za-z0-9][A-Za-z0-9 ._-]{0,80}){0,5}")
_TYPE = re.compile(r"[a-z]{1,40}/(\*|[a-z0-9][a-z0-9.+-]{0,99})")
_PAGE = re.compile(r"/(?![/\\])[A-Za-z0-9._~/?=&%#-]{0,199}")


@dataclass(frozen=True)
class RateLimit:
    """How often one address, or one session, may call a route."""

    requests: int
    window_s: int
    per: Literal["address", "session"] = "address"


@dataclass(frozen=True)
class Upload:
    """The files that a route accepts, and the folder of documents that receives them."""

    folder: str
    max_mb: float
    types: tuple[str, ...]


@dataclass(frozen=True)
class Route:
    """A path that runs `process`, or accesses the collection `entities` with `operations`; `wait` in seconds.

    `input` maps the request to the input of the process; None passes it on unchanged. `then` is the page shown after a plain
    form was submitted.
    """

    path: str
    access: Access
    method: str = ""
    process: str = ""
    entities: str = ""
    operations: tuple[str, ...] = ()
    wait: float = 10.0
    input: Any = None
    rate_limit: RateLimit | None = None
    upload: Upload | None = None
    then: str = ""

    @property
    def target(self) -> str:
        """What the route leads to, in words."""
        return f"process {self.process!r}" if self.process else f"collection {self.entities!r}"


class _InvalidRoute(Exception):
    """A field of a route is invalid."""

    def __init__(self, pointer: str, message: str) -> None:
        super().__init__(message)
        self.detail = Detail(pointer, "route_invalid", message)


def parse_routes(raw: Any) -> tuple[Route, ...]:
    """Parse the routes of a manifest or `app.yaml`; ValidationFailed lists every problem."""
    if not isinstance(raw, list | tuple):
        raise ValidationFailed("routes must be a list", pointer="/routes")
    if len(raw) > MOST_ROUTES:
        raise ValidationFailed(Sentence("a version has at most %(most_routes)s routes", most_routes=MOST_ROUTES), pointer="/routes")
    routes: list[Route] = []
    problems: list[Detail] = []
    for index, members in enumerate(raw):
        try:
            routes.append(_parse_route(members, f"/routes/{index}"))
        except _InvalidRoute as refused:
            problems.append(refused.detail)
    problems = problems or list(_find_duplicates(routes))
    if problems:
        count = Sentence("%(problems)s problems; the first is: ", problems=len(problems)) if len(problems) > 1 else ""
        raise ValidationFailed(
            Sentence("the routes are not valid; %(count)s%(message)s", count=count, message=problems[0].message), details=problems
        )
    return tuple(routes)


def endpoints_of(route: Route) -> list[tuple[str, tuple[str, ...], str]]:
    """Every (method, path segments, operation) of the route; the operation is empty for a process."""
    parts = tuple(route.path.split("/")[1:])
    if route.process:
        return [(route.method, parts, "")]
    return [
        (OPERATIONS[name][0], (*parts, ":id") if OPERATIONS[name][1] else parts, name) for name in route.operations
    ]  # fmt: skip


def find_conflicts(routes: Iterable[Route], paths: Iterable[str]) -> list[Detail]:
    """Problems for files that a GET route would hide."""
    get_routes = [(route, parts) for route in routes for method, parts, _ in endpoints_of(route) if method == "GET"]
    problems: list[Detail] = []
    for path in paths if get_routes else ():
        parts = path.removesuffix(".html").removesuffix("/index").split("/")
        for route, pattern in get_routes:
            if match_parts(pattern, path.split("/")) is not None or match_parts(pattern, parts) is not None:
                problems.append(
                    Detail(
                        "/routes",
                        "route_invalid",
                        Sentence("the route %(path)s would hide the file %(path2)s; rename one", path=route.path, path2=path),
                    )
                )
    return problems


def check_reachable(routes: Iterable[Route], kind: str) -> None:
    """ValidationFailed for routes whose visitors can never sign in to an app with this kind of access."""
    problems = [
        Detail(
            f"/routes/{index}/access",
            "route_invalid",
            Sentence("the route %(path)s is for %(who)s, but %(why)s", path=route.path, who=_AUDIENCES[route.access], why=reason),
        )
        for index, route in enumerate(routes)
        if (reason := _UNREACHABLE.get((kind, route.access)))
    ]
    if problems:
        raise ValidationFailed(
            Sentence("%(message)s; change the access of the route or of the app", message=problems[0].message), details=problems
        )


def match_parts(pattern: tuple[str, ...], parts: list[str]) -> dict[str, str] | None:
    """The values of the placeholders, or None when the path does not match."""
    if len(pattern) != len(parts):
        return None
    values: dict[str, str] = {}
    for expected, part in zip(pattern, parts, strict=True):
        if expected.startswith(":") and part:
            values[expected[1:]] = part
        elif expected != part:
            return None
    return values


def _find_duplicates(routes: Iterable[Route]) -> Iterable[Detail]:
    owners: dict[tuple[str, tuple[str, ...]], str] = {}
    for index, route in enumerate(routes):
        for method, parts, _ in endpoints_of(route):
            key = (method, tuple(":" if part.startswith(":") else part for part in parts))
            if key in owners:
                yield Detail(
                    f"/routes/{index}/path",
                    "route_invalid",
                    Sentence(
                        "%(method)s %(path)s is already handled by %(taken)s", method=method, path=route.path, taken=owners[key]
                    ),
                )
            owners.setdefault(key, f"the route {route.path}")


def _parse_route(raw: Any, at: str) -> Route:
    if not isinstance(raw, Mapping):
        raise _InvalidRoute(
            at, "a route must be an object such as {path: /api/orders, method: POST, process: place-order, access: public}"
        )
    if ("process" in raw) == ("entities" in raw):
        raise _InvalidRoute(at, "a route must have either a process or entities")
    fields = _PROCESS_FIELDS if "process" in raw else _ENTITIES_FIELDS
    for name in raw:
        if name not in fields:
            raise _InvalidRoute(
                f"{at}/{str(name)[:60]}",
                Sentence(
                    "unknown field %(name)s; this kind of route has %(known)s",
                    name=repr(str(name)[:60]), known=", ".join(sorted(fields)),
                ),
            )
    path, names = _path(raw.get("path"), f"{at}/path")
    access = raw.get("access")
    if access not in ACCESS:
        raise _InvalidRoute(f"{at}/access", "access must be public, signed_in or member")
    shared: dict[str, Any] = {
        "path": path,
        "access": cast(Access, access),
        "rate_limit": _rate_limit(raw.get("rate_limit"), f"{at}/rate_limit"),
    }
    if "entities" in raw:
        return Route(**shared, **_entities(raw, at, names))
    return Route(**shared, **_process(raw, at, names))


def _path(path: Any, at: str) -> tuple[str, list[str]]:
    if not isinstance(path, str) or not path.startswith("/") or len(path) > LONGEST_PATH:
        raise _InvalidRoute(
            at, Sentence("a path must begin with / and have at most %(longest_path)s characters", longest_path=LONGEST_PATH)
        )
    if path.lower() == RESERVED or path.lower().startswith(f"{RESERVED}/"):
        raise _InvalidRoute(at, Sentence("%(reserved)s is reserved for the appliance; choose another path", reserved=RESERVED))
    names = []
    for part in path.split("/")[1:]:
        if _PLACEHOLDER.fullmatch(part):
            names.append(part[1:])
        elif not _PART.fullmatch(part):
            raise _InvalidRoute(
                at,
                Sentence(
                    "%(part)s is not a valid path segment: use letters, digits and . _ ~ -, or a placeholder such as :id",
                    part=repr(part[:60]),
                ),
            )
    if len(names) != len(set(names)):
        raise _InvalidRoute(at, "a placeholder can appear only once in a path")
    return path, names


def _process(raw: Mapping[str, Any], at: str, names: list[str]) -> dict[str, Any]:
    process, method = raw["process"], raw.get("method")
    try:
        ids.check_slug(process if isinstance(process, str) else "", pointer=f"{at}/process")
    except ValidationFailed as error:
        raise _InvalidRoute(f"{at}/process", error.message) from error
    if method not in METHODS:
        raise _InvalidRoute(f"{at}/method", Sentence("method must be one of %(methods)s", methods=', '.join(METHODS)))
    wait = raw.get("wait", 10)
    if isinstance(wait, bool) or not isinstance(wait, int | float) or not 0 <= wait <= LONGEST_WAIT:
        raise _InvalidRoute(
            f"{at}/wait", Sentence("wait must be a number of seconds up to %(longest_wait)s", longest_wait=f"{LONGEST_WAIT:.0f}")
        )
    if problem := find_problem(raw.get("input"), names, with_body=method in WITH_BODY):
        raise _InvalidRoute(f"{at}/input{problem[0]}", problem[1])
    then = raw.get("then", "")
    if then and (not isinstance(then, str) or not _PAGE.fullmatch(then)):
        raise _InvalidRoute(f"{at}/then", "then must be a page of this app, such as /thanks.html")
    for name in ("then", "upload"):
        if raw.get(name) and method not in WITH_BODY:
            raise _InvalidRoute(f"{at}/{name}", Sentence("%(name)s needs a body; %(method)s has none", name=name, method=method))
    return {
        "method": method, "process": process, "wait": float(wait), "input": raw.get("input"), "then": then,
        "upload": _upload(raw.get("upload"), f"{at}/upload"),
    }  # fmt: skip


def _entities(raw: Mapping[str, Any], at: str, names: list[str]) -> dict[str, Any]:
    collection, operations = raw["entities"], raw.get("operations")
    if not isinstance(collection, str) or not _COLLECTION.fullmatch(collection):
        raise _InvalidRoute(f"{at}/entities", "entities must be the name of a collection")
    if names:
        raise _InvalidRoute(f"{at}/path", "the path of entities cannot have a placeholder; the appliance adds the id")
    if not isinstance(operations, list | tuple) or not operations or any(name not in OPERATIONS for name in operations):
        raise _InvalidRoute(
            f"{at}/operations", Sentence("operations must list one or more of %(operations)s", operations=", ".join(OPERATIONS))
        )
    if len(set(operations)) != len(operations):
        raise _InvalidRoute(f"{at}/operations", "each operation can be listed only once")
    return {"entities": collection, "operations": tuple(operations)}


def _rate_limit(raw: Any, at: str) -> RateLimit | None:
    if raw is None:
        return None
    if not isinstance(raw, Mapping) or not raw.keys() <= {"requests", "window_s", "per"}:
        raise _InvalidRoute(at, "rate_limit must be {requests, window_s, per}")
    for name, most in (("requests", 100_000), ("window_s", 86_400)):
        if isinstance(raw.get(name), bool) or not isinstance(raw.get(name), int) or not 1 <= raw[name] <= most:
            raise _InvalidRoute(f"{at}/{name}", Sentence("%(name)s must be an integer from 1 to %(most)s", name=name, most=most))
    if raw.get("per", "address") not in ("address", "session"):
        raise _InvalidRoute(f"{at}/per", "per must be address or session")
    return RateLimit(raw["requests"], raw["window_s"], raw.get("per", "address"))


def _upload(raw: Any, at: str) -> Upload | None:
    if raw is None:
        return None
    if not isinstance(raw, Mapping) or not raw.keys() <= {"folder", "max_mb", "types"}:
        raise _InvalidRoute(at, "upload must be {folder, max_mb, types}")
    folder, most, types = raw.get("folder"), raw.get("max_mb", 10), raw.get("types")
    if not isinstance(folder, str) or not _FOLDER.fullmatch(folder):
        raise _InvalidRoute(f"{at}/folder", "folder must be a folder of documents, such as uploads/invoices")
    if isinstance(most, bool) or not isinstance(most, int | float) or not 0 < most <= 10_000:
        raise _InvalidRoute(f"{at}/max_mb", "max_mb must be the maximum size of a file in MB, up to 10000")
    if not isinstance(types, list | tuple) or not 1 <= len(types) <= 50 or any(not _is_type(each) for each in types):
        raise _InvalidRoute(f"{at}/types", "types must list accepted media types, such as image/png, image/* or application/pdf")
    return Upload(folder, float(most), tuple(types))


def _is_type(value: Any) -> bool:
    return isinstance(value, str) and _TYPE.fullmatch(value) is not None
