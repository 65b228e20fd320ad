"""Sends a message through an SMTP server (RFC 5321) and maps its refusals to errors of the connector contract.

It does not use smtplib.  That sends the content and the final dot in one call, so the outcome of a broken connection would be
unknown even before the end was sent; it accepts replies of any number of lines; and `login` and `sendmail` do not say which
reply refused what.  Without those parts, an adapter for a `Wire` is as long as the commands and replies below.
"""

import base64
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from appliance.connectors.contract import AuthError, ConfigError, ConnectorError, Context, Peer, Rejected, TransientError, Wire

_MAX_LINE = 8_192
_MAX_LINES = 200
_NEEDS_SIGN_IN = 530


@dataclass(frozen=True)
class Reply:
    """The server's reply to one command."""

    code: int
    lines: tuple[str, ...]

    @property
    def text(self) -> str:
        return " ".join(self.lines)[:500]


@dataclass(frozen=True)
class Delivery:
    """The recipients the server accepted, and those it refused with code and message."""

    accepted: list[str]
    refused: list[dict[str, Any]] = field(default_factory=list)


class Smtp:
    """One SMTP session; the constructor connects, starts TLS and signs in."""

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

    def deliver(self, sender: str, recipients: Sequence[str], content: bytes) -> Delivery:
        """Send the message to every recipient the server accepts; an error with the refusals when it accepts none."""
        max_size = self.extensions.get("SIZE", "")
        if max_size.isdigit() and 0 < int(max_size) < len(content):
            raise Rejected(f"The message has {len(content)} bytes; the server accepts at most {max_size}.")
        size = f" SIZE={len(content)}" if "SIZE" in self.extensions else ""
        self._expect(self._command(f"MAIL FROM:<{sender}>{size}"), 250, "the sender")
        accepted, refused = self._add_recipients(recipients)
        if not accepted:
            raise _no_recipient_error(refused)
        self._expect(self._command("DATA"), 354, "the message")
        # A line with a single dot ends the message, so every line that starts with a dot gets another one.
        stuffed = re.sub(rb"(?m)^\.", b"..", content)
        self._wire.send(stuffed if stuffed.endswith(b"\r\n") else stuffed + b"\r\n")
        # After the final dot the server may deliver, whether or not its reply still arrives.
        self._wire.outcome_when_lost = "unknown"
        reply = self._command(".")
        self._expect(reply, 250, "the message")
        return Delivery(accepted, refused)

    # -- signing in

    def _greet(self, user: str | None, password: str) -> None:
        self._expect(self._read(), 220, "the connection")
        self._hello()
        if self._wire.peer.tls == "starttls":
            if "STARTTLS" not in self.extensions:
                raise ConfigError("The SMTP server does not offer STARTTLS; set `smtp_tls` to tls, or to off in a trusted network.")
            self._expect(self._command("STARTTLS"), 220, "TLS")
            self._wire.encrypt()
            self._hello()
        if user is not None:
            self._sign_in(user, password)

    def _hello(self) -> None:
        reply = self._command("EHLO [127.0.0.1]")
        self._expect(reply, 250, "the greeting")
        words = [line.split(maxsplit=1) for line in reply.lines[1:] if line.strip()]
        self.extensions = {word[0].upper(): word[1] if len(word) > 1 else "" for word in words}

    def _sign_in(self, user: str, password: str) -> None:
        mechanisms = self.extensions.get("AUTH", "").upper().split()
        if "PLAIN" in mechanisms:
            reply = self._command("AUTH PLAIN " + _base64(f"\0{user}\0{password}"))
        elif "LOGIN" in mechanisms:
            reply = self._command("AUTH LOGIN")
            for answer in (user, password):
                if reply.code == 334:
                    reply = self._command(_base64(answer))
        else:
            raise ConfigError("The SMTP server does not offer sign-in by password; check `smtp_tls`, or leave out `user`.")
        if reply.code == 235:
            return
        details = {"code": reply.code}
        if 400 <= reply.code < 500:
            raise TransientError(f"The SMTP server cannot process the sign-in now: {reply.text}", details=details)
        if 500 <= reply.code < 600:
            raise AuthError(f"The SMTP server does not accept the user and password: {reply.text}", details=details)
        raise self._wire.protocol_error(f"{reply.code} instead of accepting or refusing the password")

    # -- commands and replies

    def _add_recipients(self, recipients: Sequence[str]) -> tuple[list[str], list[dict[str, Any]]]:
        accepted: list[str] = []
        refused: list[dict[str, Any]] = []
        for address in recipients:
            reply = self._command(f"RCPT TO:<{address}>")
            if reply.code in (250, 251, 252):
                accepted.append(address)
            elif reply.code in (421, _NEEDS_SIGN_IN) or not 400 <= reply.code < 600:
                self._expect(reply, 250, "a recipient")
            else:
                refused.append({"address": address, "code": reply.code, "message": reply.text})
        return accepted, refused

    def _command(self, command: str) -> Reply:
        self._wire.send(command.encode("ascii") + b"\r\n")
        return self._read()

    def _read(self) -> Reply:
        lines: list[str] = []
        while len(lines) < _MAX_LINES:
            line = self._wire.read_line(_MAX_LINE).decode("utf-8", "replace")
            if not re.fullmatch(r"[2-5]\d\d(?:[ -].*)?", line):
                raise self._wire.protocol_error("a line without a reply code")
            lines.append(line[4:])
            if line[3:4] != "-":
                return Reply(int(line[:3]), tuple(lines))
        raise self._wire.protocol_error("a reply that does not end")

    def _expect(self, reply: Reply, expected: int, subject: str) -> None:
        if reply.code == expected:
            return
        details = {"code": reply.code}
        if reply.code == _NEEDS_SIGN_IN:
            raise AuthError(f"The SMTP server requires a sign-in: {reply.text}", details=details)
        if 400 <= reply.code < 500:
            raise TransientError(f"The SMTP server does not take {subject} now: {reply.text}", details=details)
        if 500 <= reply.code < 600:
            raise Rejected(f"The SMTP server refuses {subject}: {reply.text}", details=details)
        raise self._wire.protocol_error(f"{reply.code} where it should answer {expected}")


def _no_recipient_error(refused: list[dict[str, Any]]) -> ConnectorError:
    """The error when no recipient was accepted; transient when at least one refusal is temporary."""
    details = {"refused": refused[:20]}
    first = f"{refused[0]['address']}: {refused[0]['code']} {refused[0]['message']}"[:300]
    if any(each["code"] < 500 for each in refused):
        return TransientError(f"The SMTP server accepts none of the recipients now ({first}).", details=details)
    return Rejected(f"The SMTP server refuses every recipient ({first}).", details=details)


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode("ascii")
