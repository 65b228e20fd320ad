"""The context of a connector call: HTTP and sockets within the egress rules, the deadline, folders, documents and the log."""

import socket
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from appliance.connectors.contract import (
    ConfigError,
    DocumentContent,
    Documents,
    Folder,
    Http,
    HttpAnswer,
    HttpRequest,
    Json,
    Level,
    TransientError,
)
from appliance.connectors.egress import Egress, EgressClient
from appliance.connectors.folders import TenantFolders
from appliance.connectors.oauth import Tokens
from appliance.connectors.traffic import Traffic

LogSink = Callable[[Level, str, Json], None]
Admit = Callable[[str], None]
"""Called with each URL or `host:port` before anything is sent to it, redirect targets included; raises a contract error
to refuse it."""


@dataclass(frozen=True)
class BoundHttp:
    """The `Http` of one call; sends nothing after the call's deadline."""

    client: EgressClient
    deadline: float
    traffic: Traffic = field(default_factory=Traffic)
    admit: Admit | None = None

    def send(self, request: HttpRequest) -> HttpAnswer:
        if time.monotonic() >= self.deadline:
            raise TransientError("The call ran out of time before this request was sent.")
        self.traffic.note_request(request)
        answer = self.client.send(request, self.deadline, self.admit)
        self.traffic.note_answer(answer)
        return answer


@dataclass(frozen=True)
class NoDocuments:
    """The `Documents` of a call without access to documents: every operation is a ConfigError."""

    def open(self, document_id: str) -> DocumentContent:
        raise ConfigError(f"The document {document_id[:80]!r} cannot be read here: documents are available only to actions.")

    def create(self, name: str, chunks: Iterable[bytes], content_type: str = "") -> str:
        raise ConfigError(f"The document {name[:80]!r} cannot be created here: documents are available only to actions.")


@dataclass(frozen=True)
class CallContext:
    """The `Context` of one call; setting `stopping` ends every pause.  `tokens` supplies OAuth 2 access tokens."""

    egress: Egress
    client: EgressClient
    idempotency_key: str
    deadline: float
    sink: LogSink
    stopping: threading.Event = field(default_factory=threading.Event)
    folders: TenantFolders = field(default_factory=TenantFolders)
    tokens: Tokens | None = None
    documents: Documents = field(default_factory=NoDocuments)
    traffic: Traffic = field(default_factory=Traffic)
    admit: Admit | None = None

    @property
    def http(self) -> Http:
        return BoundHttp(self.client, self.deadline, self.traffic, self.admit)

    def dial(self, host: str, port: int) -> socket.socket:
        if self.admit is not None:
            self.admit(f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
        self.traffic.note_dial(host, port)
        return self.egress.dial(host, port, max(self.deadline - time.monotonic(), 0.001))

    def folder(self, path: str) -> Folder:
        return self.folders.open(path, self.deadline)

    def access_token(self, refused: str = "") -> str:
        if self.tokens is None:
            raise ConfigError("There is no token: the integration's credentials are not of kind oauth2.")
        return self.tokens.access_token(refused, self.deadline)

    def pause(self, seconds: float) -> bool:
        if time.monotonic() + seconds >= self.deadline:
            return False
        return not self.stopping.wait(seconds)

    def log(self, level: Level, message: str, fields: Json | None = None) -> None:
        self.sink(level, message, dict(fields or {}))
