"""The contract between the appliance and a connector plugin: the one module a plugin imports.

A connector speaks to one kind of foreign system.  It is a package that declares

    [project.entry-points."appliance.connectors"]
    echo = "gos_connector_echo:EchoConnector"

and a class derived from `Connector`.  Its life:

    Connector(settings)         settings are validated against `settings_schema`, secrets already opened
    check(ctx)                  tests whether the foreign system responds with these settings
    discover(ctx)               returns the actions specific to this system, if any; called rarely, the result is stored
    call(action, input, ctx)    zero or more times, from several threads at once; input is validated against the action
    poll(trigger, query, …)     likewise, for connectors with triggers; query is validated against the trigger
    close()                     once; also after a failed check

A connector never sees the tenant, the database or the request.  Its inputs are `settings`, `input` and `ctx`; its outputs are
the return value (JSON), log lines and the errors of `failures`.  It must not rely on state between calls: the appliance
discards an instance when its settings change or when it has been idle.

A connector must not open sockets or files itself: `ctx.http` and `ctx.dial` reach only addresses that the operator's rules
allow, and `ctx.folder` only folders of the operator's list.

A connector need not handle credentials: `authorized(ctx, auth).send(request)` applies a setting `auth` made by `auth_settings`;
the appliance fetches, renews and stores OAuth 2 tokens.

Turn an unsuccessful HTTP status into an error with `status_error`, after what the system itself means by some statuses.

Bind the values of an input to the :names of a query with a `QueryLanguage`, so that no value can change the query.

Speak other protocols than HTTP over a `Wire`, which keeps the deadline and limits.

Parse untrusted content that is expensive to read in a separate process with `run_apart`.  Compile a JSON Schema received from
a foreign system with `compile_schema`, which enforces the appliance's limits.
"""

import socket
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, BinaryIO, ClassVar, Literal, Protocol

# Re-exported for plugins:
from appliance.connectors.answers import excerpt as excerpt  # noqa: PLC0414
from appliance.connectors.answers import parse_json as parse_json  # noqa: PLC0414
from appliance.connectors.answers import retry_after as retry_after  # noqa: PLC0414
from appliance.connectors.answers import status_error as status_error  # noqa: PLC0414
from appliance.connectors.auth import auth_settings as auth_settings  # noqa: PLC0414
from appliance.connectors.auth import authorized as authorized  # noqa: PLC0414
from appliance.connectors.binding import QueryLanguage as QueryLanguage  # noqa: PLC0414
from appliance.connectors.binding import split_at_names as split_at_names  # noqa: PLC0414
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
from appliance.connectors.wire import Peer as Peer  # noqa: PLC0414
from appliance.connectors.wire import Wire as Wire  # noqa: PLC0414
from appliance.connectors.wire import tls_context as tls_context  # noqa: PLC0414
from appliance.core.json_schema import SchemaInvalid as SchemaInvalid  # noqa: PLC0414
from appliance.core.json_schema import compile_schema as compile_schema  # noqa: PLC0414

CONTRACT_VERSION = 1

Json = Mapping[str, Any]
Effect = Literal["read", "idempotent", "write"]
Level = Literal["debug", "info", "warn", "error"]
FileKind = Literal["file", "folder", "other"]

EFFECTS: tuple[Effect, ...] = ("read", "idempotent", "write")


def object_schema(required: Sequence[str], /, **properties: Any) -> dict[str, Any]:
    """The JSON Schema of an object that has only these members."""
    return {"type": "object", "required": list(required), "additionalProperties": False, "properties": properties}


@dataclass(frozen=True)
class HttpRequest:
    """One HTTP request.  `headers` and `params` are pairs because names may repeat; `content` is the body as bytes.

    `timeout` is in seconds and can only shorten the time left until the deadline.  At most ten redirects are followed.  On a
    redirect to another origin, every header that could carry a credential is removed, and a redirect that would send the body
    to another origin is refused.  `max_bytes` can only lower the operator's limit on the size of a response.
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
    """An HTTP response of any status.  Header names are lower case; repeated headers are joined by a comma."""

    status: int
    headers: Mapping[str, str]
    content: bytes
    url: str


class Http(Protocol):
    """The HTTP client of a call."""

    def send(self, request: HttpRequest) -> HttpAnswer:
        """Send a request and return the decompressed response.

        TransientError when no response came (`outcome` tells whether the request was sent), AddressNotAllowed when the
        rules forbid the address, ConfigError for an unusable URL, SystemFailure for a malformed or oversized response.
        """


@dataclass(frozen=True)
class FileInfo:
    """An entry of a `Folder`; `size` in bytes, `modified` in seconds since 1970.  A symbolic link has the kind `other`."""

    name: str
    kind: FileKind
    size: int
    modified: float


class Folder(Protocol):
    """A folder of the machine the appliance runs on.

    Paths are relative to it; `""` is the folder itself.  Symbolic links are not followed, and only regular files and folders
    are opened.  Every method raises errors of this module.
    """

    @property
    def writable(self) -> bool:
        """Whether both the operator's list and the file permissions allow writing to this folder."""

    def scan(self, path: str = "") -> Iterator[FileInfo]:
        """Yield the entries of a folder, in no particular order."""

    def stat(self, path: str) -> FileInfo | None:
        """Return the entry at a path, None when it does not exist."""

    def open(self, path: str) -> BinaryIO:
        """Open a file for reading; the caller closes it."""

    def write(self, path: str, parts: Iterable[bytes], draft: str) -> int:
        """Replace the file's content atomically and return its size in bytes.

        The parts are first written to a file named `draft` in the same folder.  Rejected when the folder would exceed the
        operator's quota.
        """

    def move(self, source: str, target: str) -> None:
        """Rename an entry; Rejected when the target exists."""

    def delete(self, path: str) -> bool:
        """Remove a file, a link or an empty folder; False when it did not exist."""

    def make_folder(self, path: str) -> bool:
        """Create a folder and its parents; False when it already exists."""

    def place(self, path: str, *, for_writing: bool) -> str:
        """Return the absolute path of a file, for libraries that open files by name.

        Anyone who can change the folder on the machine can replace the file by a link afterwards.
        """


@dataclass(frozen=True)
class DocumentContent:
    """The latest content of a document; each call of `chunks()` yields its bytes in pieces from the beginning."""

    id: str
    name: str
    content_type: str
    size: int
    chunks: Callable[[], Iterator[bytes]]


class Documents(Protocol):
    """The tenant's documents, within the caller's permissions: a process's grants or a key's scopes.

    ConfigError when the caller lacks permission, TransientError when the deadline passes.
    """

    def open(self, document_id: str) -> DocumentContent:
        """Open a document for reading; ConfigError when it does not exist."""

    def create(self, name: str, chunks: Iterable[bytes], content_type: str = "") -> str:
        """Create a document and return its id; the content is streamed and never held in memory as a whole.

        Rejected when the content is too large.  A repeated call creates another document.
        """


class Context(Protocol):
    """The services available to one call."""

    @property
    def http(self) -> Http:
        """The HTTP client."""

    @property
    def documents(self) -> Documents:
        """The tenant's documents; available only while an action runs."""

    @property
    def idempotency_key(self) -> str:
        """A key that stays the same when the appliance retries a call; send it along so that the foreign system can deduplicate."""

    @property
    def deadline(self) -> float:
        """The time by which the call must end, in seconds of `time.monotonic()`."""

    def dial(self, host: str, port: int) -> socket.socket:
        """Open a TCP connection, for protocols other than HTTP; the socket's timeout is the time left until the deadline."""

    def folder(self, path: str) -> Folder:
        """Open the folder at an absolute path of this machine; AddressNotAllowed unless the operator's list allows it."""

    def access_token(self, refused: str = "") -> str:
        """Return the token of an `auth` block of kind `oauth2`, for protocols other than HTTP.

        Pass the token that the foreign system rejected as `refused` to get a new one.  AuthError when the provider issues none
        or the integration has not been connected yet; ConfigError without such a block.
        """

    def pause(self, seconds: float) -> bool:
        """Wait before a retry.  Returns False at once when the deadline would pass during the wait."""

    def log(self, level: Level, message: str, fields: Json | None = None) -> None:
        """Write a line to the execution's log.  Secrets of the settings are redacted."""


@dataclass(frozen=True)
class Action:
    """One thing a connector can do.

    `input` and `output` are JSON Schemas (2020-12, no remote references).  `effect` is the strongest effect the action can
    have on the foreign system: `read` changes nothing, `idempotent` may be repeated without harm, `write` may not.  `sample`
    is an input that is valid against the schema; documentation and the contract suite use it.  `plan` belongs to a discovered
    action: any JSON that `perform` needs, stored with the action and used by nothing else; it must not contain secrets.
    `withheld` explains why a discovered action is currently unavailable and what to do about it: the action is not listed,
    and a call is refused with this text.
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
    """A kind of new item in the foreign system that the appliance polls for.

    `query` and `item` are the JSON Schemas of the poll's parameters and of each item; `sample` is a valid query.
    """

    name: str
    summary: str
    query: Json
    item: Json
    sample: Json = field(default_factory=dict)


@dataclass(frozen=True)
class Item:
    """One new item; `key` is unique within its trigger for ever (an id, with a version if changes count as new items)."""

    key: str
    data: Json


@dataclass(frozen=True)
class Polled:
    """The result of a poll; `items` are ordered oldest first.

    `cursor` is JSON passed to the next poll; it is stored atomically with the items.  `more` requests the next poll at once.
    """

    items: Sequence[Item] = ()
    cursor: Any = None
    more: bool = False


class Connector(ABC):
    """One configured connection to one foreign system; safe to call from several threads."""

    contract_version: ClassVar[int]
    """The CONTRACT_VERSION the plugin was written for, as a literal number."""
    name: ClassVar[str]
    """The entry point's name.  It must never change: integrations refer to it."""
    title: ClassVar[str]
    version: ClassVar[str]
    tested_against: ClassVar[str] = ""
    """The name and version of the system its tests use, as shown in the catalogue."""
    settings_schema: ClassVar[Json]
    """JSON Schema of the settings.

    A string with `"secret": true` is sealed at rest and never returned.  A property with `"secret_target": true`, at the top
    level or in an object, determines where secrets are sent: changing it requires entering the secrets again.  If a connector
    marks no property outside its `auth` block, all settings count as secret targets.  `"secrets_need": "base_url"` beside
    `properties` means that without this setting each call chooses the address; the settings must then contain no secret.
    The console shows a member with `"only_for": {"kind": ["basic"]}` only while its sibling `kind` has one of these values.
    """
    actions: ClassVar[tuple[Action, ...]]
    triggers: ClassVar[tuple[Trigger, ...]] = ()
    previews: ClassVar[bool] = False
    """Whether a preview may run `call` up to its first request, to show what would be sent.

    Set it only if every effect of the connector, local or remote, goes through `ctx`.
    """

    verbs: Mapping[str, Callable[[Json, Context], dict[str, Any]]] = MappingProxyType({})
    """What performs each action; set it in the constructor, or override `call`."""

    def __init__(self, settings: Json) -> None:
        self.settings = settings

    @classmethod
    def auth_of(cls, settings: Json) -> Json:
        """Return the effective `auth` block; override to add values fixed by the vendor, such as `token_url`."""
        auth: Json = settings.get("auth", {"kind": "none"})
        return auth

    def effect_of(self, action: Action, input: Json) -> Effect:  # noqa: A002 - the contract's word
        """Return the effect of this call: the declared one, or a weaker one depending on settings and input."""
        return action.effect

    @abstractmethod
    def check(self, ctx: Context) -> str:
        """Test the settings and return one sentence about the system; raises an error of this module.  Changes nothing."""

    def call(self, action: str, input: Json, ctx: Context) -> dict[str, Any]:  # noqa: A002 - the contract's word
        """Perform one action, by default with its verb, and return its output, valid against the action's `output` schema."""
        verb = self.verbs.get(action)
        if verb is None:
            raise ConfigError(f"{self.title} has no action {action!r}; it has {', '.join(self.verbs)}.")
        return verb(input, ctx)

    def discover(self, ctx: Context) -> Sequence[Action]:
        """Return the actions specific to this system, in addition to the declared ones; override together with `perform`.

        Called when the settings are tested and before the first call after they changed.  The result is stored: an instance
        that performs a discovered action need not be the one that discovered it.  At most 5,000 actions, none with the name
        of a declared one; here, a response read through `ctx.http` may have up to 32 MB.  Changes nothing.
        """
        return ()

    def perform(self, action: Action, input: Json, ctx: Context) -> dict[str, Any]:  # noqa: A002 - the contract's word
        """Perform an action, declared or discovered; the appliance calls this method, which defaults to `call`."""
        return self.call(action.name, input, ctx)

    def poll(self, trigger: str, query: Json, cursor: Any, ctx: Context) -> Polled:
        """Return the items that are new since `cursor`.

        `cursor` is None on the first poll: start with items from now on, unless the query says otherwise.  Changes nothing in
        the foreign system.  An item may be returned twice; its key identifies it.
        """
        names = ", ".join(each.name for each in self.triggers) or "none"
        raise ConfigError(f"{self.title} has no trigger {trigger!r}; it has {names}.")

    def close(self) -> None:  # noqa: B027 - most connectors have nothing to release
        """Release open resources; called when no call is running."""
