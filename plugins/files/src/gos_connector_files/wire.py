"""One connection over a socket that the appliance has opened: in lines or in bytes, in clear text or TLS, until the deadline."""

import ssl
import time
from contextlib import suppress

from appliance.connectors.contract import ConfigError, ConnectorError, Context, Outcome, SystemFailure, TransientError

_CHUNK = 64 * 1024
_MOST_LINE = 16 * 1024


class Wire:
    """One connection to `place`, which is the machine with the address `machine`.

    `when_lost` is the outcome to tell when it breaks: it changes once something may have happened.
    """

    def __init__(self, host: str, port: int, ctx: Context) -> None:
        self.place = f"{host}:{port}"
        self.when_lost: Outcome = "not_done"
        self._host = host
        self._deadline = ctx.deadline
        self._socket = ctx.dial(host, port)
        self._buffer = bytearray()
        try:
            self.machine = str(self._socket.getpeername()[0])
        except OSError as error:
            raise self._lost() from error

    @property
    def protection(self) -> str:
        """The version of TLS, empty in clear text."""
        return str(self._socket.version()) if isinstance(self._socket, ssl.SSLSocket) else ""

    def encrypt(self, context: ssl.SSLContext, like: "Wire | None" = None) -> None:
        """Go on in TLS, as a continuation of the session of `like`; nothing that came in clear text is believed afterwards."""
        if self._buffer:
            raise SystemFailure(f"{self.place} sent more in clear text after agreeing to TLS; someone may be in between.")
        session = like._socket.session if like is not None and isinstance(like._socket, ssl.SSLSocket) else None
        try:
            self._patience()
            self._socket = context.wrap_socket(self._socket, server_hostname=self._host, session=session)
        except ssl.SSLCertVerificationError as error:
            raise ConfigError(
                f"The certificate of {self.place} is not trusted ({error.verify_message}); give its authority in `ca`."
            ) from error
        except ssl.SSLError as error:
            raise ConfigError(
                f"{self.place} does not begin TLS; check the port and whether it wants explicit, implicit or off."
            ) from error
        except OSError as error:
            raise self._lost() from error

    def send(self, content: bytes) -> None:
        self._patience()
        try:
            self._socket.sendall(content)
        except OSError as error:
            raise self._lost() from error

    def line(self) -> bytes:
        """The next line without its end."""
        while (end := self._buffer.find(b"\n")) < 0 and len(self._buffer) <= _MOST_LINE:
            chunk = self.some()
            if not chunk:
                raise self._lost()
            self._buffer += chunk
        if not 0 <= end <= _MOST_LINE:
            raise SystemFailure(f"{self.place} sent a line that does not end.", outcome=self.when_lost)
        line = bytes(self._buffer[:end]).removesuffix(b"\r")
        del self._buffer[: end + 1]
        return line

    def some(self) -> bytes:
        """What comes next, nothing when the other end has finished."""
        self._patience()
        try:
            return self._socket.recv(_CHUNK)
        except OSError as error:
            raise self._lost() from error

    def finish(self) -> None:
        """Tell the other end that nothing more comes, and hang up."""
        if isinstance(self._socket, ssl.SSLSocket):
            with suppress(OSError, ConnectorError):  # whether all has arrived is told on the other connection
                self._patience()
                self._socket = self._socket.unwrap()
        self.close()

    def close(self) -> None:
        self._socket.close()

    def _patience(self) -> None:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise self._lost()
        self._socket.settimeout(left)

    def _lost(self) -> TransientError:
        return TransientError(f"{self.place} hung up, or did not answer in time.", outcome=self.when_lost)
