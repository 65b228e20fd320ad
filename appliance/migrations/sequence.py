"""The migrations of this release, read from the names of their modules; a module is imported when its statements are needed."""

import importlib
import pkgutil
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from . import ledger

BASELINE = 100
"""The number of the first migration.  Versions before it numbered theirs from 1 to 75 (`development`)."""
_MODULE = re.compile(r"m\d{4}_\w+")
_TYPES = {
    True: {"blob": "BLOB", "serial": "INTEGER PRIMARY KEY AUTOINCREMENT"},
    False: {"blob": "BYTEA", "serial": "BIGSERIAL PRIMARY KEY"},
}


@cache
def modules() -> dict[int, str]:
    """The module of each migration by its number, in order.  ValueError unless the numbers are unique and without gaps."""
    siblings = pkgutil.iter_modules([str(Path(__file__).parent)])
    names = sorted(module.name for module in siblings if _MODULE.fullmatch(module.name))
    listed = [int(name[1:5]) for name in names]
    if listed != list(range(BASELINE, BASELINE + len(names))):
        raise ValueError(f"migrations must be numbered from {BASELINE} without gaps, not {listed}")
    return dict(zip(listed, names, strict=True))


def name_of(number: int) -> str:
    """The name of a migration in the ledger."""
    return modules()[number].partition("_")[2]


def last_number() -> int:
    """The number of this release's last migration."""
    return max(modules())


def statements(number: int, *, is_sqlite: bool) -> Iterator[str]:
    """The statements of a migration for one of the databases."""
    module = importlib.import_module(f"{__package__}.{modules()[number]}")
    own = getattr(module, "ON_SQLITE" if is_sqlite else "ON_POSTGRESQL", ())
    for statement in (*module.STATEMENTS, *own):
        yield statement.format(**_TYPES[is_sqlite])


def statements_of_file(until: int, after: int = 0) -> Iterator[str]:
    """The statements that bring an SQLite file from migration `after`, or from nothing, to `until`; its ledger is not changed."""
    yield ledger.CREATE
    for number in modules():
        if after < number <= until:
            yield from statements(number, is_sqlite=True)
