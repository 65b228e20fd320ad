"""An upgrade that is killed at any of its statements, or by a power cut at any frame of the log, leaves the schema and all data
of one of its migrations, and the next start completes it."""

import hashlib
import shutil
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from appliance import migrations
from appliance.core.database import db
from appliance.migrations import BASELINE, last_number
from tests.forking import Forked
from tests.store.cluster import Cluster
from tests.upgrade.killing import BEFORE, SENT, upgrade_until
from tests.upgrade.make import list_tables
from tests.upgrade.test_upgrade import FILES, SQLITE, content_of, describe_schema, number_of, opened

PARTS = 20
"""Parts of the matrix, of which an ordinary run tests one for each database (`tests/matrices.py`)."""
KILLS = [(name, moment) for name in FILES for moment in (BEFORE, SENT) if moment == BEFORE or name not in SQLITE]
"""Nobody goes on with a statement that was sent to SQLite; there, the log is cut instead."""
_FRAME, _LOG_HEADER = 24 + 4096, 32


def read_state() -> tuple[Any, ...]:
    """The ledger, the schema, and the digest of the rows of each table of the open database."""
    ledger = [row[0] for row in db.rows("SELECT number FROM migration ORDER BY number")]
    rows = {table: db.rows(f'SELECT * FROM "{table}"') for table in list_tables() if table != "migration"}  # noqa: S608
    digests = {table: hashlib.sha256(repr(sorted(map(repr, each))).encode()).hexdigest() for table, each in rows.items()}
    return ledger, describe_schema(), digests


@dataclass(frozen=True)
class Upgrade:
    """A database of an earlier release, and its state after each migration, beginning with that before the first."""

    url: str
    states: list[tuple[Any, ...]]
    cluster: Cluster | None

    def copy(self, folder: Path, name: str) -> str:
        """The URL of a copy of the database."""
        if self.cluster is not None:
            return self.cluster.copy_database(self.url)
        shutil.copy(self.url.removeprefix("sqlite:///"), folder / name)
        return f"sqlite:///{folder / name}"

    def forget(self, url: str) -> None:
        """Delete a copy, which is closed."""
        if self.cluster is not None:
            self.cluster.drop_database(url)
        else:
            Path(url.removeprefix("sqlite:///")).unlink()


@pytest.fixture(scope="module")
def upgrade(name: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Upgrade]:
    folder = tmp_path_factory.mktemp("upgrade")
    cluster = None if name in SQLITE else request.getfixturevalue("cluster")
    old = Upgrade(unpack(name, folder, cluster), [], cluster)
    copy = old.copy(folder, "copy.db")
    with opened(copy):
        old.states.append(read_state())
        for number in range(BASELINE + (number_of(name) == BASELINE), last_number() + 1):
            migrations.migrate(number)
            old.states.append(read_state())
    yield old
    old.forget(copy)


def unpack(name: str, folder: Path, cluster: Cluster | None) -> str:
    if cluster is None:
        (folder / "gos.db").write_bytes(content_of(name))
        return f"sqlite:///{folder}/gos.db"
    url: str = cluster.make_database()
    subprocess.run(["psql", "-q", "-v", "ON_ERROR_STOP=1", url], input=content_of(name), check=True, stdout=subprocess.DEVNULL)
    return url


def check(upgrade: Upgrade, url: str) -> int:
    """The index of the state that the killed upgrade has left; the next start completes it."""
    with opened(url):
        db.write(lambda: db.rows("SELECT 1"))  # waits until the server has rolled back what the killed process had begun
        state = read_state()
        assert state in upgrade.states
        migrations.migrate()
        assert read_state() == upgrade.states[-1]
    return upgrade.states.index(state)


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize(("name", "moment"), KILLS, scope="module")
def test_a_kill_at_any_statement_leaves_a_whole_state(upgrade: Upgrade, moment: str, part: int, tmp_path: Path) -> None:
    left: list[int] = []
    for number in count(part, PARTS):
        url = upgrade.copy(tmp_path, "killed.db")
        code = Forked(upgrade_until, url, number, moment, log=tmp_path / "log").wait(60)
        assert code in (0, -9), (tmp_path / "log").read_text()
        left.append(check(upgrade, url))
        upgrade.forget(url)
        if code == 0:
            break
    assert left == sorted(left), "a later kill leaves a later state"
    assert left[-1] == len(upgrade.states) - 1
    assert len(left) > 2


@pytest.mark.parametrize("name", SQLITE, scope="module")
def test_a_power_cut_at_any_frame_of_the_log_leaves_a_whole_state(upgrade: Upgrade, tmp_path: Path) -> None:
    """SQLite syncs the log before it answers a commit: a power cut leaves a part of it, and perhaps of a frame."""
    url = upgrade.copy(tmp_path, "gos.db")
    with closing(sqlite3.connect(tmp_path / "gos.db")) as other, opened(url):
        db.database.connect(reuse_if_open=True)  # the log begins
        other.execute("BEGIN")
        other.execute("SELECT count(*) FROM sqlite_master").fetchone()  # keeps the log from being moved into the file
        migrations.migrate()
        whole, log = (tmp_path / "gos.db").read_bytes(), (tmp_path / "gos.db-wal").read_bytes()
    frames = (len(log) - _LOG_HEADER) // _FRAME
    commits = [frame for frame in range(frames) if log[_LOG_HEADER + frame * _FRAME + 4 :][:4] != bytes(4)]
    assert len(commits) >= len(upgrade.states) - 1
    cuts = {(frame + after, 0) for frame in commits for after in (0, 1)}
    cuts |= {(frame, 1000) for frame in range(0, frames, max(1, frames // 5))}
    left = []
    for frame, torn in sorted(cuts):
        (tmp_path / "cut.db").write_bytes(whole)
        (tmp_path / "cut.db-wal").write_bytes(log[: _LOG_HEADER + frame * _FRAME + torn])
        left.append(check(upgrade, f"sqlite:///{tmp_path}/cut.db"))
    assert left == sorted(left)
    assert set(left) == set(range(len(upgrade.states)))
