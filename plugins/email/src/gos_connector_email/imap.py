"""One conversation with an IMAP server: signing in, folders, and commands whose values never become part of their words."""

import base64
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from appliance.connectors.contract import (
    AuthError,
    ConfigError,
    ConnectorError,
    Context,
    RateLimited,
    Rejected,
    SystemFailure,
    TransientError,
)
from gos_connector_email.replies import Told, Unreadable, decode_folder, encode_folder, literal_size, number, pairs, without_literal
from gos_connector_email.wire import Peer, Wire

_T = TypeVar("_T")
_LONGEST_LINE = 16 * 1024 * 1024
_MOST_BYTES = 96 * 1024 * 1024
_QUOTABLE = re.compile(rb"[\x20\x21\x23-\x5b\x5d-\x7e]{0,500}")
_CODE = re.compile(r"\[([A-Z0-9-]+)(?: ([^\]]*))?\]", re.IGNORECASE)
_AUTH_CODES = {"AUTHENTICATIONFAILED", "AUTHORIZATIONFAILED", "EXPIRED", "PRIVACYREQUIRED", "CONTACTADMIN", "NOPERM"}
_LATER_CODES = {"UNAVAILABLE", "INUSE", "SERVERBUG"}


@dataclass(frozen=True)
class Folder:
    """The folder that is open: UIDs mean what they meant as long as `validity` is the same."""

    validity: int
    next_uid: int


@dataclass(frozen=True)
class Text:
    """A value of a command, as against its words."""

    content: bytes


class Imap:
    """One session; raises errors of the contract."""

    def __init__(self, peer: Peer, ctx: Context, user: str, password: str) -> None:
        self._wire = Wire(peer, ctx)
        self._tag = 0
        self._capabilities: set[str] = set()
        try:
            self._sign_in(user, password)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._wire.close()

    def can(self, capability: str) -> bool:
        return capability in self._capabilities

    # -- folders and messages

    def folders(self) -> list[dict[str, Any]]:
        """Every folder: name, delimiter, whether it can be opened, and its special use."""
        told = self.command("LIST", Text(b""), Text(b"*"))
        return self._read(lambda: [_folder_of(line) for line in told if _kind(line) == "LIST"])

    def open(self, folder: str, *, read_only: bool) -> Folder:
        """Open a folder, for looking only or for changing."""
        told = self.command("EXAMINE" if read_only else "SELECT", folder_name(folder))
        codes = {found.group(1).upper(): found.group(2) or "" for line in told if (found := _CODE.search(line.text))}
        validity, next_uid = codes.get("UIDVALIDITY", ""), codes.get("UIDNEXT", "")
        if not validity.isdigit() or not next_uid.isdigit():
            raise SystemFailure(f"{self._wire.peer} does not tell UIDVALIDITY and UIDNEXT of {folder!r}; UIDs need both.")
        return Folder(int(validity), int(next_uid))

    def search(self, criteria: Sequence[str | Text]) -> list[int]:
        """The UIDs of what fits, in ascending order."""
        is_ascii = all(isinstance(each, str) or each.content.isascii() for each in criteria)
        told = self.command("UID", "SEARCH", *(() if is_ascii else ("CHARSET", "UTF-8")), *criteria)
        return self._read(lambda: sorted({number(each) for line in told if _kind(line) == "SEARCH" for each in line.tokens()[2:]}))

    def fetch(self, uids: str, *what: str) -> dict[int, dict[str, Any]]:
        """What was asked of each message, by UID and by name in upper case."""
        return self._read(lambda: self._fetched(self.command("UID", "FETCH", uids, f"(UID {' '.join(what)})")))

    def change(self, *parts: str | Text) -> None:
        """Send a command that changes something: without its verdict nobody knows whether it did."""
        self._wire.when_lost = "unknown"
        self.command(*parts)
        self._wire.when_lost = "not_done"

    def command(self, *parts: str | Text) -> list[Told]:
        """Send a command and give its replies, the verdict last; the error its refusal means."""
        self._tag += 1
        tag = f"g{self._tag}"
        self._say(tag, parts)
        told = self._until(tag)
        verdict = told[-1].text[len(tag) + 1 :]
        if verdict[:2].upper() != "OK":
            raise self._refusal(verdict, parts)
        return told

    # -- signing in

    def _sign_in(self, user: str, password: str) -> None:
        greeting = self._reply().text
        if greeting[:5].upper() == "* BYE":
            raise self._refusal(greeting[2:], ())
        if greeting[:4].upper() != "* OK":
            # Also PREAUTH, which would go around both TLS and the password.
            raise self._wire.nonsense("a greeting that lets nobody sign in")
        self._ask_capabilities()
        if self._wire.peer.tls == "starttls":
            if not self.can("STARTTLS"):
                raise ConfigError("The IMAP server offers no STARTTLS; set `imap_tls` to tls, or to off in a trusted network.")
            self.command("STARTTLS")
            self._wire.encrypt()
            self._ask_capabilities()
        try:
            self._give(user, password)
        except Rejected as error:
            raise AuthError(error.message, details=error.details) from error
        self._ask_capabilities()

    def _give(self, user: str, password: str) -> None:
        if self.can("AUTH=PLAIN") and self.can("SASL-IR"):
            self.command("AUTHENTICATE", "PLAIN", base64.b64encode(f"\0{user}\0{password}".encode()).decode("ascii"))
        elif self.can("LOGINDISABLED"):
            raise ConfigError("The IMAP server takes no password over this connection; set `imap_tls` to tls or starttls.")
        else:
            self.command("LOGIN", Text(user.encode()), Text(password.encode()))

    def _ask_capabilities(self) -> None:
        told = self.command("CAPABILITY")
        self._capabilities = {word.upper() for line in told if _kind(line) == "CAPABILITY" for word in line.text.split()[2:]}

    # -- the conversation

    def _say(self, tag: str, parts: Sequence[str | Text]) -> None:
        line = bytearray(tag.encode("ascii"))
        for part in parts:
            line += b" "
            if isinstance(part, str):
                line += part.encode("ascii")
            elif _QUOTABLE.fullmatch(part.content):
                line += b'"' + part.content + b'"'
            else:
                line += b"{%d}\r\n" % len(part.content)
                self._wire.send(bytes(line))
                self._invited(tag, parts)
                line = bytearray(part.content)
        self._wire.send(bytes(line) + b"\r\n")

    def _invited(self, tag: str, parts: Sequence[str | Text]) -> None:
        """The server asks for the literal, or has refused the command before it."""
        while True:
            text = self._reply().text
            if text.startswith("+"):
                return
            if text.startswith(f"{tag} "):
                raise self._refusal(text[len(tag) + 1 :], parts)

    def _until(self, tag: str) -> list[Told]:
        told: list[Told] = []
        size = 0
        while True:
            reply = self._reply()
            text = reply.text
            size += sum(map(len, (*reply.lines, *reply.literals)))
            if size > _MOST_BYTES:
                raise self._wire.nonsense(f"more than {_MOST_BYTES} bytes to one command")
            told.append(reply)
            if text.startswith(f"{tag} "):
                return told
            if text[:5].upper() == "* BYE":
                raise self._refusal(text[2:], ())
            if text.startswith("+"):  # AUTHENTICATE: the server wants to go on although all was said
                self._wire.send(b"*\r\n")
            elif not text.startswith("* "):
                raise self._wire.nonsense("a line that answers nothing")

    def _reply(self) -> Told:
        lines: list[bytes] = []
        literals: list[bytes] = []
        size = 0
        while True:
            line = self._wire.line(_LONGEST_LINE)
            wanted = literal_size(line)
            if wanted is None:
                return Told((*lines, line), tuple(literals))
            size += wanted + len(line)
            if size > _MOST_BYTES:
                raise self._wire.nonsense(f"a reply of {size} bytes")
            lines.append(without_literal(line))
            literals.append(self._wire.exactly(wanted))

    def _fetched(self, told: Sequence[Told]) -> dict[int, dict[str, Any]]:
        found: dict[int, dict[str, Any]] = {}
        for line in told:
            if _kind(line) != "FETCH":
                continue
            tokens = line.tokens()
            if len(tokens) != 4 or not isinstance(tokens[3], list):
                raise Unreadable
            values = pairs(tokens[3])
            if "UID" in values:  # a server may also tell, unasked, what changed elsewhere
                found.setdefault(number(values["UID"]), {}).update(values)
        return found

    def _read(self, work: Callable[[], _T]) -> _T:
        try:
            return work()
        except Unreadable as error:
            raise self._wire.nonsense("a reply that cannot be read") from error

    def _refusal(self, verdict: str, parts: Sequence[str | Text]) -> ConnectorError:
        """What NO, BAD and BYE mean, by their code (RFC 5530)."""
        kind = verdict.split(" ", 1)[0].upper()
        found = _CODE.search(verdict)
        code = found.group(1).upper() if found else ""
        details = {"code": code} if code else {}
        words = verdict.partition(" ")[2].strip()[:300]
        if kind not in ("NO", "BAD", "BYE"):
            return self._wire.nonsense("a verdict that is neither OK, NO nor BAD")
        if code in _AUTH_CODES:
            return AuthError(f"The IMAP server does not allow it to this user: {words}", details=details)
        if code == "LIMIT":
            return RateLimited(f"The IMAP server asks for patience: {words}", details=details)
        if kind == "BYE" or code in _LATER_CODES:
            return TransientError(f"The IMAP server cannot do it now: {words}", outcome=self._wire.when_lost, details=details)
        if code in ("NONEXISTENT", "TRYCREATE"):
            return ConfigError(f"There is no such folder: {words}", details=details)
        what = " ".join(part for part in parts[:2] if isinstance(part, str) and part.isalpha()) or "it"
        return Rejected(f"The IMAP server refuses {what.split(' ')[0] if 'PLAIN' in what else what}: {words}", details=details)


def folder_name(folder: str) -> Text:
    """A folder as a value of a command."""
    if not folder or "\0" in folder or "\r" in folder or "\n" in folder:
        raise ConfigError("A folder's name is a text without line breaks.")
    try:
        return Text(encode_folder(folder))
    except UnicodeEncodeError as error:
        raise ConfigError("The folder's name contains half of a character pair.") from error


def _kind(told: Told) -> str:
    """SEARCH of `* SEARCH 1 2`, FETCH of `* 7 FETCH (…)`."""
    words = told.text.split(" ", 3)
    if words[0] != "*" or len(words) < 2:
        return ""
    return (words[2] if words[1].isdigit() and len(words) > 2 else words[1]).upper()


def _folder_of(told: Told) -> dict[str, Any]:
    match told.tokens():
        case [_, _, list(flags), bytes(delimiter), bytes(name), *_]:
            known = {flag.decode("ascii", "replace").lower() for flag in flags if isinstance(flag, bytes)}
            uses = sorted(flag[1:] for flag in known & _SPECIAL)
            return {
                "name": decode_folder(name),
                "delimiter": None if delimiter == b"NIL" else delimiter.decode("utf-8", "replace"),
                "selectable": not known & {"\\noselect", "\\nonexistent"},
                "use": uses[0] if uses else None,
            }
    raise Unreadable


_SPECIAL = {"\\all", "\\archive", "\\drafts", "\\flagged", "\\junk", "\\sent", "\\trash"}
