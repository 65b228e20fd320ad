"""A connection that exchanges LDAP messages over a socket the appliance opened; reads and writes end at the deadline."""

import ssl
import time
from dataclasses import dataclass

from appliance.connectors.contract import ConfigError, Context, SystemFailure, TransientError
from gos_connector_ldap.ber import BerError, length_of

_CHUNK = 64 * 1024
MOST_MESSAGE = 16 * 1024 * 1024
MOST_TOGETHER = 64 * 1024 * 1024


@dataclass(frozen=True)
class Peer:
    """The server to connect to.  `tls` is tls (from the first byte), starttls or off; `ca` holds PEM certificates to trust."""

    host: str
    port: int
    tls: str
    ca: str | None = None

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class Wire:
    """One connection.  All requests only read, so every failure has the outcome `not_done`."""

    def __init__(self, peer: Peer, ctx: Context) -> None:
        self.peer = peer
        self._deadline = ctx.deadline
        self._context = _tls_context(peer)
        self._buffer = bytearray()
        self._received = 0
        self._socket = ctx.dial(peer.host, peer.port)
        if peer.tls == "tls":
            try:
                self._start_tls()
            except BaseException:
                self.close()
                raise

    def seconds_left(self) -> float:
        return self._deadline - time.monotonic()

    def encrypt(self) -> None:
        """Switch to TLS after the server agreed; SystemFailure if clear text arrived in advance."""
        if self._buffer:
            raise SystemFailure(f"{self.peer} sent clear text after agreeing to TLS; the connection may be intercepted.")
        self._start_tls()

    def send(self, message: bytes) -> None:
        self._apply_deadline()
        try:
            self._socket.sendall(message)
        except OSError as error:
            raise self._connection_lost() from error

    def receive(self) -> bytes:
        """Return the content of the next message."""
        try:
            while (lengths := length_of(bytes(self._buffer[:6]))) is None:
                self._fill()
        except BerError as error:
            raise self.protocol_error(str(error)) from error
        head, size = lengths
        if self._buffer[0] != 0x30:
            raise self.protocol_error("data that is not a message")
        if size > MOST_MESSAGE:
            raise SystemFailure(
                f"{self.peer} sent an entry of more than {MOST_MESSAGE // 2**20} MB; list only the `attributes` you need."
            )
        while len(self._buffer) < head + size:
            self._fill()
        content = bytes(self._buffer[head : head + size])
        del self._buffer[: head + size]
        return content

    def protocol_error(self, what: str) -> SystemFailure:
        """Return the error for an answer that violates the protocol; `what` names the invalid data."""
        return SystemFailure(f"{self.peer} violated the LDAP protocol: it sent {what}. Check the port and `tls`.")

    def close(self) -> None:
        self._socket.close()

    def _apply_deadline(self) -> None:
        remaining = self.seconds_left()
        if remaining <= 0:
            raise self._connection_lost()
        self._socket.settimeout(remaining)

    def _fill(self) -> None:
        self._apply_deadline()
        try:
            chunk = self._socket.recv(_CHUNK)
        except OSError as error:
            raise self._connection_lost() from error
        if not chunk:
            raise self._connection_lost()
        self._received += len(chunk)
        if self._received > MOST_TOGETHER:
            raise SystemFailure(
                f"{self.peer} sent more than {MOST_TOGETHER // 2**20} MB; request fewer entries or `attributes`."
            )
        self._buffer += chunk

    def _connection_lost(self) -> TransientError:
        return TransientError(f"{self.peer} closed the connection or did not answer in time.")

    def _start_tls(self) -> None:
        try:
            self._apply_deadline()
            self._socket = self._context.wrap_socket(self._socket, server_hostname=self.peer.host)
        except ssl.SSLCertVerificationError as error:
            raise ConfigError(
                f"The certificate of {self.peer} is not trusted ({error.verify_message}); add its authority to `ca`."
            ) from error
        except ssl.SSLError as error:
            raise ConfigError(
                f"{self.peer} does not start TLS; check the port and whether `tls` must be tls, starttls or off."
            ) from error
        except OSError as error:
            raise self._connection_lost() from error


def _tls_context(peer: Peer) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cadata=peer.ca)
    except ssl.SSLError as error:
        raise ConfigError(
            "`ca` contains no PEM certificate; paste everything from BEGIN CERTIFICATE to END CERTIFICATE."
        ) from error
