"""A connection that speaks in lines, over the socket the appliance has opened: every read and write ends at the deadline.

SMTP and IMAP are spoken here and not by smtplib, which opens its connections itself.
"""

import ssl
import time
from dataclasses import dataclass

from appliance.connectors.contract import ConfigError, Context, Outcome, SystemFailure, TransientError

_CHUNK = 64 * 1024


@dataclass(frozen=True)
class Peer:
    """Whom to speak to.  `tls` is tls (from the first byte), starttls or off; `ca` holds PEM certificates to trust."""

    protocol: str
    host: str
    port: int
    tls: str
    ca: str | None = None

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class Wire:
    """One connection.  `when_lost` is the outcome to tell when it breaks: it changes once something may have happened."""

    def __init__(self, peer: Peer, ctx: Context) -> None:
        self.peer = peer
        self.when_lost: Outcome = "not_done"
        self._deadline = ctx.deadline
        self._context = _tls(peer)
        self._socket = ctx.dial(peer.host, peer.port)
        self._buffer = bytearray()
        if peer.tls == "tls":
            self._wrap()

    def encrypt(self) -> None:
        """Go on in TLS, after the server agreed; nothing that came in clear text is believed afterwards."""
        if self._buffer:
            raise SystemFailure(f"{self.peer} sent more in clear text after agreeing to TLS; someone may be in between.")
        self._wrap()

    def send(self, content: bytes) -> None:
        self._patience()
        try:
            self._socket.sendall(content)
        except OSError as error:
            raise self._lost() from error

    def line(self, most: int) -> bytes:
        """The next line without its end; SystemFailure when it is longer than `most`."""
        searched = 0
        while (end := self._buffer.find(b"\n", searched)) < 0:
            searched = len(self._buffer)
            if searched > most:
                raise self.nonsense("a line that does not end")
            self._receive()
        line = bytes(self._buffer[:end]).removesuffix(b"\r")
        del self._buffer[: end + 1]
        return line

    def exactly(self, size: int) -> bytes:
        """The next `size` bytes."""
        while len(self._buffer) < size:
            self._receive()
        content = bytes(self._buffer[:size])
        del self._buffer[:size]
        return content

    def nonsense(self, what: str) -> SystemFailure:
        """The error for an answer that is not of the protocol."""
        return SystemFailure(f"{self.peer} does not speak {self.peer.protocol}: it sent {what}.", outcome=self.when_lost)

    def close(self) -> None:
        """Hang up: a farewell could block, and both protocols allow to go without."""
        self._socket.close()

    def _patience(self) -> None:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise self._lost()
        self._socket.settimeout(left)

    def _receive(self) -> None:
        self._patience()
        try:
            chunk = self._socket.recv(_CHUNK)
        except OSError as error:
            raise self._lost() from error
        if not chunk:
            raise self._lost()
        self._buffer += chunk

    def _lost(self) -> TransientError:
        return TransientError(f"{self.peer} hung up, or did not answer in time.", outcome=self.when_lost)

    def _wrap(self) -> None:
        try:
            self._patience()
            self._socket = self._context.wrap_socket(self._socket, server_hostname=self.peer.host)
        except ssl.SSLCertVerificationError as error:
            self.close()
            raise ConfigError(
                f"The certificate of {self.peer} is not trusted ({error.verify_message}); give its authority in `ca`."
            ) from error
        except ssl.SSLError as error:
            self.close()
            raise ConfigError(
                f"{self.peer} does not begin TLS; check the port and whether it wants tls, starttls or off."
            ) from error
        except OSError as error:
            self.close()
            raise self._lost() from error


def _tls(peer: Peer) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cadata=peer.ca)
    except ssl.SSLError as error:
        raise ConfigError("`ca` holds no PEM certificate; give the text from BEGIN to END CERTIFICATE.") from error
