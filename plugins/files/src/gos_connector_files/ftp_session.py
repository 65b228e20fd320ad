"""An FTP session (RFC 959, 2228, 2428, 3659, 4217): a control connection and one data connection per file, to one machine.

It does not use ftplib.  Data connections are dialled by the appliance, and only to the machine of the control connection, and
they resume its TLS session, as many servers require: ftplib's transfers would have to be written anew.  It also accepts replies
of any number of lines, fails on names that are not UTF-8, and has no implicit TLS; only its parser of replies would be left.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from appliance.connectors.contract import (
    AuthError,
    ConfigError,
    ConnectorError,
    Context,
    Json,
    Outcome,
    Peer,
    Rejected,
    SystemFailure,
    TransientError,
    Wire,
)

_MOST_LINE = 16 * 1024
_MOST_LINES = 10_000
_TLS = {"explicit": "starttls", "implicit": "tls", "off": "off"}
_REPLY = re.compile(rb"(\d{3})([ -])(.*)", re.DOTALL)
_EPSV = re.compile(r"\(([!-~])\1\1(\d{1,5})\1\)")
_PASV = re.compile(r"(\d{1,3}),(\d{1,3}),(\d{1,3}),(\d{1,3}),(\d{1,3}),(\d{1,3})")
_DISK_FULL = (452, 552)


class Reply:
    """A reply code and its lines of text."""

    def __init__(self, code: int, lines: list[str]) -> None:
        self.code = code
        self.lines = lines

    @property
    def kind(self) -> int:
        """The first digit: 1 started, 2 completed, 3 continue, 4 transient failure, 5 permanent failure."""
        return self.code // 100

    def __str__(self) -> str:
        return f"{self.code} {' '.join(self.lines)[:200]}"


class FtpSession:
    """A signed-in session; every step ends at the call's deadline."""

    def __init__(self, settings: Json, ctx: Context) -> None:
        self._settings = settings
        self._ctx = ctx
        self._tls = _TLS[settings.get("tls", "explicit")]
        port = settings.get("port") or (990 if self._tls == "tls" else 21)
        self._peer = Peer("FTP", settings["host"], port, self._tls, settings.get("ca"))
        self._wire = Wire(self._peer, ctx)
        self._epsv = True
        self.features: frozenset[str] = frozenset()

    @property
    def address(self) -> str:
        return str(self._peer)

    @property
    def protection(self) -> str:
        return self._wire.tls_version

    def sign_in(self) -> None:
        """Sign in; credentials are sent only over TLS unless the settings turn it off."""
        greeting = self._read_reply()
        if greeting.kind != 2:
            raise TransientError(f"{self.address} accepts no sign-ins now ({greeting}).")
        if self._tls == "starttls":
            reply = self._send_command("AUTH TLS")
            if reply.kind != 2:
                raise ConfigError(f"{self.address} offers no explicit TLS ({reply}); set `tls` to implicit or off.")
            self._wire.encrypt()
        self._authenticate()
        if self._tls != "off":
            for command in ("PBSZ 0", "PROT P"):
                if (reply := self._send_command(command)).kind != 2:
                    raise ConfigError(f"{self.address} does not encrypt files ({reply}); set `tls` to off to send clear text.")
        features_reply = self._send_command("FEAT")
        lines = features_reply.lines[1:-1] if features_reply.kind == 2 else []
        self.features = frozenset(line.strip().split(" ")[0].upper() for line in lines)
        if "UTF8" in self.features:
            self._send_command("OPTS UTF8 ON")  # Servers that always use UTF-8 may refuse.
        self.execute("TYPE I", "")

    def _authenticate(self) -> None:
        reply = self._send_command(f"USER {_check_line(self._settings['user'])}")
        if reply.code == 331:
            reply = self._send_command(f"PASS {_check_line(self._settings.get('password', ''))}")
        if reply.kind == 2:
            return
        if reply.kind == 4:
            raise TransientError(f"{self.address} accepts no sign-ins now ({reply.code}).")
        raise AuthError(
            f"{self.address} does not accept the user {self._settings['user']!r} ({reply.code}); "
            "check `user`, `password` and `tls`.",
            details={"reply": reply.code},
        )

    def execute(self, command: str, path: str, when_lost: Outcome = "not_done") -> Reply:
        """Send a command and return its reply; raise the contract's error if it fails."""
        reply = self._send_command(command, when_lost)
        if reply.kind not in (2, 3):
            raise self.refusal(reply, path, when_lost)
        return reply

    def find(self, command: str, path: str) -> Reply | None:
        """Like `execute`, but return None for 550: the path does not exist or is not accessible."""
        reply = self._send_command(command)
        if reply.code == 550:
            return None
        if reply.kind != 2:
            raise self.refusal(reply, path, "not_done")
        return reply

    def fetch(self, command: str, path: str, most: int) -> bytes:
        """Return the data the server sends; beyond `most` bytes the transfer is aborted and the session cannot be used further."""
        content = bytearray()
        with self._data_connection(command, path) as data:
            while len(content) <= most and (chunk := data.receive()):
                content += chunk
            if len(content) <= most:
                data.finish()
        if len(content) <= most:
            self._finish_transfer(path)
        return bytes(content)

    def store(self, command: str, path: str, content: bytes) -> None:
        """Upload content with a command."""
        with self._data_connection(command, path) as data:
            data.send(content)
            data.finish()
        self._finish_transfer(path)

    def refusal(self, reply: Reply, path: str, when_lost: Outcome) -> ConnectorError:
        """Return the contract's error for a failure reply."""
        details = {"reply": reply.code}
        if reply.code == 530:
            return AuthError(f"{self.address} requires a sign-in for this ({reply}).", details=details)
        if reply.code in _DISK_FULL:
            return Rejected("The server has no space left; delete files there.", details=details)
        if reply.kind == 5:
            return Rejected(f"{self.address} refused this with {path!r} ({reply}).", details=details)
        if reply.kind == 4:
            outcome: Outcome = when_lost if reply.code == 421 else "not_done"
            return TransientError(f"{self.address} cannot do this now ({reply}).", outcome=outcome, details=details)
        return SystemFailure(f"{self.address} sent an unexpected reply ({reply.code}).", outcome=when_lost, details=details)

    def close(self) -> None:
        self._wire.close()

    @contextmanager
    def _data_connection(self, command: str, path: str) -> Iterator[Wire]:
        """Open a data connection for a command the server has accepted."""
        data = Wire(replace(self._peer, port=self._passive_port(), tls="off"), self._ctx)
        try:
            # The data connection goes only to the machine of the control connection, even if the host resolves to several.
            if data.peer_ip != self._wire.peer_ip:
                raise TransientError(f"{self._peer.host} resolves to several machines; set `host` to the IP address of one.")
            reply = self._send_command(command)
            if reply.kind != 1:
                raise self.refusal(reply, path, "not_done")
            if self._tls != "off":
                data.encrypt(self._wire)
            yield data
        finally:
            data.close()

    def _passive_port(self) -> int:
        """Return the port of the next data connection; the address in the reply is ignored."""
        if self._epsv:
            reply = self._send_command("EPSV")
            if reply.code == 229 and (match := _EPSV.search(reply.lines[0])):
                return self._check_port(int(match[2]))
            self._epsv = False
        reply = self._send_command("PASV")
        match = _PASV.search(reply.lines[0])
        if reply.code != 227 or match is None:
            raise self.refusal(reply, "", "not_done")
        return self._check_port(int(match[5]) * 256 + int(match[6]))

    def _check_port(self, port: int) -> int:
        if not 0 < port < 65536:
            raise SystemFailure(f"{self.address} sent an invalid port for the data connection.")
        return port

    def _finish_transfer(self, path: str) -> None:
        reply = self._read_reply()
        if reply.kind != 2:
            raise self.refusal(reply, path, "not_done")

    def _send_command(self, command: str, when_lost: Outcome = "not_done") -> Reply:
        self._wire.outcome_when_lost = when_lost
        self._wire.send(f"{command}\r\n".encode())
        reply = self._read_reply()
        self._wire.outcome_when_lost = "not_done"
        return reply

    def _read_reply(self) -> Reply:
        first = self._wire.read_line(_MOST_LINE)
        match = _REPLY.fullmatch(first)
        if match is None:
            raise SystemFailure(f"{self.address} is not an FTP server.", outcome=self._wire.outcome_when_lost)
        code, lines = match[1], [match[3]]
        if match[2] == b"-":
            while True:
                line = self._wire.read_line(_MOST_LINE)
                last_line = _REPLY.fullmatch(line)
                lines.append(line)
                if last_line is not None and last_line[1] == code and last_line[2] == b" ":
                    break
                if len(lines) > _MOST_LINES:
                    raise SystemFailure(f"{self.address} sent a reply that is too long.", outcome=self._wire.outcome_when_lost)
        return Reply(int(code), [line.decode("utf-8", "replace") for line in lines])


def _check_line(text: str) -> str:
    if any(character in text for character in "\r\n\0"):
        raise ConfigError("`user` and `password` must not contain line breaks or NUL characters.")
    return text
