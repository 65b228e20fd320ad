"""What one connector call may use, made real: the pinned network, the deadline and the log."""

import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from appliance.connectors.contract import Folder, Http, HttpAnswer, HttpRequest, Json, Level, TransientError
from appliance.connectors.egress import Egress, EgressClient
from appliance.connectors.folders import TenantFolders

LogSink = Callable[[Level, str, Json], None]


@dataclass(frozen=True)
class _BoundHttp:
    client: EgressClient
    deadline: float

    def send(self, request: HttpRequest) -> HttpAnswer:
        if time.monotonic() >= self.deadline:
            raise TransientError("The call ran out of time before this request was sent.")
        return self.client.send(request, self.deadline)


@dataclass(frozen=True)
class CallContext:
    """The `Context` of one call; `stopping`, when set, ends every pause."""

    egress: Egress
    client: EgressClient
    idempotency_key: str
    deadline: float
    sink: LogSink
    stopping: threading.Event = field(default_factory=threading.Event)
    folders: TenantFolders = field(default_factory=TenantFolders)

    @property
    def http(self) -> Http:
        return _BoundHttp(self.client, self.deadline)

    def dial(self, host: str, port: int) -> socket.socket:
        return self.egress.dial(host, port, max(self.deadline - time.monotonic(), 0.001))

    def folder(self, path: str) -> Folder:
        return self.folders.open(path, self.deadline)

    def pause(self, seconds: float) -> bool:
        if time.monotonic() + seconds >= self.deadline:
            return False
        return not self.stopping.wait(seconds)

    def log(self, level: Level, message: str, fields: Json | None = None) -> None:
        self.sink(level, message, dict(fields or {}))
