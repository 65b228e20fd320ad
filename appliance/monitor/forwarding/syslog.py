"""Sends records of audit trails to a syslog server.

The messages follow RFC 5424: facility `log audit`, severity `informational`, the record's members as structured data, and as text
its line of JSON.  Over TCP and TLS they are framed by their length (RFC 6587 § 3.4.1, RFC 5425).
"""

import re
import socket
import ssl
from collections.abc import Sequence
from urllib.parse import urlsplit

from appliance.core import clock
from appliance.core.config.sections import Audit

from .records import NOTHING_REJECTED, AuditRecord, Rejection, Undelivered

PRIORITY = 13 * 8 + 6  # log audit, informational
STRUCTURE = "gos@32473"  # the enterprise number that RFC 5612 reserves for examples; we have none
SECONDS = 10.0
_ESCAPED = re.compile(r'(["\\\]])')
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


class SyslogServer:
    """The server of `audit.syslog`; `host` names the appliance in the messages."""

    name = "syslog"

    def __init__(self, settings: Audit, host: str) -> None:
        self._settings, self._host = settings, host
        self._server: socket.socket | None = None

    @property
    def address(self) -> str:
        return self._settings.syslog

    def check(self) -> None:
        """Connect to the server, unless that was done already; Undelivered."""
        try:
            self._connect()
        except OSError as error:
            raise Undelivered(f"cannot be reached ({error})") from error

    def begin(self) -> None:
        """Forget a connection that the server has closed, because the first message on it would be lost."""
        server = self._server
        if server is None or server.type == socket.SOCK_DGRAM:
            return
        server.settimeout(0)
        try:
            is_closed = server.recv(1) == b""
        except (BlockingIOError, ssl.SSLWantReadError):
            is_closed = False
        except OSError:
            is_closed = True
        if is_closed:
            self.close()
        else:
            server.settimeout(SECONDS)

    def send(self, records: Sequence[AuditRecord]) -> Rejection:
        """Send the records; syslog acknowledges nothing, so that none counts as refused.  Undelivered."""
        is_framed = not self._settings.syslog.startswith("udp:")
        try:
            for record in records:
                message = build_message(record, self._host)
                self._connect().sendall(b"%d %s" % (len(message), message) if is_framed else message)
        except OSError as error:
            raise Undelivered(f"cannot be reached ({error})") from error
        return NOTHING_REJECTED

    def close(self) -> None:
        """Close the connection."""
        server, self._server = self._server, None
        if server is not None:
            server.close()

    def _connect(self) -> socket.socket:
        if self._server is None:
            address = urlsplit(self._settings.syslog)
            self._server = self._open(address.scheme, str(address.hostname), int(address.port or 0))
        return self._server

    def _open(self, scheme: str, host: str, port: int) -> socket.socket:
        if scheme == "udp":
            (family, kind, protocol, _, place), *_ = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)
            server = socket.socket(family, kind, protocol)
            server.connect(place)
            return server
        server = socket.create_connection((host, port), timeout=SECONDS)
        if scheme == "tcp":
            return server
        try:
            context = ssl.create_default_context(cafile=self._settings.ca_file or None)
            return context.wrap_socket(server, server_hostname=host)
        except BaseException:
            server.close()
            raise


def build_message(record: AuditRecord, host: str) -> bytes:
    """The syslog message of a record (RFC 5424 § 6)."""
    structure = " ".join(f'{name}="{_escape(str(value))}"' for name, value in record.members().items())
    header = f"<{PRIORITY}>1 {clock.rfc3339(record.at)} {host} gos - audit [{STRUCTURE} {structure}] "
    return (header + record.line).encode("utf8", "replace")


def _escape(value: str) -> str:
    """A value of structured data, in which three characters are escaped; control characters are left to the text."""
    return _ESCAPED.sub(r"\\\1", _CONTROL.sub(" ", value))
