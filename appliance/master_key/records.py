"""The rows of the master keys: which there are, and which of them seals."""

from collections.abc import Sequence
from dataclasses import dataclass

from peewee import BigIntegerField, BlobField, IntegerField, TextField

from appliance.core import clock
from appliance.core.crypto import key_id, seal_digest_key
from appliance.core.database import db
from appliance.core.database.db import PlatformModel

_COLUMNS = "id, number, digests, made_at, current_from, retired_at, resealed_at, resealed, unreadable"


class MasterKeyRow(PlatformModel):
    """A master key, without the key; `lease_until` and `fence` belong to the process that seals with it what others sealed."""

    id = TextField(primary_key=True)
    number = IntegerField(unique=True)
    digests = BlobField(null=True)  # the key of digests, sealed with this key; none once that is retired
    made_at = BigIntegerField()
    current_from = BigIntegerField()
    retired_at = BigIntegerField(null=True)
    resealed_at = BigIntegerField(null=True)
    resealed = BigIntegerField(default=0)
    unreadable = BigIntegerField(default=0)
    fence = BigIntegerField(default=0)
    lease_until = BigIntegerField(default=0)

    class Meta:
        table_name = "master_key"


@dataclass(frozen=True)
class KeyRecord:
    """What the database knows of a master key; the first has number 1.  Times in epoch milliseconds.

    `resealed` values were sealed with it anew, until `resealed_at` all were, but for `unreadable` ones, which no key opens.
    """

    id: str
    number: int
    digests: bytes | None
    made_at: int
    current_from: int
    retired_at: int | None
    resealed_at: int | None
    resealed: int
    unreadable: int


def list_keys() -> list[KeyRecord]:
    """All master keys that the database knows, also retired ones, the first one first."""
    rows = db.rows(f"SELECT {_COLUMNS} FROM master_key ORDER BY number")  # noqa: S608  our own names
    return [KeyRecord(row[0], row[1], None if row[2] is None else bytes(row[2]), *row[3:]) for row in rows]


def has_table() -> bool:
    """Whether the open database has the table: those of earlier releases lack it."""
    return "master_key" in db.database.get_tables()


def find_current(records: Sequence[KeyRecord], now: int) -> KeyRecord | None:
    """The key that seals at this time: the newest whose time has come."""
    usable = [each for each in records if each.retired_at is None and each.current_from <= now]
    return usable[-1] if usable else None


def list_needed(records: Sequence[KeyRecord], now: int) -> list[KeyRecord]:
    """The keys that every process must have: not the earlier ones once all values are sealed with the current one."""
    current = find_current(records, now)
    least = current.number if current is not None and current.resealed_at is not None else 0
    return [each for each in records if each.retired_at is None and each.number >= least]


def insert_key(key: bytes, number: int, digest_key: bytes, current_from: int, *, resealed_at: int | None = None) -> None:
    """Inside a write: add a master key, with the key of digests sealed with it."""
    MasterKeyRow.create(
        id=key_id(key), number=number, digests=seal_digest_key(key, digest_key), made_at=clock.now_ms(),
        current_from=current_from, resealed_at=resealed_at,
    )  # fmt: skip
