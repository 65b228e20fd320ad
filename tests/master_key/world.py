"""An appliance whose tables all have a sealed value, and what is sealed where."""

import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from appliance.app.store import open_store
from appliance.core import clock
from appliance.core.config import Config, load_config
from appliance.core.crypto import SealedColumn, Sealer
from appliance.core.database import db
from appliance.master_key import PICK_UP_MS, KeyRing, Resealer, add_key, rotate_key
from appliance.master_key.columns import SEALED_COLUMNS
from tests.upgrade.make import fill_empty_tables, list_tables

CANARY = b"canary-5b1f0c77ad"


def configure(folder: Path, url: str = "", **settings: Any) -> Config:
    """The configuration of a data folder; settings are `section__name=value`."""
    flags = {name.replace("__", ".", 1): value for name, value in settings.items()}
    return load_config(environment={}, flags={"storage.data": str(folder), "storage.database": url, **flags})


@contextmanager
def opened(config: Config) -> Iterator[Sealer]:
    sealer = open_store(config)
    try:
        yield sealer
    finally:
        db.close_database()


def fill(sealer: Sealer) -> None:
    """A row in every table, and in every column for sealed values one of them."""
    fill_empty_tables()
    db.write(lambda: db.execute("UPDATE journal SET method = 'secrets.get', ok = 1, answer = '{\"sealed\":\"\",\"usage\":1}'"))
    for column in SEALED_COLUMNS:
        db.write(partial(_seal, sealer, column))


def _seal(sealer: Sealer, column: SealedColumn) -> None:
    names = (*column.key, *column.more)
    for row in db.rows(f"SELECT {', '.join((*names, column.column))} FROM {column.table}"):  # noqa: S608
        values = dict(zip(names, row[:-1], strict=True))
        sealed = sealer.seal(CANARY, column.context(values))
        of_row = " AND ".join(f"{name} = ?" for name in column.key)
        db.execute(
            f"UPDATE {column.table} SET {column.column} = ? WHERE {of_row}",  # noqa: S608
            (column.replace(row[-1], sealed), *(values[name] for name in column.key)),
        )


def read_values(sealer: Sealer) -> dict[str, set[bytes]]:
    """The opened values of every column."""
    values: dict[str, set[bytes]] = {}
    for column in SEALED_COLUMNS:
        names = (*column.key, *column.more)
        for row in db.rows(f"SELECT {', '.join((*names, column.column))} FROM {column.table}"):  # noqa: S608
            context = column.context(dict(zip(names, row[:-1], strict=True)))
            values.setdefault(column.name, set()).add(sealer.open(column.read(row[-1]), context))
    return values


def find_sealed(key: str) -> set[str]:
    """Every column of the database with a cell that contains something sealed with this key, in any of its encodings."""
    prefix = b"\x02" + bytes.fromhex(key)
    marks = [prefix, base64.b64encode(prefix), base64.urlsafe_b64encode(prefix), prefix.hex().encode()]
    columns = set()
    for table in list_tables():
        names = _columns_of(table)
        for row in db.rows(f'SELECT {", ".join(names)} FROM "{table}"'):  # noqa: S608
            for name, cell in zip(names, row, strict=True):
                text = bytes(cell) if isinstance(cell, bytes | memoryview) else json.dumps(cell, default=str).encode()
                if any(mark in text for mark in marks):
                    columns.add(f"{table}.{name}")
    return columns


def _columns_of(table: str) -> list[str]:
    if db.is_sqlite():
        return [str(row[1]) for row in db.rows(f'PRAGMA table_info("{table}")')]
    sql = "SELECT column_name FROM information_schema.columns WHERE table_schema = current_schema() AND table_name = ?"
    return [str(row[0]) for row in db.rows(sql, (table,))]


def pass_time(monkeypatch: pytest.MonkeyPatch, ms: int) -> None:
    """Move the clock of this process on."""
    now = clock.now_ms()
    monkeypatch.setattr(clock, "now_ms", lambda: now + ms)


def add_if_shared(config: Config) -> None:
    """On a server, where other machines need the key first, it is added by a command of its own."""
    if db.is_shared():
        add_key(config)


def rotate(config: Config, sealer: Sealer, monkeypatch: pytest.MonkeyPatch) -> str:
    """Rotate the key of an open store, and let its process use the new one; returns the id of that."""
    key = rotate_key(config).id
    KeyRing(config, sealer).refresh()
    pass_time(monkeypatch, PICK_UP_MS)
    KeyRing(config, sealer).refresh()
    assert sealer.current == key
    return key


def reseal(sealer: Sealer) -> None:
    """Do all that the background does."""
    resealer = Resealer(sealer)
    while resealer.next_due() is not None:
        resealer.work()
