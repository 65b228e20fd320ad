"""What `gos doctor` says about the last upgrade, and when the copy of the former database is deleted."""

from collections.abc import Iterator

from appliance.core import clock
from appliance.core.config import Config

from .journal import DONE, UNFINISHED, copy_of, read_journal

KEPT_MS = 72 * 3_600_000
"""How long the copy is kept after this release has first used the new database."""


def findings(config: Config) -> Iterator[tuple[str, str]]:
    """The findings of `gos doctor` about the last upgrade: (level, text)."""
    journal, copy = read_journal(config.data), copy_of(config.data)
    if journal is None:
        return
    if journal.state in UNFINISHED:
        yield "note", "an upgrade is in progress, or its process was killed: `gos upgrade` says what it has left, and goes on"
    elif journal.state == DONE and copy.exists():
        until = clock.rfc3339(journal.used_at + KEPT_MS) if journal.used_at else "72 h after the first start of this release"
        yield "note", (
            f"the database of before the upgrade is kept as {copy} ({copy.stat().st_size >> 20} MiB) until {until}, for `gos "
            "upgrade --roll-back`; `gos upgrade --finish` deletes it"
        )
    elif copy.exists():
        yield "note", f"a failed upgrade has left a copy of the database, {copy}; `gos upgrade --finish` deletes it"


def delete_expired_copy(config: Config) -> None:
    """Delete the copy of the former database once this release has used the new one for 72 hours."""
    journal = read_journal(config.data)
    if journal is not None and journal.used_at and clock.now_ms() > journal.used_at + KEPT_MS:
        from .rolling_back import delete_copy

        delete_copy(config.data)
