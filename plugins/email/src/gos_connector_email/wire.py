"""A line-based connection over a socket the appliance opened; every read and write ends at the call's deadline.

The connector implements SMTP and IMAP itself because smtplib and imaplib open their own connections.
"""

import ssl
import time
from dataclasses import dataclass

from appliance.connectors.contract import ConfigError, Context, Outcome, SystemFailure, TransientError

_CHUNK = 64 * 1024


@dataclass(frozen=True)
class Peer:
    """The server to connect to. `tls` is tls (from the first byte), starttls or off; `ca` holds PEM certificates to trust."""

    protocol: str
    host: str
    port: int
    tls: str
    ca: str | None = None

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class Wire:
    """One connection. `outcome_when_lost` is reported when it breaks; it becomes unknown once something may have happened."""

    def __init__(self, peer: Peer, ctx: Context) -> None:
        self.peer = peer
        self.outcome_when_lost: Outcome = "not_done"
        self._deadline = ctx.deadline
        self._context = _tls_context(peer)
        self._socket = ctx.dial(peer.host, peer.port)
        self._buffer = bytearray()
        if peer.tls == "tls":
            self._wrap()

    def encrypt(self) -> None:
        """Switch to TLS after the server agreed; data it already sent in clear text is an error."""
        if self._buffer:
            raise SystemFailure(f"{self.peer} sent data in clear text after agreeing to TLS; the connection may be intercepted.")
        self._wrap()

    def send(self, content: bytes) -> None:
        self._apply_timeout()
        try:
            self._socket.sendall(content)
        except OSError as error:
            raise self._lost() from error

    def read_line(self, max_bytes: int) -> bytes:
        """The next line without its end; SystemFailure when it is longer than `most`."""
        searched = 0
        while (end := self._buffer.find(b"\n", searched)) < 0:
            searched = len(self._buffer)
            if searched > max_bytes:
                raise self.protocol_error("a line that does not end")
            self._receive()
        line = bytes(self._buffer[:end]).removesuffix(b"\r")
        del self._buffer[: end + 1]
        return line

    def read_exactly(self, size: int) -> bytes:
        """The next `size` bytes."""
        while len(self._buffer) < size:
            self._receive()
        content = bytes(self._buffer[:size])
        del self._buffer[:size]
        return content

    def protocol_error(self, description: str) -> SystemFailure:
        """The error for a reply that violates the protocol."""
        message = f"{self.peer} does not follow the {self.peer.protocol} protocol: it sent {description}."
        return SystemFailure(message, outcome=self.outcome_when_lost)

    def close(self) -> None:
        """Close the socket without QUIT or LOGOUT, which could block and which neither protocol requires."""
        self._socket.close()

    def _apply_timeout(self) -> None:
        remaining = self._deadline - time.monotonic()
        if remaining <= 0:
            raise self._lost()
        self._socket.settimeout(remaining)

    def _receive(self) -> None:
        self._apply_timeout()
        try:
            chunk = self._socket.recv(_CHUNK)
        except OSError as error:
            raise self._lost() from error
        if not chunk:
            raise self._lost()
        self._buffer += chunk

    def _lost(self) -> TransientError:
        return TransientError(f"{self.peer} closed the connection or did not answer in time.", outcome=self.outcome_when_lost)

    def _wrap(self) -> None:
        try:
            self._apply_timeout()
            self._socket = self._context.wrap_socket(self._socket, server_hostname=self.peer.host)
        except ssl.SSLCertVerificationError as error:
            self.close()
            raise ConfigError(
                f"The certificate of {self.peer} is not trusted ({error.verify_message}); add its certificate authority to `ca`."
            ) from error
        except ssl.SSLError as error:
            self.close()
            raise ConfigError(
                f"{self.peer} did not start TLS; check the port and whether it needs tls, starttls or off."
            ) from error
        except OSError as error:
            self.close()
            raise self._lost() from error


def _tls_context(peer: Peer) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cadata=peer.ca)
    except ssl.SSLError as error:
        raise ConfigError("`ca` contains no PEM certificate; give the text from BEGIN to END CERTIFICATE.") from error
