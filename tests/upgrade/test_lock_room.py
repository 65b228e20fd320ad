"""How many locks a backup and a roll back take on a PostgreSQL server is what `gos doctor` says."""

import re
from pathlib import Path

import pytest

from appliance.app.findings import database_server
from appliance.core.database import db
from appliance.upgrade import servers
from tests.backups.conftest import make_world
from tests.store.cluster import Cluster


class Undone(Exception):
    """Rolls a write back."""


def count_locks() -> int:
    return int(db.rows("SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid()")[0][0])


def test_the_locks_of_a_backup_and_a_roll_back_are_what_is_limits(
    tmp_path: Path, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The numbers in the sentences are upper limits of what the transactions take, and not more than half as much again."""
    counts: list[int] = []

    def copy() -> None:
        servers.copy_aside(tmp_path / "aside.db")
        counts.append(count_locks())

    def put_back() -> None:
        servers.put_back(tmp_path / "aside.db")
        counts.append(count_locks())
        raise Undone

    world, limits = make_world(tmp_path / "data", cluster.make_database()), list[int]()
    with world.opened():
        world.fill()
        db.write(copy)
        with pytest.raises(Undone):
            db.write(put_back)
        for each in (0, 20):
            monkeypatch.setattr(database_server, "read_settings", lambda each=each: (each, 100))
            ((_, text),) = database_server.lock_findings()
            (number,) = re.findall(r"(\d+) locks(?:: it fails)", text)
            limits.append(int(number))
    for count, limit in zip(counts, limits, strict=True):
        assert count * 0.9 <= limit <= count * 1.5, (counts, limits)
    assert counts[1] <= limits[1]
