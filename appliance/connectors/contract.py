"""The contract between the appliance and a connector plugin: the one module a plugin imports.

A connector speaks to one kind of foreign system.  It is a package that declares

    [project.entry-points."appliance.connectors"]
    echo = "gos_connector_echo:EchoConnector"

and a class derived from `Connector`.  Its life:

    Connector(settings)         settings are validated against `settings_schema`, secrets already opened
    check(ctx)                  does the foreign system answer with these settings?
    discover(ctx)               what actions this very system has, where the class cannot know; asked rarely, the answer is kept
    call(action, input, ctx)    zero or more times, from several threads at once; input is validated against the action
    poll(trigger, query, …)     likewise, where it has triggers; query is validated against the trigger
    close()                     once; also after a failed check

A connector never sees the tenant, the database or the request.  What it may know is in `settings`, `input` and `ctx`;
what it may say is its return value (JSON), a log line, or one of the errors of `failures`.  It keeps nothing between calls that
it could not lose: an instance is thrown away when its settings change or when it has been idle.

It opens no socket and no file itself: `ctx.http` and `ctx.dial` reach only addresses that the operator's rules allow, and
`ctx.folder` only folders of the operator's list.

Credentials it need not handle: a setting `auth` made by `auth_settings` is applied by `authorized(ctx, auth).send(request)`,
tokens of OAuth 2 fetched, renewed and kept by the appliance.

What nobody can trust and takes much to read, it reads in a process of its own: `run_apart`.  A JSON Schema that a foreign
system sends it holds to the appliance's own bounds: `compile_schema`.
"""

import socket
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO, ClassVar, Literal, Protocol

# Handed on to plugins:
from appliance.connectors.answers import retry_after as retry_after  # noqa: PLC0414
from appliance.connectors.auth import auth_settings as auth_settings  # noqa: PLC0414
from appliance.connectors.auth import authorized as authorized  # noqa: PLC0414
from appliance.connectors.failures import AddressNotAllowed as AddressNotAllowed  # noqa: PLC0414
from appliance.connectors.failures import AuthError as AuthError  # noqa: PLC0414
from appliance.connectors.failures import ConfigError as ConfigError  # noqa: PLC0414
from appliance.connectors.failures import ConnectorError as ConnectorError  # noqa: PLC0414
from appliance.connectors.failures import Outcome as Outcome  # noqa: PLC0414
from appliance.connectors.failures import RateLimited as RateLimited  # noqa: PLC0414
from appliance.connectors.failures import Rejected as Rejected  # noqa: PLC0414
from appliance.connectors.failures import SystemFailure as SystemFailure  # noqa: PLC0414
from appliance.connectors.failures import TransientError as TransientError  # noqa: PLC0414
from appliance.connectors.failures import Withdrawn as Withdrawn  # noqa: PLC0414
from appliance.connectors.isolation import Apart as Apart  # noqa: PLC0414
from appliance.connectors.isolation import TookTooLong as TookTooLong  # noqa: PLC0414
from appliance.connectors.isolation import memory_used_kb as memory_used_kb  # noqa: PLC0414
from appliance.connectors.isolation import run_apart as run_apart  # noqa: PLC0414
from appliance.connectors.isolation import stand_apart as stand_apart  # noqa: PLC0414
from appliance.core.json_schema import SchemaInvalid as SchemaInvalid  # noqa: PLC0414
from appliance.core.json_schema import compile_schema as compile_schema  # noqa: PLC0414

CONTRACT_VERSION = 1

Json = Mapping[str, Any]
Effect = Literal["read", "idempotent", "write"]
Level = Literal["debug", "info", "warn", "error"]
FileKind = Literal["file", "folder", "other"]

EFFECTS: tuple[Effect, ...] = ("read", "idempotent", "write")


@dataclass(frozen=True)
class HttpRequest:
    """One HTTP request.  `headers` and `params` are pairs, since names may repeat; `content` is the body as bytes.

    `timeout` is in seconds and only ever shortens what is left until the deadline.  Redirects are followed at most ten
    times; a redirect to another origin loses every header that could carry a credential, and one that would send the
    body to another origin is refused.  `max_bytes` only ever lowers the operator's cap on an answer.
    """

    method: str
    url: str
    headers: Sequence[tuple[str, str]] = ()
    params: Sequence[tuple[str, str]] = ()
    content: bytes = b""
    timeout: float | None = None
    follow_redirects: bool = True
    max_bytes: int | None = None


@dataclass(frozen=True)
class HttpAnswer:
    """Any answer, whatever its status.  Header names are lower case; repeated headers are joined by a comma."""

    status: int
    headers: Mapping[str, str]
    content: bytes
    url: str


class Http(Protocol):
    """The HTTP client of a call."""

    def send(self, request: HttpRequest) -> HttpAnswer:
        """The answer, decompressed.

        TransientError when no answer came (`outcome` tells whether the request had left), AddressNotAllowed when the
        rules forbid the address, ConfigError for an unusable URL, SystemFailure for a broken or oversized answer.
        """


@dataclass(frozen=True)
class FileInfo:
    """What a name in a `Folder` stands for; `size` in bytes, `modified` in seconds since 1970.  A link is an `other`."""

    name: str
    kind: FileKind
    size: int
    modified: float


class Folder(Protocol):
    """A folder of the appliance's own machine.  Paths are relative to it, `""` is the folder itself; no link is followed,
    and only files and folders are opened.  Every verb raises errors of this module."""

    @property
    def writable(self) -> bool:
        """Whether both the operator's list and the machine let this folder be written to."""

    def scan(self, path: str = "") -> Iterator[FileInfo]:
        """What is in a folder, in no order."""

    def stat(self, path: str) -> FileInfo | None:
        """What is there, None when nothing is."""

    def open(self, path: str) -> BinaryIO:
        """A file to read from; the caller closes it."""

    def write(self, path: str, parts: Iterable[bytes], draft: str) -> int:
        """Make the parts the file's content, all at once: until then they grow under the name `draft` beside it.
        Answers the size; Rejected when the folder would then hold more than the operator's quota."""

    def move(self, source: str, target: str) -> None:
        """Rename, never over another."""

    def delete(self, path: str) -> bool:
        """Remove a file, a link or an empty folder; False when nothing was there."""

    def make_folder(self, path: str) -> bool:
        """Make a folder with those above it; False when it was there."""

    def place(self, path: str, *, for_writing: bool) -> str:
        """The absolute path of a file, for libraries that open files by name.  Who may change the folder on the machine
        can put a link there afterwards."""


@dataclass(frozen=True)
class DocumentContent:
    """The newest content of a document; `chunks()` gives its bytes a piece at a time, from the beginning each time."""

    id: str
    name: str
    content_type: str
    size: int
    chunks: Callable[[], Iterator[bytes]]


class Documents(Protocol):
    """The tenant's documents, as far as the caller may: a process by its grants, a key by its scopes.

    ConfigError for what the caller may not do, TransientError when the deadline passes meanwhile.
    """

    def open(self, document_id: str) -> DocumentContent:
        """A document to be read; ConfigError when there is none."""

    def create(self, name: str, chunks: Iterable[bytes], content_type: str = "") -> str:
        """A new document's id; the bytes are taken as they come and never held together.

        Rejected when they are too many.  A call that is made again makes another document.
        """


class Context(Protocol):
    """What one call may use."""

    @property
    def http(self) -> Http:
        """The HTTP client."""

    @property
    def documents(self) -> Documents:
        """The tenant's documents; only while an action is performed."""

    @property
    def idempotency_key(self) -> str:
        """Stays the same when the appliance repeats a call: pass it on, so that nothing happens twice over there."""

    @property
    def deadline(self) -> float:
        """When the call must have ended, in seconds of `time.monotonic()`."""

    def dial(self, host: str, port: int) -> socket.socket:
        """A connected TCP socket, for protocols other than HTTP; its timeout is what is left until the deadline."""

    def folder(self, path: str) -> Folder:
        """The folder at an absolute path of this machine; AddressNotAllowed unless the operator's list names it."""

    def access_token(self, refused: str = "") -> str:
        """The token of an `auth` block of kind `oauth2`, for protocols other than HTTP; it is renewed when it is `refused`.

        AuthError when the provider gives none, or nobody has connected the integration yet; ConfigError without such a block.
        """

    def pause(self, seconds: float) -> bool:
        """Wait before another try.  False, at once, when the deadline would pass meanwhile."""

    def log(self, level: Level, message: str, fields: Json | None = None) -> None:
        """A line in the execution's log.  Secrets of the settings are blotted out."""


@dataclass(frozen=True)
class Action:
    """One thing a connector can do.

    `input` and `output` are JSON Schemas (2020-12, no remote references).  `effect` is the most the action can do over
    there: `read` changes nothing, `idempotent` may be repeated without harm, `write` may not.  `sample` is an input
    that is valid against the schema; documentation and the contract suite use it.  `plan` is of a discovered action:
    whatever JSON `perform` needs to do it, kept with the action and read by nobody else; no secrets.  `withheld` is why a
    discovered action is not offered at present, and what to do about it: it is in no list, and a call is refused with that.
    """

    name: str
    summary: str
    input: Json
    output: Json
    effect: Effect
    sample: Json = field(default_factory=dict)
    plan: Json = field(default_factory=dict)
    withheld: str = ""


@dataclass(frozen=True)
class Trigger:
    """Something new over there that a connector can be asked for again and again.

    `query` and `item` are JSON Schemas of what is asked and of what each item holds; `sample` is a query that is valid.
    """

    name: str
    summary: str
    query: Json
    item: Json
    sample: Json = field(default_factory=dict)


@dataclass(frozen=True)
class Item:
    """One new thing: `key` tells it from every other of its trigger, for ever (an id; with a version where changes count)."""

    key: str
    data: Json


@dataclass(frozen=True)
class Polled:
    """What was found, oldest first.

    `cursor` is JSON that the next poll is handed; it is kept together with the items, or neither is.  `more` asks for the
    next poll at once.
    """

    items: Sequence[Item] = ()
    cursor: Any = None
    more: bool = False


class Connector(ABC):
    """One configured connection to one foreign system; safe to call from several threads."""

    contract_version: ClassVar[int]
    """The CONTRACT_VERSION the plugin was written for, as a number of its own."""
    name: ClassVar[str]
    """The entry point's name, for ever: integrations refer to it."""
    title: ClassVar[str]
    version: ClassVar[str]
    tested_against: ClassVar[str] = ""
    """What its tests talk to, by name and version; the catalogue says it."""
    settings_schema: ClassVar[Json]
    """JSON Schema of the settings.

    A text with `"secret": true` is sealed at rest and never read back.  A property with `"secret_target": true`, at the
    top level or in an object, decides whom secrets are sent to: who changes it must give the secrets again.  A connector that
    marks none outside its `auth` block is held to have one place, its whole settings.  `"secrets_need": "base_url"` beside
    `properties` says that without this setting each call chooses the address: then no secret may stand in the settings.
    A member with `"only_for": {"kind": ["basic"]}` is offered by the console while its neighbour `kind` is one of these.
    """
    actions: ClassVar[tuple[Action, ...]]
    triggers: ClassVar[tuple[Trigger, ...]] = ()
    previews: ClassVar[bool] = False
    """Whether a preview may run `call` up to its first request, to show what would be sent.

    Say so only if nothing it does has an effect, here or over there, but by `ctx`.
    """

    def __init__(self, settings: Json) -> None:
        self.settings = settings

    @classmethod
    def auth_of(cls, settings: Json) -> Json:
        """The `auth` block in effect, as `auth_settings` describes it; override to add what the vendor fixes (`token_url`)."""
        found: Json = settings.get("auth", {"kind": "none"})
        return found

    def effect_of(self, action: Action, input: Json) -> Effect:  # noqa: A002 - the contract's word
        """The effect of this very call: the declared one, or a weaker one where settings or input make it so."""
        return action.effect

    @abstractmethod
    def check(self, ctx: Context) -> str:
        """One sentence about what answered; an error of this module when the settings do not work.  Changes nothing."""

    @abstractmethod
    def call(self, action: str, input: Json, ctx: Context) -> dict[str, Any]:  # noqa: A002 - the contract's word
        """Perform one action and return its output, valid against the action's `output` schema."""

    def discover(self, ctx: Context) -> Sequence[Action]:
        """The actions of this very system, beside those the class declares; override it and `perform` where there are any.

        Asked when the settings are tested and before the first call after they changed.  The answer is kept: an instance
        that performs a discovered action need not be the one that discovered it.  At most 5,000 actions, whose names are
        those of no declared one; an answer read through `ctx.http` may have up to 32 MB here.  Changes nothing.
        """
        return ()

    def perform(self, action: Action, input: Json, ctx: Context) -> dict[str, Any]:  # noqa: A002 - the contract's word
        """Perform an action, declared or discovered, as `call` does; the way every call takes."""
        return self.call(action.name, input, ctx)

    def poll(self, trigger: str, query: Json, cursor: Any, ctx: Context) -> Polled:
        """What is new since `cursor`, which is None the first time: begin with what comes from now on, unless asked otherwise.

        Changes nothing over there.  The same item may be answered twice, its key tells.
        """
        raise ConfigError(f"There is no trigger {trigger!r}.")

    def close(self) -> None:  # noqa: B027 - most connectors have nothing to give back
        """Give back whatever was opened; called when no call is running."""
