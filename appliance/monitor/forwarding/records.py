"""What is sent of audit trails: entries and their checkpoints as records, and what a destination for them does."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from appliance.monitor import audit
from appliance.monitor.models import AuditEntry


@dataclass(frozen=True)
class AuditRecord:
    """An entry, or a checkpoint; `line` is the JSON that `gos audit export` prints, without its end."""

    tenant_id: str
    seq: int
    at: int
    actor: str
    action: str
    subject: str
    hash: str
    line: str

    def members(self) -> dict[str, str | int]:
        """What a destination can search by, by the names that each gives to it."""
        return {
            "tenant": self.tenant_id, "seq": self.seq, "actor": self.actor, "action": self.action, "subject": self.subject,
            "hash": self.hash,
        }  # fmt: skip


def record_of(entry: AuditEntry) -> AuditRecord:
    """The record of an entry."""
    line = audit.export_entry(entry).rstrip("\n")
    return AuditRecord(
        entry.tenant_id, entry.seq, entry.at, entry.actor, entry.action, entry.subject, hash=entry.hash, line=line
    )  # fmt: skip


@dataclass(frozen=True)
class Rejection:
    """How many of some records a destination has refused for good, and what it says about that, which may be nothing."""

    count: int = 0
    reason: str = ""


NOTHING_REJECTED = Rejection()


class Undelivered(Exception):
    """The destination did not take records, which wait; the text is the reason, `after_ms` how long it asks to wait."""

    def __init__(self, reason: str, after_ms: int = 0) -> None:
        super().__init__(reason)
        self.after_ms = after_ms


class RecordsRefused(Undelivered):
    """The destination answers, and does not take these records; it may take those of other trails."""


class Destination(Protocol):
    """Where records go; `name` is that of its setting in the section `audit`, `address` what is set."""

    @property
    def name(self) -> str: ...
    @property
    def address(self) -> str: ...

    def check(self) -> None:
        """See whether it can be reached; Undelivered."""

    def begin(self) -> None:
        """Prepare for the first records after a while."""

    def send(self, records: Sequence[AuditRecord]) -> Rejection:
        """Send the records in this order; returns how many of them it has refused for good, and why.  Undelivered."""

    def close(self) -> None:
        """Close the connection."""
