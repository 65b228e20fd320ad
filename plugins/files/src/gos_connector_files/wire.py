"""A connection over a socket the appliance opened: reads lines or bytes, in clear text or TLS, until the deadline."""

import ssl
import time
from contextlib import suppress

from appliance.connectors.contract import ConfigError, ConnectorError, Context, Outcome, SystemFailure, TransientError

_CHUNK = 64 * 1024
_MOST_LINE = 16 * 1024


class Wire:
    """One connection to `address` (host and port), which resolved to `peer_ip`.

    `when_lost` is the outcome to report when the connection breaks; it changes once a command may have taken effect.
    """

    def __init__(self, host: str, port: int, ctx: Context) -> None:
        self.address = f"{host}:{port}"
        self.when_lost: Outcome = "not_done"
        self._host = host
        self._deadline = ctx.deadline
        self._socket = ctx.dial(host, port)
        self._buffer = bytearray()
        try:
            self.peer_ip = str(self._socket.getpeername()[0])
        except OSError as error:
            raise self._connection_lost() from error

    @property
    def protection(self) -> str:
        """The TLS version, empty in clear text."""
        return str(self._socket.version()) if isinstance(self._socket, ssl.SSLSocket) else ""

    def encrypt(self, context: ssl.SSLContext, resumed: "Wire | None" = None) -> None:
        """Switch to TLS, resuming the session of `resumed`; SystemFailure if clear text arrived in advance."""
        if self._buffer:
            raise SystemFailure(f"{self.address} sent clear text after agreeing to TLS; the connection may be intercepted.")
        session = resumed._socket.session if resumed is not None and isinstance(resumed._socket, ssl.SSLSocket) else None
        try:
            self._apply_deadline()
            self._socket = context.wrap_socket(self._socket, server_hostname=self._host, session=session)
        except ssl.SSLCertVerificationError as error:
            raise ConfigError(
                f"The certificate of {self.address} is not trusted ({error.verify_message}); add its authority to `ca`."
            ) from error
        except ssl.SSLError as error:
            raise ConfigError(
                f"{self.address} does not start TLS; check the port and whether `tls` must be explicit, implicit or off."
            ) from error
        except OSError as error:
            raise self._connection_lost() from error

    def send(self, content: bytes) -> None:
        self._apply_deadline()
        try:
            self._socket.sendall(content)
        except OSError as error:
            raise self._connection_lost() from error

    def read_line(self) -> bytes:
        """Read the next line, without its line break."""
        while (end := self._buffer.find(b"\n")) < 0 and len(self._buffer) <= _MOST_LINE:
            chunk = self.receive()
            if not chunk:
                raise self._connection_lost()
            self._buffer += chunk
        if not 0 <= end <= _MOST_LINE:
            raise SystemFailure(f"{self.address} sent a line longer than {_MOST_LINE} bytes.", outcome=self.when_lost)
        line = bytes(self._buffer[:end]).removesuffix(b"\r")
        del self._buffer[: end + 1]
        return line

    def receive(self) -> bytes:
        """Read the next bytes; empty when the other end has finished."""
        self._apply_deadline()
        try:
            return self._socket.recv(_CHUNK)
        except OSError as error:
            raise self._connection_lost() from error

    def finish(self) -> None:
        """Announce the end of the data and close the connection."""
        if isinstance(self._socket, ssl.SSLSocket):
            with suppress(OSError, ConnectorError):  # The reply on the control connection says whether everything arrived.
                self._apply_deadline()
                self._socket = self._socket.unwrap()
        self.close()

    def close(self) -> None:
        self._socket.close()

    def _apply_deadline(self) -> None:
        remaining = self._deadline - time.monotonic()
        if remaining <= 0:
            raise self._connection_lost()
        self._socket.settimeout(remaining)

    def _connection_lost(self) -> TransientError:
        return TransientError(f"{self.address} closed the connection or did not answer in time.", outcome=self.when_lost)
