"""The routes of a version, read and checked: paths of the app that run a process or reach a collection; pure."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

from appliance.core import ids
from appliance.core.errors import Detail, ValidationFailed
from appliance.core.sentences import Sentence

from .mapping import problems_of

MOST_ROUTES = 100
LONGEST_PATH = 200
LONGEST_WAIT = 30.0
RESERVED = "/_gos"
Access = Literal["public", "signed_in", "member"]
ACCESS = ("public", "signed_in", "member")
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
WITH_BODY = ("POST", "PUT", "PATCH")
# What each operation on a collection is called over HTTP: the method, and whether the path ends with the entity's id.
OPERATIONS = {
    "list": ("GET", False), "view": ("GET", True), "create": ("POST", False), "update": ("PATCH", True), "delete": ("DELETE", True),
}  # fmt: skip
_OF_PROCESS = frozenset({"path", "method", "process", "wait", "input", "access", "rate_limit", "upload", "then"})
_OF_ENTITIES = frozenset({"path", "entities", "operations", "access", "rate_limit"})
_WHOM = {"signed_in": "whoever has signed in", "member": "members"}
_NOBODY, _USERS = "nobody signs in to this app", "no members open this app"
# Which visitors an app never has, by its kind of access.
_NEVER = {
    ("public", "signed_in"): _NOBODY, ("public", "member"): _NOBODY, ("password", "signed_in"): _NOBODY,
    ("password", "member"): _NOBODY, ("email", "member"): _USERS, ("oidc", "member"): _USERS,
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
    """What files a route takes, and the folder of documents they go to."""

    folder: str
    max_mb: float
    types: tuple[str, ...]


@dataclass(frozen=True)
class Route:
    """A path that runs `process`, or reaches the collection `entities` by `operations`; `wait` in seconds.

    `input` maps what was sent; None hands it on as it is.  `then` is the page a plain form leads to.
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
        """What stands behind the route, in words."""
        return f"process {self.process!r}" if self.process else f"collection {self.entities!r}"


class _Refused(Exception):
    """What is wrong with one member."""

    def __init__(self, pointer: str, message: str) -> None:
        super().__init__(message)
        self.detail = Detail(pointer, "route_invalid", message)


def parse_routes(given: Any) -> tuple[Route, ...]:
    """The routes as they are written in a manifest or in `app.yaml`; ValidationFailed lists everything that is wrong."""
    if not isinstance(given, list | tuple):
        raise ValidationFailed("routes is a list", pointer="/routes")
    if len(given) > MOST_ROUTES:
        raise ValidationFailed(Sentence("a version has at most %(most_routes)s routes", most_routes=MOST_ROUTES), pointer="/routes")
    found: list[Route] = []
    problems: list[Detail] = []
    for index, members in enumerate(given):
        try:
            found.append(_parse_route(members, f"/routes/{index}"))
        except _Refused as refused:
            problems.append(refused.detail)
    problems = problems or list(_doubles(found))
    if problems:
        count = Sentence("%(problems)s problems, the first: ", problems=len(problems)) if len(problems) > 1 else ""
        raise ValidationFailed(
            Sentence("the routes are not valid; %(count)s%(message)s", count=count, message=problems[0].message), details=problems
        )
    return tuple(found)


def endpoints_of(route: Route) -> list[tuple[str, tuple[str, ...], str]]:
    """Every (method, parts of the path, operation) the route answers; the operation is empty for a process."""
    parts = tuple(route.path.split("/")[1:])
    if route.process:
        return [(route.method, parts, "")]
    return [
        (OPERATIONS[name][0], (*parts, ":id") if OPERATIONS[name][1] else parts, name) for name in route.operations
    ]  # fmt: skip


def find_conflicts(routes: Iterable[Route], paths: Iterable[str]) -> list[Detail]:
    """Files that a route which answers GET would hide, each named."""
    asked = [(route, parts) for route in routes for method, parts, _ in endpoints_of(route) if method == "GET"]
    problems: list[Detail] = []
    for path in paths if asked else ():
        parts = path.removesuffix(".html").removesuffix("/index").split("/")
        for route, wanted in asked:
            if fits(wanted, path.split("/")) is not None or fits(wanted, parts) is not None:
                problems.append(
                    Detail(
                        "/routes",
                        "route_invalid",
                        Sentence("the route %(path)s would hide the file %(path2)s; rename one", path=route.path, path2=path),
                    )
                )
    return problems


def refuse_unreachable(routes: Iterable[Route], kind: str) -> None:
    """ValidationFailed names the routes that ask for a visitor whom an app with this kind of access never has."""
    problems = [
        Detail(
            f"/routes/{index}/access",
            "route_invalid",
            Sentence("the route %(path)s is for %(whom)s, and %(told)s", path=route.path, whom=_WHOM[route.access], told=told),
        )
        for index, route in enumerate(routes)
        if (told := _NEVER.get((kind, route.access)))
    ]
    if problems:
        raise ValidationFailed(
            Sentence("%(message)s; change its access, or that of the app", message=problems[0].message), details=problems
        )


def fits(wanted: tuple[str, ...], parts: list[str]) -> dict[str, str] | None:
    """What the placeholders of a path stand for; None when the path is another."""
    if len(wanted) != len(parts):
        return None
    values: dict[str, str] = {}
    for want, part in zip(wanted, parts, strict=True):
        if want.startswith(":") and part:
            values[want[1:]] = part
        elif want != part:
            return None
    return values


def _doubles(routes: Iterable[Route]) -> Iterable[Detail]:
    taken: dict[tuple[str, tuple[str, ...]], str] = {}
    for index, route in enumerate(routes):
        for method, parts, _ in endpoints_of(route):
            key = (method, tuple(":" if part.startswith(":") else part for part in parts))
            if key in taken:
                yield Detail(
                    f"/routes/{index}/path",
                    "route_invalid",
                    Sentence(
                        "%(method)s %(path)s is answered by %(taken)s already", method=method, path=route.path, taken=taken[key]
                    ),
                )
            taken.setdefault(key, f"the route {route.path}")


def _parse_route(given: Any, at: str) -> Route:
    if not isinstance(given, Mapping):
        raise _Refused(at, "a route is an object such as {path: /api/orders, method: POST, process: place-order, access: public}")
    if ("process" in given) == ("entities" in given):
        raise _Refused(at, "a route has either a process or entities")
    known = _OF_PROCESS if "process" in given else _OF_ENTITIES
    for name in given:
        if name not in known:
            raise _Refused(
                f"{at}/{str(name)[:60]}",
                Sentence(
                    "%(name)s is not a member of such a route; known: %(known)s",
                    name=repr(str(name)[:60]), known=", ".join(sorted(known)),
                ),
            )
    path, names = _path(given.get("path"), f"{at}/path")
    access = given.get("access")
    if access not in ACCESS:
        raise _Refused(f"{at}/access", "access says who may call the route: public, signed_in or member")
    shared: dict[str, Any] = {
        "path": path,
        "access": cast(Access, access),
        "rate_limit": _rate_limit(given.get("rate_limit"), f"{at}/rate_limit"),
    }
    if "entities" in given:
        return Route(**shared, **_entities(given, at, names))
    return Route(**shared, **_process(given, at, names))


def _path(path: Any, at: str) -> tuple[str, list[str]]:
    if not isinstance(path, str) or not path.startswith("/") or len(path) > LONGEST_PATH:
        raise _Refused(at, Sentence("a path begins with / and has at most %(longest_path)s characters", longest_path=LONGEST_PATH))
    if path.lower() == RESERVED or path.lower().startswith(f"{RESERVED}/"):
        raise _Refused(at, Sentence("%(reserved)s is the appliance's own; choose another path", reserved=RESERVED))
    names = []
    for part in path.split("/")[1:]:
        if _PLACEHOLDER.fullmatch(part):
            names.append(part[1:])
        elif not _PART.fullmatch(part):
            raise _Refused(
                at,
                Sentence(
                    "%(part)s is no part of a path: use letters, digits and . _ ~ -, or a placeholder such as :id",
                    part=repr(part[:60]),
                ),
            )
    if len(names) != len(set(names)):
        raise _Refused(at, "a placeholder comes once in a path")
    return path, names


def _process(given: Mapping[str, Any], at: str, names: list[str]) -> dict[str, Any]:
    process, method = given["process"], given.get("method")
    try:
        ids.check_slug(process if isinstance(process, str) else "", pointer=f"{at}/process")
    except ValidationFailed as error:
        raise _Refused(f"{at}/process", error.message) from error
    if method not in METHODS:
        raise _Refused(f"{at}/method", Sentence("method is one of %(methods)s", methods=', '.join(METHODS)))
    wait = given.get("wait", 10)
    if isinstance(wait, bool) or not isinstance(wait, int | float) or not 0 <= wait <= LONGEST_WAIT:
        raise _Refused(
            f"{at}/wait", Sentence("wait is a number of seconds from 0 to %(longest_wait)s", longest_wait=f"{LONGEST_WAIT:.0f}")
        )
    if wrong := problems_of(given.get("input"), names, with_body=method in WITH_BODY):
        raise _Refused(f"{at}/input{wrong[0]}", wrong[1])
    then = given.get("then", "")
    if then and (not isinstance(then, str) or not _PAGE.fullmatch(then)):
        raise _Refused(f"{at}/then", "then is a page of this app, such as /thanks.html")
    for name in ("then", "upload"):
        if given.get(name) and method not in WITH_BODY:
            raise _Refused(f"{at}/{name}", Sentence("%(name)s needs a body, which a %(method)s has not", name=name, method=method))
    return {
        "method": method, "process": process, "wait": float(wait), "input": given.get("input"), "then": then,
        "upload": _upload(given.get("upload"), f"{at}/upload"),
    }  # fmt: skip


def _entities(given: Mapping[str, Any], at: str, names: list[str]) -> dict[str, Any]:
    collection, operations = given["entities"], given.get("operations")
    if not isinstance(collection, str) or not _COLLECTION.fullmatch(collection):
        raise _Refused(f"{at}/entities", "entities is the name of a collection")
    if names:
        raise _Refused(f"{at}/path", "the path of entities has no placeholder; the appliance adds the id itself")
    if not isinstance(operations, list | tuple) or not operations or any(name not in OPERATIONS for name in operations):
        raise _Refused(
            f"{at}/operations", Sentence("operations lists what is offered, of %(operations)s", operations=", ".join(OPERATIONS))
        )
    if len(set(operations)) != len(operations):
        raise _Refused(f"{at}/operations", "an operation is listed once")
    return {"entities": collection, "operations": tuple(operations)}


def _rate_limit(given: Any, at: str) -> RateLimit | None:
    if given is None:
        return None
    if not isinstance(given, Mapping) or not given.keys() <= {"requests", "window_s", "per"}:
        raise _Refused(at, "rate_limit is {requests, window_s, per}")
    for name, most in (("requests", 100_000), ("window_s", 86_400)):
        if isinstance(given.get(name), bool) or not isinstance(given.get(name), int) or not 1 <= given[name] <= most:
            raise _Refused(f"{at}/{name}", Sentence("%(name)s is a whole number from 1 to %(most)s", name=name, most=most))
    if given.get("per", "address") not in ("address", "session"):
        raise _Refused(f"{at}/per", "per is address or session")
    return RateLimit(given["requests"], given["window_s"], given.get("per", "address"))


def _upload(given: Any, at: str) -> Upload | None:
    if given is None:
        return None
    if not isinstance(given, Mapping) or not given.keys() <= {"folder", "max_mb", "types"}:
        raise _Refused(at, "upload is {folder, max_mb, types}")
    folder, most, types = given.get("folder"), given.get("max_mb", 10), given.get("types")
    if not isinstance(folder, str) or not _FOLDER.fullmatch(folder):
        raise _Refused(f"{at}/folder", "folder is a folder of documents, such as uploads/invoices")
    if isinstance(most, bool) or not isinstance(most, int | float) or not 0 < most <= 10_000:
        raise _Refused(f"{at}/max_mb", "max_mb is the most megabytes of one file")
    if not isinstance(types, list | tuple) or not 1 <= len(types) <= 50 or any(not _is_type(each) for each in types):
        raise _Refused(f"{at}/types", "types lists the media types that are taken, such as image/png, image/* or application/pdf")
    return Upload(folder, float(most), tuple(types))


def _is_type(given: Any) -> bool:
    return isinstance(given, str) and _TYPE.fullmatch(given) is not None
