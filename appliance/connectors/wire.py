"""Connections for protocols other than HTTP: lines or exact sizes, in clear text or TLS, with every step until the deadline."""

import ssl
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from appliance.connectors.failures import ConfigError, ConnectorError, Outcome, SystemFailure, TransientError

if TYPE_CHECKING:
    from appliance.connectors.contract import Context

_CHUNK = 64 * 1024


@dataclass(frozen=True)
class Peer:
    """The server to connect to.

    `tls` is tls (from the first byte), starttls (by `Wire.encrypt`) or off; `ca` holds PEM certificates to trust, by default
    those of this machine.  `protocol` is its name in messages.
    """

    protocol: str
    host: str
    port: int
    tls: str
    ca: str | None = None

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


def tls_context(ca: str | None) -> ssl.SSLContext:
    """A context that verifies certificates and host names; ConfigError when `ca` holds no PEM certificate."""
    try:
        return ssl.create_default_context(cadata=ca)
    except ssl.SSLError as error:
        raise ConfigError(
            "`ca` contains no PEM certificate; paste everything from BEGIN CERTIFICATE to END CERTIFICATE."
        ) from error


class Wire:
    """One connection, over a socket of `ctx.dial`.

    Every read and write ends at the call's deadline and raises TransientError when the connection breaks, with the outcome
    `outcome_when_lost`; set that to `unknown` once a command may have taken effect.  SystemFailure when the server has sent
    more than `max_bytes`, of which `advice` says how to receive less.
    """

    def __init__(self, peer: Peer, ctx: "Context", *, max_bytes: int | None = None, advice: str = "") -> None:
        self.peer = peer
        self.outcome_when_lost: Outcome = "not_done"
        self._max_bytes = max_bytes
        self._advice = advice
        self._deadline = ctx.deadline
        self._context = tls_context(peer.ca) if peer.tls != "off" else None
        self._received = 0
        self._buffer = bytearray()
        self._socket = ctx.dial(peer.host, peer.port)
        if peer.tls == "tls":
            self.encrypt()

    @property
    def peer_ip(self) -> str:
        """The address that the host resolved to."""
        try:
            return str(self._socket.getpeername()[0])
        except OSError as error:
            raise self._connection_lost() from error

    @property
    def tls_version(self) -> str:
        """The TLS version, empty in clear text."""
        return str(self._socket.version()) if isinstance(self._socket, ssl.SSLSocket) else ""

    def seconds_left(self) -> float:
        return self._deadline - time.monotonic()

    def encrypt(self, resumed: "Wire | None" = None) -> None:
        """Switch to TLS, with the context and session of `resumed` if given; SystemFailure if clear text arrived in advance.

        The connection is closed when that fails.
        """
        context, session = self._context, None
        if resumed is not None:
            context = resumed._context
            session = resumed._socket.session if isinstance(resumed._socket, ssl.SSLSocket) else None
        if context is None:
            raise ValueError("the peer's `tls` is off")
        try:
            if self._buffer:
                raise SystemFailure(f"{self.peer} sent clear text after agreeing to TLS; the connection may be intercepted.")
            self._apply_deadline()
            self._socket = self._wrap(context, session)
        except ConnectorError:
            self.close()
            raise

    def _wrap(self, context: ssl.SSLContext, session: ssl.SSLSession | None) -> ssl.SSLSocket:
        try:
            return context.wrap_socket(self._socket, server_hostname=self.peer.host, session=session)
        except ssl.SSLCertVerificationError as error:
            why = error.verify_message
            raise ConfigError(f"The certificate of {self.peer} is not trusted ({why}); add its authority to `ca`.") from error
        except ssl.SSLError as error:
            raise ConfigError(f"{self.peer} does not start TLS; check the port and the TLS setting.") from error
        except OSError as error:
            raise self._connection_lost() from error

    def send(self, content: bytes) -> None:
        self._apply_deadline()
        try:
            self._socket.sendall(content)  # one timeout for all of it, also over TLS
        except OSError as error:
            raise self._connection_lost() from error

    def read_line(self, max_bytes: int) -> bytes:
        """The next line without its line break; SystemFailure when it is longer than `max_bytes`."""
        searched = 0
        while (end := self._buffer.find(b"\n", searched)) < 0 and len(self._buffer) <= max_bytes:
            searched = len(self._buffer)
            self._fill()
        if not 0 <= end <= max_bytes:
            raise self.protocol_error("a line that does not end")
        return self._take(end + 1)[:-1].removesuffix(b"\r")

    def read_exactly(self, size: int) -> bytes:
        """The next `size` bytes."""
        while len(self._buffer) < size:
            self._fill()
        return self._take(size)

    def receive(self) -> bytes:
        """The next bytes; empty when the server has finished."""
        return self._take(len(self._buffer)) if self._buffer else self._receive()
    def protocol_error(self, what: str) -> SystemFailure:
        """The error for data that violates the protocol; `what` names it."""
        message = f"{self.peer} violated the {self.peer.protocol} protocol: it sent {what}. Check the port and the TLS setting."
        return SystemFailure(message, outcome=self.outcome_when_lost)

    def finish(self) -> None:
        """Announce the end of the data, which in TLS is a message of its own, and close the connection."""
        if isinstance(self._socket, ssl.SSLSocket):
            with suppress(OSError, ConnectorError):  # Whether everything arrived is for the protocol to say.
                self._apply_deadline()
                self._socket = self._socket.unwrap()
        self.close()

    def close(self) -> None:
        """Close the socket without a farewell, which could block."""
        self._socket.close()

    def _receive(self) -> bytes:
        self._apply_deadline()
        try:
            chunk = self._socket.recv(_CHUNK)
        except OSError as error:
            raise self._connection_lost() from error
        self._received += len(chunk)
        if self._max_bytes is not None and self._received > self._max_bytes:
            message = f"{self.peer} sent more than {self._max_bytes // 2**20} MB{self._advice}."
            raise SystemFailure(message, outcome=self.outcome_when_lost)
        return chunk

    def _fill(self) -> None:
        chunk = self._receive()
        if not chunk:
            raise self._connection_lost()
        self._buffer += chunk

    def _take(self, size: int) -> bytes:
        content = bytes(self._buffer[:size])
        del self._buffer[:size]
        return content

    def _apply_deadline(self) -> None:
        remaining = self.seconds_left()
        if remaining <= 0:
            raise self._connection_lost()
        self._socket.settimeout(remaining)

    def _connection_lost(self) -> TransientError:
        return TransientError(f"{self.peer} closed the connection or did not answer in time.", outcome=self.outcome_when_lost)
