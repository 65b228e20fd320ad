"""Compares a table of two databases, SQLite or PostgreSQL: its number of rows, and a hash of them that depends on neither."""

import hashlib
from dataclasses import dataclass

from appliance.backups.copying import Row, Source
from appliance.core.sentences import Sentence

from .problems import MoveFailed


@dataclass(frozen=True)
class TableSum:
    """The number of rows, and the sum of the sha256 of each, which needs no order of them."""

    rows: int
    sha256: str


def sum_table(source: Source, table: str) -> TableSum:
    """The sum of a table; reads all of it."""
    columns = sorted(source.columns(table))
    listed = ", ".join(f'"{column}"' for column in columns)
    count, total = 0, int.from_bytes(hashlib.sha256("\0".join(columns).encode()).digest())
    for row in source.rows(f'SELECT {listed} FROM "{table}"'):  # noqa: S608  # names of our own
        count += 1
        total += int.from_bytes(hashlib.sha256(encode_row(row)).digest())
    return TableSum(count, f"{total % (1 << 256):064x}")


def encode_row(row: Row) -> bytes:
    """A row as bytes that are equal exactly if its values are, whichever database they are from."""
    return b"".join(_encode(value) for value in row)


def _encode(value: object) -> bytes:
    if value is None:
        return b"n"
    if isinstance(value, int):  # a boolean is 0 or 1 on SQLite
        return b"i%d;" % value
    if isinstance(value, float):
        return b"f" + value.hex().encode() + b";"
    if isinstance(value, str):
        return _encode_bytes(b"s", value.encode())
    if isinstance(value, bytes | memoryview):
        return _encode_bytes(b"b", bytes(value))
    raise TypeError(f"no column has values of {type(value).__name__}")


def _encode_bytes(kind: bytes, content: bytes) -> bytes:
    return kind + b"%d;" % len(content) + content


def compare_table(origin: Source, target: Source, table: str) -> TableSum:
    """The sum of a table at both ends; MoveFailed unless they are equal."""
    expected, actual = sum_table(origin, table), sum_table(target, table)
    if expected != actual:
        raise MoveFailed(Sentence(
            "the table %(table)s has %(rows)s rows with the hash %(sha256)s at the source and %(rows2)s with %(sha2562)s at the "
            "target, so something else has changed one of them since they were copied. Go on with the source, or "
            "replace the database of the target by a new, empty one and run the command again",
            table=table, rows=expected.rows, sha256=expected.sha256[:16], rows2=actual.rows, sha2562=actual.sha256[:16],
        ))
    return expected
