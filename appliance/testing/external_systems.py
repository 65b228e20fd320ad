"""Stand-ins for external systems on loopback: a mailbox for e-mail and a foreign system for calls."""

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
    """A received e-mail."""

    to: tuple[str, ...]
    subject: str
    text: str

    @property
    def code(self) -> str:
        """The one-time code in the text; AssertionError when there is none."""
        match = CODE.search(self.text)
        if match is None:
            raise AssertionError(f"this e-mail contains no code: {self.text}")
        return match[1]

    @property
    def links(self) -> list[str]:
        """The URLs in the text."""
        return re.findall(r"https?://[^\s<>\"]+", self.text)


class Mailbox:
    """An SMTP server that accepts every e-mail; `settings` make an integration with the connector `email` send here."""

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
        """Store the e-mail."""
        message = message_from_bytes(envelope.content, policy=policy.default)
        body = message.get_body(("plain", "html"))
        text = "" if body is None else str(body.get_content())
        self.letters.append(Letter(tuple(envelope.rcpt_tos), str(message["Subject"] or ""), text))
        return "250 taken"

    def wait_for(self, to: str = "", subject: str = "", seconds: float = SECONDS) -> Letter:
        """Wait for an e-mail to this address (or any) with this text in its subject, and return the newest one."""

        def newest() -> Letter | None:
            fitting = (each for each in reversed(self.letters) if (not to or to in each.to) and subject in each.subject)
            return next(fitting, None)

        def describe() -> str:
            return f"no such e-mail was received; the subjects are {[each.subject for each in self.letters]}"

        return wait_for(newest, seconds, describe)

    def close(self) -> None:
        self._controller.stop()


class ForeignSystem(LoopbackServer):
    """A foreign system that responds as a test configures it, and records every call in `received`."""

    def calls(self, path: str, method: str = "") -> list[bytes]:
        """The bodies of the calls to this path, oldest first."""
        mine = [each for each in self.received if each.path.split("?")[0] == path]
        return [each.body for each in mine if not method or each.method == method]


def wait_for(look: Callable[[], Letter | None], seconds: float, problem: Callable[[], str]) -> Letter:
    """Poll `look` until it returns a value; AssertionError when that takes longer than `seconds`."""
    ends, pause = clock.monotonic() + seconds, threading.Event()
    while (result := look()) is None:
        if clock.monotonic() > ends:
            raise AssertionError(f"after {seconds:g} s: {problem()}")
        pause.wait(PAUSE)
    return result
