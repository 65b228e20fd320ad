"""Finds rows by a part of a short text, such as a name, through an index of its trigrams.

Only SQLite has this index: an FTS5 table without contents, whose rows have the number of the indexed row.  On PostgreSQL,
`find_numbers` never has an answer.
"""

from dataclasses import dataclass
from typing import Any

from . import db

SHORTEST = 3  # Characters in a trigram.
LONGEST = 60  # Characters of a search that are looked up; the caller compares the whole.


@dataclass(frozen=True)
class SubstringIndex:
    """The index of one column of a table, with the column that has the unique number of each row."""

    table: str
    number: str
    text: str

    @property
    def name(self) -> str:
        """The name of the FTS5 table."""
        return f"{self.table}_{self.text}_index"

    def add(self, where: str, params: tuple[Any, ...]) -> None:
        """Add the rows that match a condition, in the same write that sets their text."""
        self._change(f"(rowid, {self.text})", f"{self.number}, {self.text}", where, params)

    def remove(self, where: str, params: tuple[Any, ...]) -> None:
        """Remove the rows that match a condition, in the same write and before their text changes."""
        self._change(f"({self.name}, rowid, {self.text})", f"'delete', {self.number}, {self.text}", where, params)

    def _change(self, columns: str, values: str, where: str, params: tuple[Any, ...]) -> None:
        if db.is_sqlite():
            sql = f"INSERT INTO {self.name} {columns} SELECT {values} FROM {self.table} WHERE {where}"  # noqa: S608  our own names
            db.execute(sql, params)

    def find_numbers(self, part: str, most: int) -> list[int] | None:
        """The numbers of up to `most` rows, among them all whose text contains `part`, ignoring case, if those are fewer.

        Some of the rows may not contain it.  None if the index cannot tell, as for a part of less than three characters.
        """
        part = part[:LONGEST].replace("\0", "")
        if not db.is_sqlite() or len(part) < SHORTEST:
            return None
        trigrams = dict.fromkeys(part[start : start + SHORTEST] for start in range(len(part) - SHORTEST + 1))
        pattern = " AND ".join('"{}"'.format(trigram.replace('"', '""')) for trigram in trigrams)
        rows = db.rows(f"SELECT rowid FROM {self.name} WHERE {self.name} MATCH ? LIMIT ?", (pattern, most))  # noqa: S608
        return [int(number) for (number,) in rows]
