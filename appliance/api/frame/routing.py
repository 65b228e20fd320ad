"""The `route` decorator, which declares a route's path, scope, body, query and answer for dispatch, OpenAPI and tests."""

import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import GenericAlias
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, RootModel, TypeAdapter

from appliance.blobs import ReceivedFile, StoredBlob
from appliance.core.errors import ApplianceError
from appliance.core.pages import DEFAULT_LIMIT, Page, PageRequest
from appliance.core.scope import TenantScope
from appliance.tenants import APPLIANCE_SCOPES, SCOPES, AdmissionSlot, NoSlot, RequestKey, release_nothing
from appliance.web import Services

from .fields import Cursor, ExactCount, Limit, Sort

H = TypeVar("H", bound=Callable[..., Any])
PREFIX = "/api/v1"
Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]


class Body(BaseModel):
    """Base of request bodies: unknown members are refused, and types are not converted."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, defer_build=True)


class Query(BaseModel):
    """Base of query strings: unknown parameters are refused, and texts are converted to the declared type."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class ListQuery(Query):
    """The parameters of every list; `page` is the same as the domains' PageRequest."""

    limit: Limit = DEFAULT_LIMIT
    cursor: Cursor = None
    sort: Sort = None
    count: ExactCount = None

    @property
    def page(self) -> PageRequest:
        return PageRequest(self.limit, self.cursor, self.sort, self.count == "exact")


class View(BaseModel):
    """Base of the views that answers are rendered from."""

    model_config = ConfigDict(frozen=True, defer_build=True)


class Null(RootModel[None]):
    """An explicit null in an answer; a member that is None is omitted, which means that there is no value yet."""


NULL = Null(None)


@dataclass(frozen=True)
class Json:
    """Declares a body without a model: any JSON object (`object`), a definition in JSON or YAML (`document`), an upload
    (`archive`, `lines` of CSV or NDJSON, or any `file`, which may be sent as a form), or a `stream` of bytes that an
    asynchronous handler reads as they arrive.

    An `optional` body may be left out; the handler then gets an empty object.
    """

    kind: Literal["object", "document", "archive", "lines", "file", "stream"] = "object"
    description: str = ""
    optional: bool = False

    @property
    def is_upload(self) -> bool:
        return self.kind in ("archive", "lines", "file")


@dataclass(frozen=True)
class Upload:
    """A body that was sent as a file: its bytes and the form fields sent with it.

    `received` exists for the duration of the request; for routes of the kind `file` it is already stored as `content`.
    """

    received: ReceivedFile
    filename: str | None
    media_type: str | None
    fields: Mapping[str, str]
    stored: StoredBlob | None = None

    @property
    def content(self) -> StoredBlob:
        if self.stored is None:
            raise RuntimeError("only an upload of the kind `file` is stored")
        return self.stored


@dataclass(frozen=True)
class Call:
    """One authenticated request as a handler sees it; `body` and `query` have the declared types.

    The `body` of a document route is a `Document`, of an upload an `Upload`, of a stream an iterator of bytes.  An async
    handler calls `end_turn` before it waits for anything but its own work, so that other requests' large bodies can proceed.
    """

    scope: TenantScope
    services: Services
    body: Any = None
    query: Any = None
    if_match: str | None = None
    idempotency: RequestKey | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    place: AdmissionSlot = field(default_factory=NoSlot)
    end_turn: Callable[[], None] = release_nothing

    @property
    def token(self) -> str:
        """A text that is equal for repetitions of a request; empty when the caller sent no Idempotency-Key."""
        return self.idempotency.token(self.scope) if self.idempotency else ""


@dataclass(frozen=True)
class Document:
    """A body in JSON or YAML: its data, and the line of each JSON pointer (YAML only)."""

    data: Any
    lines: Mapping[str, int]


@dataclass(frozen=True)
class Answer:
    """A handler's answer with a status, headers or an ETag of its own.

    `etag` is without quotes; `replay` is what a repeated idempotent request gets instead of `data`, with secrets left out.
    """

    data: Any
    status: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    etag: str | None = None
    replay: Any = None


@dataclass(frozen=True)
class Events:
    """A server-sent event stream: an async iterator of (id, event, JSON data)."""

    source: Any


@dataclass(frozen=True)
class Pieces:
    """A body of `length` bytes that is sent a piece at a time."""

    source: Iterator[bytes]
    length: int


@dataclass(frozen=True)
class Acts:
    """The action that policies evaluate when a route is called with an agent's key.

    `tool` is the equivalent tool, by default `api.<name of the route>`; `arguments` builds its arguments, which otherwise are
    the call's own by the same names.  `effect` defaults to `read` for GET and `write` for everything else.  With `is_governed`
    the domain function evaluates policies or asks people itself.
    """

    tool: str = ""
    effect: Literal["read", "write"] | None = None
    arguments: Callable[["Call", Mapping[str, str]], dict[str, Any]] | None = None
    is_governed: bool = False


READS = Acts(effect="read")
GOVERNED = Acts(is_governed=True)


@dataclass(frozen=True)
class Route:
    """A declared route.  `returns` is the type of `data`; `listed` wraps it in an array with a cursor.  The handler of one that
    `is_pending` gets a `PendingCall` instead of a `Call`."""

    method: Method
    path: str
    handler: Callable[..., Any]
    scope: str | None
    summary: str
    description: str
    body: Any
    query: type[Query] | None
    returns: Any
    listed: bool
    status: int
    also: Mapping[int, Any]
    media: str
    atomic: bool
    is_async: bool
    is_pending: bool = False
    acts: Acts = Acts()
    errors: tuple[type[ApplianceError], ...] = ()

    @property
    def name(self) -> str:
        return self.handler.__name__

    @property
    def family(self) -> str:
        """The first part of the path."""
        return self.path.split("/")[1]

    @property
    def is_of_appliance(self) -> bool:
        """Whether it is for keys of the appliance itself, on the base host."""
        return self.family == "appliance"

    @cached_property
    def adapter(self) -> TypeAdapter[Any]:
        """Renders the answer's data; built at its first use, as are the models: most routes of a process are never called."""
        kind: Any = GenericAlias(list, self.returns) if self.listed else self.returns
        return TypeAdapter(kind)

    @property
    def parameters(self) -> list[str]:
        """The names of the path parameters, in order."""
        return re.findall(r"{(\w+)}", self.path)

    @property
    def takes_upload(self) -> bool:
        """Whether the body is a file, which is written to disk as it arrives."""
        return isinstance(self.body, Json) and self.body.is_upload

    @property
    def takes_stream(self) -> bool:
        """Whether the handler reads the body itself."""
        return isinstance(self.body, Json) and self.body.kind == "stream"

    @property
    def needs_body(self) -> bool:
        """Whether a call without a body is refused; a POST for which `{}` is valid may also have no body."""
        if self.body is None or isinstance(self.body, Json):
            return self.body is not None and not self.body.optional
        return self.method != "POST" or any(member.is_required() for member in self.body.model_fields.values())


ROUTES: list[Route] = []
"""The routes of the modules that are loaded; `route_modules` loads them."""


def route(
    method: Method,
    path: str,
    *,
    scope: str | None,
    returns: Any = None,
    body: Any = None,
    query: type[Query] | None = None,
    listed: bool = False,
    status: int = 200,
    also: Mapping[int, Any] | None = None,
    media: str = "application/json",
    atomic: bool = True,
    pending: bool = False,
    acts: Acts | None = None,
    errors: Sequence[type[ApplianceError]] = (),
) -> Callable[[H], H]:
    """Declare a handler `(call, **path parameters)`.

    The key must have `scope`; None accepts any valid key.  `atomic` means that the handler neither sleeps nor leaves the
    process, so that a request with an Idempotency-Key runs in one transaction with its record; other handlers must pass
    `call.token` on.  The handler of a `pending` route is asynchronous and gets a `PendingCall`.  `also` documents further
    success statuses; `acts` describes the action for policies where the route's name and method do not.  `errors` lists the
    errors of the handler that do not follow from the rest of the declaration, see `error_responses`.  Long because this
    declares everything about a route in one place.
    """
    if scope is not None and scope not in SCOPES and scope not in APPLIANCE_SCOPES:
        raise ValueError(f"{path}: unknown scope {scope}")
    if listed and query is None:
        query = ListQuery

    def register(handler: H) -> H:
        summary, _, description = inspect.cleandoc(handler.__doc__ or "").partition("\n")
        if not summary:
            raise ValueError(f"{handler.__name__} needs a docstring, which documents {method} {path}")
        ROUTES.append(
            Route(
                method=method, path=path, handler=handler, scope=scope, summary=summary, description=description.strip(),
                body=body, query=query, returns=returns, listed=listed, status=status, also=dict(also or {}), media=media,
                atomic=atomic, is_async=inspect.iscoroutinefunction(handler), is_pending=pending,
                acts=acts or (GOVERNED if path.startswith("/appliance/") else Acts()), errors=tuple(errors),
            )
        )  # fmt: skip
        return handler

    return register


def as_answer(route: Route, result: Any) -> Answer:
    """A handler's result as an Answer whose status defaults to the route's."""
    answer = result if isinstance(result, Answer) else Answer(result)
    return answer if answer.status else Answer(answer.data, route.status, answer.headers, answer.etag, answer.replay)


def render(route: Route, data: Any, request_id: str) -> bytes:
    """The success envelope of docs/contract.md § 3 as JSON bytes."""
    meta = {"request_id": request_id}
    if isinstance(data, Page):
        meta |= {"next_cursor": data.next_cursor} if data.next_cursor else {}
        more = f',"total":{data.total}' if data.total is not None else ""
        items: Sequence[Any] = data.items
        return _envelope(route.adapter.dump_json(list(items), exclude_none=True), meta, more)
    return _envelope(route.adapter.dump_json(data, exclude_none=True), meta, "")


def _envelope(data: bytes, meta: Mapping[str, str], more: str) -> bytes:
    members = ",".join(f'"{name}":"{value}"' for name, value in meta.items())
    return b'{"success":true,"data":' + data + f',"meta":{{{members}{more}}}}}'.encode()
