"""Sends the entries of all audit trails to a syslog server, each at least once, in the order of its trail.

The messages follow RFC 5424: facility `log audit`, severity `informational`, the entry's members as structured data, and as text
the line of JSON that `gos audit export` prints, so that a receiver's file can be verified.  Over TCP and TLS they are framed by
their length (RFC 6587 § 3.4.1, RFC 5425).  One process at a time sends the entries of a tenant; another continues after the last
ones that were noted as sent, so that a few may arrive twice.
"""

import logging
import re
import socket
import ssl
from urllib.parse import urlsplit

from appliance.core import clock
from appliance.core.config.sections import Audit
from appliance.core.database import db
from appliance.core.leases import LeaseLost, LeaseTable
from appliance.core.scope import TenantScope

from . import audit
from .models import AuditEntry, AuditForwardRow

log = logging.getLogger(__name__)
PRIORITY = 13 * 8 + 6  # log audit, informational
STRUCTURE = "gos@32473"  # the enterprise number that RFC 5612 reserves for examples; we have none
BATCH = 200
SECONDS = 10.0
PAUSE_MS, LEASE_MS = 10_000, 60_000
_FORWARDS = LeaseTable(AuditForwardRow, ("tenant_id",), lease="lease_until", fence="fence")
_BEHIND = """
SELECT c.tenant_id FROM audit_chain c LEFT JOIN audit_forward f ON f.tenant_id = c.tenant_id
WHERE c.last_seq > COALESCE(f.seq, 0) AND COALESCE(f.lease_until, 0) <= ? ORDER BY c.tenant_id
"""
_NEXT = """
SELECT MIN(COALESCE(f.lease_until, 0)) FROM audit_chain c LEFT JOIN audit_forward f ON f.tenant_id = c.tenant_id
WHERE c.last_seq > COALESCE(f.seq, 0)
"""
_ESCAPED = re.compile(r'(["\\\]])')
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


class AuditForwarding:
    """The forwarding of this process; `host` names the appliance in the messages."""

    def __init__(self, settings: Audit, host: str) -> None:
        self._settings, self._host = settings, host
        self._server: socket.socket | None = None
        self._paused_until = 0

    @property
    def is_on(self) -> bool:
        """Whether a syslog server is configured."""
        return bool(self._settings.syslog)

    def forward(self) -> None:
        """Send what has not been sent; if the server cannot be reached, log that once and try again after a pause."""
        if clock.now_ms() < self._paused_until:
            return
        try:
            for (tenant_id,) in db.rows(_BEHIND, (clock.now_ms(),)):
                self._forward_tenant(str(tenant_id))
        except OSError as error:
            if not self._paused_until:
                log.warning("audit.syslog: %s cannot be reached, entries wait: %s", self._settings.syslog, error)
            self._paused_until = clock.now_ms() + PAUSE_MS
            self.close()
        else:
            if self._paused_until:
                log.info("audit.syslog: %s is reached again", self._settings.syslog)
            self._paused_until = 0

    def next_due(self) -> int | None:
        """When there will be something to send (epoch milliseconds); None if everything has been sent."""
        ((due,),) = db.rows(_NEXT)
        return None if due is None else max(int(due), self._paused_until)

    def connect(self) -> None:
        """Connect to the server, unless that was done already; OSError."""
        if self._server is None:
            address = urlsplit(self._settings.syslog)
            self._server = self._open(address.scheme, str(address.hostname), int(address.port or 0))

    def close(self) -> None:
        """Close the connection."""
        server, self._server = self._server, None
        if server is not None:
            server.close()

    def _forward_tenant(self, tenant_id: str) -> None:
        claim = db.write(lambda: _claim(tenant_id))
        if claim is None:
            return
        seq, fence = claim
        scope, key = TenantScope(tenant_id, "system"), (tenant_id,)
        try:
            self._drop_closed()
            while entries := _read(scope, seq):
                for entry in entries:
                    self._send(build_message(entry, self._host))
                seq = entries[-1].seq
                changes = {"seq": seq, "lease_until": clock.now_ms() + LEASE_MS}
                db.write(lambda: _FORWARDS.update(key, fence, changes))  # noqa: B023  called at once
        except LeaseLost:
            log.info("another process sends the audit trail of %s now", tenant_id)
        finally:
            db.write(lambda: _FORWARDS.release(key, fence))

    def _drop_closed(self) -> None:
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

    def _send(self, message: bytes) -> None:
        """Send one message; OSError."""
        self.connect()
        if self._server is not None:
            is_framed = not self._settings.syslog.startswith("udp:")
            self._server.sendall(b"%d %s" % (len(message), message) if is_framed else message)

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


def _claim(tenant_id: str) -> tuple[int, int] | None:
    """Inside a write: the last entry that was sent, and the fence; None if another process sends this trail."""
    new = "INSERT INTO audit_forward (tenant_id, seq, fence, lease_until) VALUES (?, 0, 0, 0) ON CONFLICT (tenant_id) DO NOTHING"
    db.execute(new, (tenant_id,))
    ((seq, fence, until),) = db.rows("SELECT seq, fence, lease_until FROM audit_forward WHERE tenant_id = ?", (tenant_id,))
    now = clock.now_ms()
    is_claimed = until <= now and _FORWARDS.claim((tenant_id,), fence, until=now + LEASE_MS)
    return (int(seq), int(fence) + 1) if is_claimed else None


def _read(scope: TenantScope, seq: int) -> list[AuditEntry]:
    return list(scope.select(AuditEntry).where(AuditEntry.seq > seq).order_by(AuditEntry.seq).limit(BATCH))


def build_message(entry: AuditEntry, host: str) -> bytes:
    """The syslog message of an entry (RFC 5424 § 6)."""
    members = {
        "tenant": entry.tenant_id, "seq": entry.seq, "actor": entry.actor, "action": entry.action, "subject": entry.subject,
        "hash": entry.hash,
    }  # fmt: skip
    structure = " ".join(f'{name}="{_escape(str(value))}"' for name, value in members.items())
    header = f"<{PRIORITY}>1 {clock.rfc3339(entry.at)} {host} gos - audit [{STRUCTURE} {structure}] "
    return (header + audit.export_entry(entry).rstrip("\n")).encode("utf8", "replace")


def _escape(value: str) -> str:
    """A value of structured data, in which three characters are escaped; control characters are left to the text."""
    return _ESCAPED.sub(r"\\\1", _CONTROL.sub(" ", value))
