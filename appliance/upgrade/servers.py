"""Keeps the rows of a PostgreSQL database in an SQLite file, and puts them back, each in one transaction of the server.

The schema of before is made again by the migrations, up to the last one that the file has.
"""

from pathlib import Path

from appliance import migrations
from appliance.backups.copying import FileSource, load_rows, open_source
from appliance.backups.snapshots import copy_server, open_snapshot, schema_number
from appliance.core.database import db
from appliance.core.sentences import Sentence

from .counts import count_rows
from .files import place_file
from .problems import UpgradeFailed


def copy_aside(target: Path) -> str:
    """Inside a write: copy all rows to a file, durably, which appears complete or not at all.  Returns its sha256."""
    draft = target.with_name(f"{target.name}.new")
    draft.unlink(missing_ok=True)
    draft.touch(0o600)
    try:
        copy_server(draft)
        return place_file(draft, target)
    finally:
        draft.unlink(missing_ok=True)


def put_back(copy: Path) -> None:
    """Inside a write: replace all tables by those of the file.  UpgradeFailed if not all of its rows are there afterwards."""
    with open_snapshot(copy) as file:
        former = FileSource(file.execute)
        for table in open_source().tables():
            db.execute(f'DROP TABLE "{table}" CASCADE')
        migrations.migrate(schema_number(file))
        load_rows(former)
        if count_rows(open_source()) != count_rows(former):
            raise UpgradeFailed(Sentence("the database would not have all rows of %(copy)s, so nothing was rolled back", copy=copy))
