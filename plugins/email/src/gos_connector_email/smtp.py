"""Handing a message to an SMTP server (RFC 5321), and what its refusals mean."""

import base64
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from appliance.connectors.contract import AuthError, ConfigError, ConnectorError, Context, Rejected, TransientError
from gos_connector_email.wire import Peer, Wire

_LONGEST_LINE = 8_192
_MOST_LINES = 200
_NEEDS_SIGN_IN = 530


@dataclass(frozen=True)
class Reply:
    """What the server said to one command."""

    code: int
    lines: tuple[str, ...]

    @property
    def text(self) -> str:
        return " ".join(self.lines)[:500]


@dataclass(frozen=True)
class Handed:
    """Who gets the message, and whom the server refused."""

    accepted: list[str]
    refused: list[dict[str, Any]] = field(default_factory=list)


class Smtp:
    """One conversation, up to being signed in."""

    def __init__(self, peer: Peer, ctx: Context, user: str | None, password: str) -> None:
        self._wire = Wire(peer, ctx)
        self.extensions: dict[str, str] = {}
        try:
            self._greet(user, password)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._wire.close()

    def hand_over(self, sender: str, recipients: Sequence[str], content: bytes) -> Handed:
        """Give the message to whom the server accepts; an error, with every refusal, when it accepts nobody."""
        most = self.extensions.get("SIZE", "")
        if most.isdigit() and 0 < int(most) < len(content):
            raise Rejected(f"The message has {len(content)} bytes and the server takes {most} at most.")
        size = f" SIZE={len(content)}" if "SIZE" in self.extensions else ""
        self._expect(self._ask(f"MAIL FROM:<{sender}>{size}"), 250, "the sender")
        accepted, refused = self._name(recipients)
        if not accepted:
            raise _nobody(refused)
        self._expect(self._ask("DATA"), 354, "the message")
        # A lone dot ends the message: a line that begins with one gets another.
        stuffed = re.sub(rb"(?m)^\.", b"..", content)
        self._wire.send(stuffed if stuffed.endswith(b"\r\n") else stuffed + b"\r\n")
        # From the dot on the server may deliver, whether or not its verdict still arrives.
        self._wire.when_lost = "unknown"
        reply = self._ask(".")
        self._expect(reply, 250, "the message")
        return Handed(accepted, refused)

    # -- signing in

    def _greet(self, user: str | None, password: str) -> None:
        self._expect(self._read(), 220, "the connection")
        self._hello()
        if self._wire.peer.tls == "starttls":
            if "STARTTLS" not in self.extensions:
                raise ConfigError("The SMTP server offers no STARTTLS; set `smtp_tls` to tls, or to off in a trusted network.")
            self._expect(self._ask("STARTTLS"), 220, "TLS")
            self._wire.encrypt()
            self._hello()
        if user is not None:
            self._sign_in(user, password)

    def _hello(self) -> None:
        reply = self._ask("EHLO [127.0.0.1]")
        self._expect(reply, 250, "the greeting")
        words = [line.split(maxsplit=1) for line in reply.lines[1:] if line.strip()]
        self.extensions = {word[0].upper(): word[1] if len(word) > 1 else "" for word in words}

    def _sign_in(self, user: str, password: str) -> None:
        ways = self.extensions.get("AUTH", "").upper().split()
        if "PLAIN" in ways:
            reply = self._ask("AUTH PLAIN " + _coded(f"\0{user}\0{password}"))
        elif "LOGIN" in ways:
            reply = self._ask("AUTH LOGIN")
            for answer in (user, password):
                if reply.code == 334:
                    reply = self._ask(_coded(answer))
        else:
            raise ConfigError("The SMTP server offers no sign-in by password here; check `smtp_tls`, or leave `user` out.")
        if reply.code == 235:
            return
        told = {"code": reply.code}
        if 400 <= reply.code < 500:
            raise TransientError(f"The SMTP server cannot sign in now: {reply.text}", details=told)
        if 500 <= reply.code < 600:
            raise AuthError(f"The SMTP server does not accept the user and password: {reply.text}", details=told)
        raise self._wire.nonsense(f"{reply.code} where it should accept or refuse the password")

    # -- the conversation

    def _name(self, recipients: Sequence[str]) -> tuple[list[str], list[dict[str, Any]]]:
        accepted: list[str] = []
        refused: list[dict[str, Any]] = []
        for address in recipients:
            reply = self._ask(f"RCPT TO:<{address}>")
            if reply.code in (250, 251, 252):
                accepted.append(address)
            elif reply.code in (421, _NEEDS_SIGN_IN) or not 400 <= reply.code < 600:
                self._expect(reply, 250, "a recipient")
            else:
                refused.append({"address": address, "code": reply.code, "message": reply.text})
        return accepted, refused

    def _ask(self, command: str) -> Reply:
        self._wire.send(command.encode("ascii") + b"\r\n")
        return self._read()

    def _read(self) -> Reply:
        lines: list[str] = []
        while len(lines) < _MOST_LINES:
            line = self._wire.line(_LONGEST_LINE).decode("utf-8", "replace")
            if not re.fullmatch(r"[2-5]\d\d(?:[ -].*)?", line):
                raise self._wire.nonsense("a line that begins with no reply code")
            lines.append(line[4:])
            if line[3:4] != "-":
                return Reply(int(line[:3]), tuple(lines))
        raise self._wire.nonsense("a reply that does not end")

    def _expect(self, reply: Reply, wanted: int, what: str) -> None:
        if reply.code == wanted:
            return
        details = {"code": reply.code}
        if reply.code == _NEEDS_SIGN_IN:
            raise AuthError(f"The SMTP server wants a sign-in: {reply.text}", details=details)
        if 400 <= reply.code < 500:
            raise TransientError(f"The SMTP server does not take {what} now: {reply.text}", details=details)
        if 500 <= reply.code < 600:
            raise Rejected(f"The SMTP server refuses {what}: {reply.text}", details=details)
        raise self._wire.nonsense(f"{reply.code} where it should answer {wanted}")


def _nobody(refused: list[dict[str, Any]]) -> ConnectorError:
    """Nobody gets it; asking again helps when one of the refusals is for now only."""
    details = {"refused": refused[:20]}
    first = f"{refused[0]['address']}: {refused[0]['code']} {refused[0]['message']}"[:300]
    if any(each["code"] < 500 for each in refused):
        return TransientError(f"The SMTP server takes none of the recipients now ({first}).", details=details)
    return Rejected(f"The SMTP server refuses every recipient ({first}).", details=details)


def _coded(text: str) -> str:
    return base64.b64encode(text.encode()).decode("ascii")
