"""An IMAP session: sign-in, folders, and commands whose values are quoted so that they cannot inject commands.

It does not use imaplib.  That sends at most one literal per command, but every value of a search that is not ASCII needs one;
it quotes no values; and it limits neither the replies to a command nor, apart from their lines, a single reply.
"""

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
    Peer,
    RateLimited,
    Rejected,
    SystemFailure,
    TransientError,
    Wire,
)
from gos_connector_email.replies import (
    Reply,
    Unreadable,
    decode_folder,
    encode_folder,
    literal_size,
    number,
    pairs,
    without_literal,
)

_T = TypeVar("_T")
_MAX_LINE = 16 * 1024 * 1024
_MAX_BYTES = 96 * 1024 * 1024
_QUOTABLE = re.compile(rb"[\x20\x21\x23-\x5b\x5d-\x7e]{0,500}")
_CODE = re.compile(r"\[([A-Z0-9-]+)(?: ([^\]]*))?\]", re.IGNORECASE)
_AUTH_CODES = {"AUTHENTICATIONFAILED", "AUTHORIZATIONFAILED", "EXPIRED", "PRIVACYREQUIRED", "CONTACTADMIN", "NOPERM"}
_TRANSIENT_CODES = {"UNAVAILABLE", "INUSE", "SERVERBUG"}


@dataclass(frozen=True)
class Folder:
    """The open folder; UIDs keep identifying the same messages as long as `validity` is unchanged."""

    validity: int
    next_uid: int


@dataclass(frozen=True)
class Text:
    """A value in a command; sent quoted or as a literal."""

    content: bytes


class Imap:
    """One IMAP session; the constructor connects and signs in. Raises errors of the connector contract."""

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

    def has(self, capability: str) -> bool:
        return capability in self._capabilities

    # -- folders and messages

    def folders(self) -> list[dict[str, Any]]:
        """All folders: name, delimiter, whether a folder can be opened, and its special use."""
        replies = self.command("LIST", Text(b""), Text(b"*"))
        return self._parse(lambda: [_parse_folder(reply) for reply in replies if _kind(reply) == "LIST"])

    def open(self, folder: str, *, read_only: bool) -> Folder:
        """Open a folder, read-only or for changes."""
        replies = self.command("EXAMINE" if read_only else "SELECT", folder_name(folder))
        codes = {match.group(1).upper(): match.group(2) or "" for reply in replies if (match := _CODE.search(reply.text))}
        validity, next_uid = codes.get("UIDVALIDITY", ""), codes.get("UIDNEXT", "")
        if not validity.isdigit() or not next_uid.isdigit():
            raise SystemFailure(f"{self._wire.peer} did not return UIDVALIDITY and UIDNEXT of {folder!r}; UIDs need both.")
        return Folder(int(validity), int(next_uid))

    def search(self, criteria: Sequence[str | Text]) -> list[int]:
        """The UIDs of matching messages, in ascending order."""
        is_ascii = all(isinstance(each, str) or each.content.isascii() for each in criteria)
        replies = self.command("UID", "SEARCH", *(() if is_ascii else ("CHARSET", "UTF-8")), *criteria)
        search_replies = [reply for reply in replies if _kind(reply) == "SEARCH"]
        return self._parse(lambda: sorted({number(token) for reply in search_replies for token in reply.tokens()[2:]}))

    def fetch(self, uids: str, *items: str) -> dict[int, dict[str, Any]]:
        """The requested items of each message, by UID and by item name in upper case."""
        return self._parse(lambda: self._parse_fetch(self.command("UID", "FETCH", uids, f"(UID {' '.join(items)})")))

    def change(self, *parts: str | Text) -> None:
        """Send a command that changes something; if the connection is lost before its reply, the outcome is unknown."""
        self._wire.outcome_when_lost = "unknown"
        self.command(*parts)
        self._wire.outcome_when_lost = "not_done"

    def command(self, *parts: str | Text) -> list[Reply]:
        """Send a command and return its replies, the tagged one last; raises the matching error when it is refused."""
        self._tag += 1
        tag = f"g{self._tag}"
        self._send(tag, parts)
        replies = self._read_until(tag)
        status = replies[-1].text[len(tag) + 1 :]
        if status[:2].upper() != "OK":
            raise self._refusal(status, parts)
        return replies

    # -- signing in

    def _sign_in(self, user: str, password: str) -> None:
        greeting = self._read_reply().text
        if greeting[:5].upper() == "* BYE":
            raise self._refusal(greeting[2:], ())
        if greeting[:4].upper() != "* OK":
            # Also PREAUTH, which would bypass both TLS and the password.
            raise self._wire.protocol_error("a greeting that does not allow to sign in")
        self._load_capabilities()
        if self._wire.peer.tls == "starttls":
            if not self.has("STARTTLS"):
                raise ConfigError("The IMAP server does not offer STARTTLS; set `imap_tls` to tls, or to off in a trusted network.")
            self.command("STARTTLS")
            self._wire.encrypt()
            self._load_capabilities()
        try:
            self._authenticate(user, password)
        except Rejected as error:
            raise AuthError(error.message, details=error.details) from error
        self._load_capabilities()

    def _authenticate(self, user: str, password: str) -> None:
        if self.has("AUTH=PLAIN") and self.has("SASL-IR"):
            self.command("AUTHENTICATE", "PLAIN", base64.b64encode(f"\0{user}\0{password}".encode()).decode("ascii"))
        elif self.has("LOGINDISABLED"):
            raise ConfigError("The IMAP server accepts no password over this connection; set `imap_tls` to tls or starttls.")
        else:
            self.command("LOGIN", Text(user.encode()), Text(password.encode()))

    def _load_capabilities(self) -> None:
        replies = self.command("CAPABILITY")
        self._capabilities = {word.upper() for reply in replies if _kind(reply) == "CAPABILITY" for word in reply.text.split()[2:]}

    # -- commands and replies

    def _send(self, tag: str, parts: Sequence[str | Text]) -> None:
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
                self._await_continuation(tag, parts)
                line = bytearray(part.content)
        self._wire.send(bytes(line) + b"\r\n")

    def _await_continuation(self, tag: str, parts: Sequence[str | Text]) -> None:
        """Wait until the server asks for the literal; raises when it refuses the command instead."""
        while True:
            text = self._read_reply().text
            if text.startswith("+"):
                return
            if text.startswith(f"{tag} "):
                raise self._refusal(text[len(tag) + 1 :], parts)

    def _read_until(self, tag: str) -> list[Reply]:
        replies: list[Reply] = []
        size = 0
        while True:
            reply = self._read_reply()
            text = reply.text
            size += sum(map(len, (*reply.lines, *reply.literals)))
            if size > _MAX_BYTES:
                raise self._wire.protocol_error(f"more than {_MAX_BYTES} bytes in reply to one command")
            replies.append(reply)
            if text.startswith(f"{tag} "):
                return replies
            if text[:5].upper() == "* BYE":
                raise self._refusal(text[2:], ())
            if text.startswith("+"):  # AUTHENTICATE: the server asks for more although everything was sent
                self._wire.send(b"*\r\n")
            elif not text.startswith("* "):
                raise self._wire.protocol_error("a line that belongs to no command")

    def _read_reply(self) -> Reply:
        lines: list[bytes] = []
        literals: list[bytes] = []
        size = 0
        while True:
            line = self._wire.read_line(_MAX_LINE)
            literal_bytes = literal_size(line)
            if literal_bytes is None:
                return Reply((*lines, line), tuple(literals))
            size += literal_bytes + len(line)
            if size > _MAX_BYTES:
                raise self._wire.protocol_error(f"a reply of {size} bytes")
            lines.append(without_literal(line))
            literals.append(self._wire.read_exactly(literal_bytes))

    def _parse_fetch(self, replies: Sequence[Reply]) -> dict[int, dict[str, Any]]:
        messages: dict[int, dict[str, Any]] = {}
        for reply in replies:
            if _kind(reply) != "FETCH":
                continue
            tokens = reply.tokens()
            if len(tokens) != 4 or not isinstance(tokens[3], list):
                raise Unreadable
            values = pairs(tokens[3])
            if "UID" in values:  # a server may also report changes to other messages, without a UID
                messages.setdefault(number(values["UID"]), {}).update(values)
        return messages

    def _parse(self, parse: Callable[[], _T]) -> _T:
        try:
            return parse()
        except Unreadable as error:
            raise self._wire.protocol_error("a reply that cannot be parsed") from error

    def _refusal(self, status: str, parts: Sequence[str | Text]) -> ConnectorError:
        """The error for NO, BAD and BYE, by their response code (RFC 5530)."""
        kind = status.split(" ", 1)[0].upper()
        match = _CODE.search(status)
        code = match.group(1).upper() if match else ""
        details = {"code": code} if code else {}
        words = status.partition(" ")[2].strip()[:300]
        if kind not in ("NO", "BAD", "BYE"):
            return self._wire.protocol_error("a status that is neither OK, NO nor BAD")
        if code in _AUTH_CODES:
            return AuthError(f"The IMAP server does not allow this for the user: {words}", details=details)
        if code == "LIMIT":
            return RateLimited(f"The IMAP server limits the rate of requests: {words}", details=details)
        if kind == "BYE" or code in _TRANSIENT_CODES:
            outcome = self._wire.outcome_when_lost
            return TransientError(f"The IMAP server is unavailable now: {words}", outcome=outcome, details=details)
        if code in ("NONEXISTENT", "TRYCREATE"):
            return ConfigError(f"There is no such folder: {words}", details=details)
        what = " ".join(part for part in parts[:2] if isinstance(part, str) and part.isalpha()) or "it"
        return Rejected(f"The IMAP server refuses {what.split(' ')[0] if 'PLAIN' in what else what}: {words}", details=details)


def folder_name(folder: str) -> Text:
    """A folder name, encoded as a value of a command."""
    if not folder or "\0" in folder or "\r" in folder or "\n" in folder:
        raise ConfigError("A folder name must not be empty or contain line breaks or NUL characters.")
    try:
        return Text(encode_folder(folder))
    except UnicodeEncodeError as error:
        raise ConfigError("The folder name contains an unpaired surrogate character; remove it.") from error


def _kind(reply: Reply) -> str:
    """The kind of an untagged reply: SEARCH for `* SEARCH 1 2`, FETCH for `* 7 FETCH (…)`."""
    words = reply.text.split(" ", 3)
    if words[0] != "*" or len(words) < 2:
        return ""
    return (words[2] if words[1].isdigit() and len(words) > 2 else words[1]).upper()


def _parse_folder(reply: Reply) -> dict[str, Any]:
    match reply.tokens():
        case [_, _, list(flags), bytes(delimiter), bytes(name), *_]:
            attributes = {flag.decode("ascii", "replace").lower() for flag in flags if isinstance(flag, bytes)}
            uses = sorted(flag[1:] for flag in attributes & _SPECIAL)
            return {
                "name": decode_folder(name),
                "delimiter": None if delimiter == b"NIL" else delimiter.decode("utf-8", "replace"),
                "selectable": not attributes & {"\\noselect", "\\nonexistent"},
                "use": uses[0] if uses else None,
            }
    raise Unreadable


_SPECIAL = {"\\all", "\\archive", "\\drafts", "\\flagged", "\\junk", "\\sent", "\\trash"}
