"""What lies outside an appliance, on loopback: a mailbox for its letters and a foreign system for its calls."""

import re
import threading
from collections.abc import Callable
from dataclasses import dataclass
from email import message_from_bytes, policy
from typing import Any

from appliance.connectors.testing import LoopbackServer, free_port
from appliance.core import clock

SECONDS = 60.0
PAUSE = 0.02
CODE = re.compile(r"^\s*(\d{6,8})\s*$", re.MULTILINE)


@dataclass(frozen=True)
class Letter:
    """An e-mail as it arrived."""

    to: tuple[str, ...]
    subject: str
    text: str

    @property
    def code(self) -> str:
        """The one-time code that stands in it; AssertionError when there is none."""
        found = CODE.search(self.text)
        if found is None:
            raise AssertionError(f"no code stands in this letter: {self.text}")
        return found[1]

    @property
    def links(self) -> list[str]:
        """The addresses in it."""
        return re.findall(r"https?://[^\s<>\"]+", self.text)


class Mailbox:
    """Takes every letter; `settings` are those of an integration with the connector `email` that sends here."""

    def __init__(self) -> None:
        from aiosmtpd.controller import Controller

        self.letters: list[Letter] = []
        self.port = free_port()
        self._controller = Controller(self, hostname="127.0.0.1", port=self.port)
        self._controller.start()

    @property
    def settings(self) -> dict[str, Any]:
        return {"smtp_host": "127.0.0.1", "smtp_port": self.port, "smtp_tls": "off", "from": "gos@example.org"}

    async def handle_DATA(self, _server: Any, _session: Any, envelope: Any) -> str:  # noqa: N802  the library's name
        """Keep the letter."""
        message = message_from_bytes(envelope.content, policy=policy.default)
        body = message.get_body(("plain", "html"))
        text = "" if body is None else str(body.get_content())
        self.letters.append(Letter(tuple(envelope.rcpt_tos), str(message["Subject"] or ""), text))
        return "250 taken"

    def wait_for(self, to: str = "", subject: str = "", seconds: float = SECONDS) -> Letter:
        """The newest letter to this address (or anybody) with these words in its subject, once there is one."""

        def newest() -> Letter | None:
            fitting = (each for each in reversed(self.letters) if (not to or to in each.to) and subject in each.subject)
            return next(fitting, None)

        return wait_for(newest, seconds, lambda: f"no such letter came; there are {[each.subject for each in self.letters]}")

    def close(self) -> None:
        self._controller.stop()


class ForeignSystem(LoopbackServer):
    """A foreign system that answers what a test tells it to, and records every call in `received`."""

    def calls(self, path: str, method: str = "") -> list[bytes]:
        """The bodies of the calls of this path, oldest first."""
        mine = [each for each in self.received if each.path.split("?")[0] == path]
        return [each.body for each in mine if not method or each.method == method]


def wait_for(look: Callable[[], Letter | None], seconds: float, problem: Callable[[], str]) -> Letter:
    """What `look` answers once it is something; AssertionError when that takes longer than `seconds`."""
    ends, pause = clock.monotonic() + seconds, threading.Event()
    while (found := look()) is None:
        if clock.monotonic() > ends:
            raise AssertionError(f"after {seconds:g} s: {problem()}")
        pause.wait(PAUSE)
    return found
