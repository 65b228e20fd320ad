"""What is sealed with which master key."""

from collections import Counter
from dataclasses import dataclass

from appliance.core import clock
from appliance.core.crypto import Sealer

from .columns import SEALED_COLUMNS
from .records import KeyRecord, find_current, list_keys
from .values import find_opening_key, iter_rows


@dataclass(frozen=True)
class MasterKeyStatus:
    """The keys, and the values that the current one has not sealed: how many by column and by the key that opens them.

    `unreadable` counts, by column, those that no key opens, such as journals of imported tenants.
    """

    keys: list[KeyRecord]
    current: str
    earlier: dict[tuple[str, str], int]
    unreadable: dict[str, int]

    @property
    def waiting(self) -> int:
        """How many values an earlier key still has to open."""
        return sum(self.earlier.values())

    def needing(self, key: str) -> dict[str, int]:
        """How many values need this key, by column."""
        return {column: count for (column, each), count in self.earlier.items() if each == key}


def get_status(sealer: Sealer) -> MasterKeyStatus:
    """Reads the sealed values of all tables that the current key has not sealed: few, unless it is new."""
    keys = list_keys()
    record = find_current(keys, clock.now_ms())
    current = record.id if record else ""
    earlier: Counter[tuple[str, str]] = Counter()
    unreadable: Counter[str] = Counter()
    for column in SEALED_COLUMNS if record else ():
        for row in iter_rows(column, current):
            key = find_opening_key(sealer, row)
            if key is None:
                unreadable[column.name] += 1
            else:
                earlier[column.name, key] += 1
    return MasterKeyStatus(keys, current, dict(earlier), dict(unreadable))
