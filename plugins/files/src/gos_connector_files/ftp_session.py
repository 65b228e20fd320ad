"""FTP's conversation (RFC 959, 2228, 2428, 3659, 4217): one connection for words, one for each file, both to the same machine."""

import re
import ssl
from collections.abc import Iterator
from contextlib import contextmanager

from appliance.connectors.contract import (
    AuthError,
    ConfigError,
    ConnectorError,
    Context,
    Json,
    Outcome,
    Rejected,
    SystemFailure,
    TransientError,
)
from gos_connector_files.wire import Wire

_MOST_LINES = 10_000
_REPLY = re.compile(rb"(\d{3})([ -])(.*)", re.DOTALL)
_EPSV = re.compile(r"\(([!-~])\1\1(\d{1,5})\1\)")
_PASV = re.compile(r"(\d{1,3}),(\d{1,3}),(\d{1,3}),(\d{1,3}),(\d{1,3}),(\d{1,3})")
_NO_ROOM = (452, 552)


class Reply:
    """A code and its lines of text."""

    def __init__(self, code: int, lines: list[str]) -> None:
        self.code = code
        self.lines = lines

    @property
    def kind(self) -> int:
        """1 begun, 2 done, 3 go on, 4 not now, 5 no."""
        return self.code // 100

    def __str__(self) -> str:
        return f"{self.code} {' '.join(self.lines)[:200]}"


class FtpSession:
    """A user signed in; every step ends at the call's deadline."""

    def __init__(self, settings: Json, ctx: Context) -> None:
        self._settings = settings
        self._ctx = ctx
        self._tls = settings.get("tls", "explicit")
        self._context = _context(settings) if self._tls != "off" else None
        self._host = settings["host"]
        self._wire = Wire(self._host, settings.get("port") or (990 if self._tls == "implicit" else 21), ctx)
        self._epsv = True
        self.features: frozenset[str] = frozenset()

    @property
    def place(self) -> str:
        return self._wire.place

    @property
    def protection(self) -> str:
        return self._wire.protection

    def sign_in(self) -> None:
        """Nothing secret leaves before TLS, unless the settings do without it."""
        if self._tls == "implicit":
            self._encrypt()
        greeting = self._reply()
        if greeting.kind != 2:
            raise TransientError(f"{self.place} lets nobody in now ({greeting}).")
        if self._tls == "explicit":
            answer = self._ask("AUTH TLS")
            if answer.kind != 2:
                raise ConfigError(f"{self.place} offers no TLS ({answer}); set `tls` to implicit if it wants that, or to off.")
            self._encrypt()
        self._authenticate()
        if self._context is not None:
            for command in ("PBSZ 0", "PROT P"):
                if (answer := self._ask(command)).kind != 2:
                    raise ConfigError(f"{self.place} does not encrypt files ({answer}); set `tls` to off, if that may be.")
        told = self._ask("FEAT")
        self.features = (
            frozenset(line.strip().split(" ")[0].upper() for line in told.lines[1:-1]) if told.kind == 2 else frozenset()
        )
        if "UTF8" in self.features:
            self._ask("OPTS UTF8 ON")  # servers that always speak UTF-8 may refuse
        self.done("TYPE I", "")

    def _encrypt(self) -> None:
        if self._context is not None:
            self._wire.encrypt(self._context)

    def _authenticate(self) -> None:
        answer = self._ask(f"USER {_plain(self._settings['user'])}")
        if answer.code == 331:
            answer = self._ask(f"PASS {_plain(self._settings.get('password', ''))}")
        if answer.kind == 2:
            return
        if answer.kind == 4:
            raise TransientError(f"{self.place} lets nobody in now ({answer.code}).")
        raise AuthError(
            f"{self.place} does not let {self._settings['user']!r} in ({answer.code}); check `user`, `password` and `tls`.",
            details={"reply": answer.code},
        )

    def done(self, command: str, path: str, when_lost: Outcome = "not_done") -> Reply:
        """The answer to a command that succeeded; the contract's error for one that did not."""
        answer = self._ask(command, when_lost)
        if answer.kind not in (2, 3):
            raise self.refusal(answer, path, when_lost)
        return answer

    def found(self, command: str, path: str) -> Reply | None:
        """The same, None when the server says that there is nothing (550 means no more than that)."""
        answer = self._ask(command)
        if answer.code == 550:
            return None
        if answer.kind != 2:
            raise self.refusal(answer, path, "not_done")
        return answer

    def fetch(self, command: str, path: str, most: int) -> bytes:
        """What the server sends for a command: at most `most` bytes and some, after which nothing more can be asked."""
        content = bytearray()
        with self._data(command, path) as data:
            while len(content) <= most and (chunk := data.some()):
                content += chunk
            if len(content) <= most:
                data.finish()
        if len(content) <= most:
            self._complete(path)
        return bytes(content)

    def store(self, command: str, path: str, content: bytes) -> None:
        """Send the server the content for a command."""
        with self._data(command, path) as data:
            data.send(content)
            data.finish()
        self._complete(path)

    def refusal(self, answer: Reply, path: str, when_lost: Outcome) -> ConnectorError:
        """What a reply that is no success means."""
        details = {"reply": answer.code}
        if answer.code == 530:
            return AuthError(f"{self.place} wants to be signed in to for this ({answer}).", details=details)
        if answer.code in _NO_ROOM:
            return Rejected("The server has no room left; delete something there.", details=details)
        if answer.kind == 5:
            return Rejected(f"{self.place} refused this with {path!r} ({answer}).", details=details)
        if answer.kind == 4:
            outcome: Outcome = when_lost if answer.code == 421 else "not_done"
            return TransientError(f"{self.place} cannot do this now ({answer}).", outcome=outcome, details=details)
        return SystemFailure(f"{self.place} answered what is not FTP's ({answer.code}).", outcome=when_lost, details=details)

    def close(self) -> None:
        self._wire.close()

    @contextmanager
    def _data(self, command: str, path: str) -> Iterator[Wire]:
        """The connection for one file, once the server has agreed to the command."""
        data = Wire(self._host, self._passive(), self._ctx)
        try:
            # A server may name any address for its files, and a name may lead to several machines: there is but one to go to.
            if data.machine != self._wire.machine:
                raise TransientError(f"{self._host} leads to several machines; name the one that is meant by its address.")
            answer = self._ask(command)
            if answer.kind != 1:
                raise self.refusal(answer, path, "not_done")
            if self._context is not None:
                data.encrypt(self._context, self._wire)
            yield data
        finally:
            data.close()

    def _passive(self) -> int:
        """The port for the next file.  An address that the server names beside it is not read."""
        if self._epsv:
            answer = self._ask("EPSV")
            if answer.code == 229 and (match := _EPSV.search(answer.lines[0])):
                return self._port(int(match[2]))
            self._epsv = False
        answer = self._ask("PASV")
        match = _PASV.search(answer.lines[0])
        if answer.code != 227 or match is None:
            raise self.refusal(answer, "", "not_done")
        return self._port(int(match[5]) * 256 + int(match[6]))

    def _port(self, port: int) -> int:
        if not 0 < port < 65536:
            raise SystemFailure(f"{self.place} named a port that is none for its files.")
        return port

    def _complete(self, path: str) -> None:
        answer = self._reply()
        if answer.kind != 2:
            raise self.refusal(answer, path, "not_done")

    def _ask(self, command: str, when_lost: Outcome = "not_done") -> Reply:
        self._wire.when_lost = when_lost
        self._wire.send(f"{command}\r\n".encode())
        answer = self._reply()
        self._wire.when_lost = "not_done"
        return answer

    def _reply(self) -> Reply:
        first = self._wire.line()
        match = _REPLY.fullmatch(first)
        if match is None:
            raise SystemFailure(f"{self.place} does not speak FTP.", outcome=self._wire.when_lost)
        code, lines = match[1], [match[3]]
        if match[2] == b"-":
            while True:
                line = self._wire.line()
                ending = _REPLY.fullmatch(line)
                lines.append(line)
                if ending is not None and ending[1] == code and ending[2] == b" ":
                    break
                if len(lines) > _MOST_LINES:
                    raise SystemFailure(f"{self.place} sent a reply that does not end.", outcome=self._wire.when_lost)
        return Reply(int(code), [line.decode("utf-8", "replace") for line in lines])


def _plain(text: str) -> str:
    if any(sign in text for sign in "\r\n\0"):
        raise ConfigError("`user` and `password` may hold no end of a line.")
    return text


def _context(settings: Json) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cadata=settings.get("ca"))
    except ssl.SSLError as error:
        raise ConfigError("`ca` holds no PEM certificate; give the text from BEGIN to END CERTIFICATE.") from error
