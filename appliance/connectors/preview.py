"""The context of a preview: what a connector would send is kept, and nothing leaves."""

import socket
import time
from dataclasses import dataclass, field
from typing import Any, NoReturn

from appliance.connectors.contract import Documents, Http, HttpRequest, Json, Level


class NothingLeaves(BaseException):
    """Ends a call at the door.  No `Exception`, so that a plugin that handles whatever fails does not go on."""


@dataclass
class PreviewContext:
    """A `Context` without a way out: the first use of any door ends the call with NothingLeaves.

    `requests` are the HTTP requests that came to the door, as they were about to be sent.
    """

    idempotency_key: str
    deadline: float = field(default_factory=lambda: time.monotonic() + 10.0)
    requests: list[HttpRequest] = field(default_factory=list)

    @property
    def http(self) -> Http:
        return self

    def send(self, request: HttpRequest) -> NoReturn:
        """`Http.send` that keeps the request instead."""
        self.requests.append(request)
        raise NothingLeaves

    @property
    def documents(self) -> Documents:
        raise NothingLeaves

    def dial(self, host: str, port: int) -> socket.socket:
        raise NothingLeaves

    def access_token(self, refused: str = "") -> str:
        """Stands for a token, which only a request of its own would fetch."""
        return "token"

    def pause(self, seconds: float) -> bool:
        return False

    def log(self, level: Level, message: str, fields: Json | None = None) -> None:
        """Nothing: what did not happen leaves no line."""

    def __getattr__(self, name: str) -> Any:
        """Whatever else the contract offers is a door as well."""
        if name.startswith("__"):
            raise AttributeError(name)

        def closed(*_: Any, **__: Any) -> NoReturn:
            raise NothingLeaves

        return closed
