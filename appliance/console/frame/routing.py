"""Declares pages: method, path, host and scope.  A handler takes a visit and returns a page, a redirect or a file."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from appliance.core.pages import PageRequest
from appliance.core.scope import TenantScope
from appliance.core.texts import ENGLISH, Language
from appliance.tenants import SignedIn
from appliance.web import Request, SentFile, Services

Form = Mapping[str, list[str]]
PAGE_ROWS = 50


@dataclass(frozen=True)
class Page:
    """An HTML response: a template with its values."""

    template: str
    values: Mapping[str, Any] = field(default_factory=dict)
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Redirect:
    """A redirect (303); it can set cookies, or delete those with an empty value."""

    url: str
    cookies: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class RemoteFile:
    """A file for the visitor to save that the bucket sends: a redirect (302) to its signed address, which nobody may keep."""

    address: str


@dataclass(frozen=True)
class Download:
    """A small file for the visitor to save."""

    name: str
    content: bytes
    media: str = "application/json"


@dataclass(frozen=True)
class Data:
    """JSON for one of our scripts; the page also works without the script."""

    value: Any
    status: int = 200


@dataclass(frozen=True)
class File:
    """A file of any size for the visitor to save, streamed piece by piece; browsers neither display nor run it."""

    name: str
    media: str
    pieces: Iterator[bytes]
    size: int


@dataclass(frozen=True)
class Picture:
    """A picture embedded in one of our pages; its URL always returns the same content, so it is cached."""

    media: str
    content: bytes


@dataclass(frozen=True)
class Stream:
    """Server-sent events: each `look()` returns (event id, template values) pairs; no thread is held between two calls."""

    template: str
    poll: Callable[[], Iterable[tuple[int, Mapping[str, Any]]]]


@dataclass(frozen=True)
class Deferred:
    """An answer that `then` builds once `work` has finished or failed; no thread is held while waiting."""

    work: "Future[Any]"
    then: "Callable[[], Answer]"


Answer = Page | Redirect | RemoteFile | Download | Data | File | Picture | Stream | Deferred


@dataclass(frozen=True)
class ConsoleRequest:
    """A browser's request to a page, with its form; HEAD counts as GET."""

    http: Request
    form: Form = field(default_factory=dict)
    files: Sequence[SentFile] = ()
    language: Language = ENGLISH

    @property
    def method(self) -> str:
        return "GET" if self.http.method == "HEAD" else self.http.method

    @property
    def path(self) -> str:
        return self.http.path

    @property
    def query(self) -> str:
        return self.http.query_string.decode("latin1")

    @cached_property
    def args(self) -> Mapping[str, str]:
        """The first value of each query parameter."""
        return {name: values[0] for name, values in self.http.args.items()}

    @property
    def cookies(self) -> Mapping[str, str]:
        return self.http.cookies

    @property
    def host(self) -> str:
        """The host with its port unless that is the scheme's default."""
        return self.http.authority

    @property
    def tenant(self) -> str | None:
        """The id of the host's tenant; None on the base host."""
        return self.http.host.tenant

    @property
    def request_id(self) -> str:
        return self.http.request_id

    @property
    def address(self) -> str:
        return self.http.address

    @property
    def is_fragment(self) -> bool:
        """Whether a page requests only its live part, to refresh itself."""
        return self.args.get("part") == "live"

    def file(self, name: str) -> SentFile | None:
        """The file uploaded in this field; None when none was chosen."""
        return next((each for each in self.files if each.field == name), None)

    def field(self, name: str) -> str:
        """The first value of a form field; empty when it was not sent."""
        values = self.form.get(name)
        return values[0] if values else ""


@dataclass(frozen=True)
class Visit:
    """A request on a tenant's host by a signed-in member."""

    services: Services
    request: ConsoleRequest
    person: SignedIn
    scope: TenantScope

    def may(self, name: str) -> bool:
        """Whether this person's role holds the scope `name`."""
        return name in self.scope.scopes

    def page(self, *, limit: int = PAGE_ROWS, sort: str | None = None, count: bool = False) -> PageRequest:
        """The page of a list that the URL's `cursor` points to."""
        return PageRequest(limit, self.request.args.get("cursor") or None, sort, count)


@dataclass(frozen=True)
class Arrival:
    """A request to a page that needs no session, mostly on the base host; `person` is None unless someone is signed in."""

    services: Services
    request: ConsoleRequest
    person: SignedIn | None


TOKEN_CHARACTERS = 64


def idempotency_token(visit: Visit) -> str:
    """The idempotency key of a form, so that submitting it twice has one effect; empty when the form has no token.

    It includes the user id, so that one person's token has no effect for another.
    """
    token = visit.request.field("token")[:TOKEN_CHARACTERS]
    return f"console/{visit.person.user_id}/{visit.request.path}/{token}" if token else ""


Method = Literal["GET", "POST"]
Handler = Callable[..., Answer]


@dataclass(frozen=True)
class PageRoute:
    """One declared page of a tenant's host; `scope` None admits every member.

    With `takes_files` its form may contain files; with `admins_only` only administrators of the appliance may upload,
    and the usual size limit does not apply.  With `step_up` its form waits for a fresh proof of who sends it; with
    `asks_password` also if they have no second factor.
    """

    method: Method
    path: str
    scope: str | None
    handler: Handler
    needs_session: bool = True
    takes_files: bool = False
    admins_only: bool = False
    step_up: bool = False
    asks_password: bool = False


@dataclass(frozen=True)
class BaseRoute:
    """One declared page of the base host; one with `gives_access` is closed to people who need a second factor and have none."""

    method: Method
    path: str
    handler: Handler
    gives_access: bool = False


PAGES: list[PageRoute] = []
BASE_PAGES: list[BaseRoute] = []


def page(
    method: Method,
    path: str,
    *,
    scope: str | None,
    needs_session: bool = True,
    takes_files: bool = False,
    admins_only: bool = False,
    step_up: bool = False,
    asks_password: bool = False,
) -> Callable[[Handler], Handler]:
    """Declare a page under /console of a tenant's host; with `needs_session=False` the handler gets an Arrival, not a Visit.

    Long because each option is one that pages declare by its name.
    """
    if step_up and (method != "POST" or takes_files):
        raise ValueError(f"{path}: only a form without files can wait for a proof")
    if asks_password and not step_up:
        raise ValueError(f"{path}: only a form that waits for a proof can ask for the password")

    def declare(handler: Handler) -> Handler:
        PAGES.append(PageRoute(
            method=method, path=f"/console{path}", scope=scope, handler=handler, needs_session=needs_session,
            takes_files=takes_files, admins_only=admins_only, step_up=step_up, asks_password=asks_password,
        ))
        return handler

    return declare


def base_page(method: Method, path: str, *, gives_access: bool = False) -> Callable[[Handler], Handler]:
    """Declare a page of the base host; with `gives_access`, whoever needs a second factor has to add it first."""

    def declare(handler: Handler) -> Handler:
        BASE_PAGES.append(BaseRoute(method, path, handler, gives_access))
        return handler

    return declare
