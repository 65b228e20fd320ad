"""What only a server database needs: its address, its settings, presence across machines; and concurrent starts on both."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import peewee
import pytest

from appliance.core.database import db
from appliance.core.database.postgresql import Postgresql
from appliance.core.database.postgresql_presence import LockPresence
from appliance.core.database.presence import Presence, open_presence
from appliance.core.errors import ConfigInvalid
from appliance.migrations import BASELINE, last_number
from appliance.web import as_coded
from tests.processes.world import wait_until
from tests.store.cluster import Cluster
from tests.store.conftest import on_server

CHILD = """
import sys
from pathlib import Path
from appliance.core.database import db
from appliance.core.database.presence import open_presence
db.open_database(sys.argv[1])
presence = open_presence(Path(sys.argv[2]))
print(presence.instance, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def mine(store: str, tmp_path: Path) -> Iterator[Presence]:
    presence = open_presence(tmp_path / "workers")
    yield presence
    presence.close()


@on_server
def test_a_text_with_a_nul_is_an_error_of_the_caller(store: str) -> None:
    with pytest.raises(peewee.DataError) as failure:
        db.rows("SELECT ?", ("a\0b",))
    assert as_coded(failure.value).status == 422


def test_a_killed_process_is_dead_at_once(mine: Presence, store: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", CHILD, store, str(tmp_path / "workers")]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    other = child.stdout.readline().strip()
    try:
        assert mine.is_alive(other)
        assert mine.is_alive(mine.instance)
        assert not mine.is_alive("wrk_unknown")
        assert mine.sweep() == []
    finally:
        child.kill()
        child.communicate()
    if isinstance(mine, LockPresence):
        wait_for_the_session_to_end(mine, other)
    assert not mine.is_alive(other)


def wait_for_the_session_to_end(mine: Presence, other: str) -> None:
    """The server notices a closed socket by itself, a moment later."""
    db.rows("SELECT pg_sleep(0.01)")
    for _ in range(200):
        if not mine.is_alive(other):
            return
        db.rows("SELECT pg_sleep(0.01)")


def test_a_closed_presence_is_not_alive(mine: Presence, tmp_path: Path) -> None:
    other = open_presence(tmp_path / "workers")
    assert mine.is_alive(other.instance)
    other.close()
    other.close()
    if isinstance(mine, LockPresence):
        wait_for_the_session_to_end(mine, other.instance)
    assert not mine.is_alive(other.instance)


def test_the_processes_that_serve_are_counted(mine: Presence, tmp_path: Path) -> None:
    for _ in range(2):
        mine.start_serving()
    assert mine.count_serving() == 1, "once, however often it says so"
    other = open_presence(tmp_path / "workers")
    others = 1 if isinstance(mine, LockPresence) else 0
    assert mine.count_serving() == 1, "one that works and does not serve"
    other.start_serving()
    assert mine.count_serving() == 1 + others
    other.stop_serving()
    assert mine.count_serving() == 1
    other.start_serving()
    assert other.count_serving() == 1 + others
    other.close()
    if isinstance(mine, LockPresence):
        wait_until(lambda: mine.count_serving() == 1)


@on_server
def test_a_process_serves_on_after_a_restart_of_the_server(server: str, mine: LockPresence, cluster: Cluster) -> None:
    mine.start_serving()
    cluster.stop("immediate")
    cluster.start()
    db.database.obj.close_readers()
    assert mine.count_serving() == 1


@on_server
def test_presence_outlives_a_restart_of_the_server(server: str, mine: LockPresence, cluster: Cluster) -> None:
    other = LockPresence(db.database.obj)
    cluster.stop("immediate")
    cluster.start()
    assert not mine.is_alive(other.instance)
    other.renew()
    assert mine.is_alive(other.instance)
    other.close()


STARTING = """
import sys
from appliance import migrations
from appliance.core.database import db
print("ready", flush=True)
sys.stdin.readline()
db.open_database(sys.argv[1])
print(len(migrations.migrate()), flush=True)
db.close_database()
"""


@pytest.mark.parametrize("dialect", ["sqlite", "postgresql"])
def test_processes_that_start_at_once_migrate_once(dialect: str, cluster: Cluster, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/gos.db" if dialect == "sqlite" else cluster.make_database()
    command = [sys.executable, "-c", STARTING, url]
    children = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    for child in children:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
    for child in children:
        assert child.stdin is not None
        child.stdin.write("go\n")
        child.stdin.flush()
    applied = [int(child.communicate(timeout=60)[0]) for child in children]
    assert [child.returncode for child in children] == [0, 0, 0]
    assert sum(applied) == last_number() - BASELINE + 1


@pytest.mark.parametrize("options", ["ENCODING SQL_ASCII LOCALE 'C'", "LOCALE_PROVIDER icu ICU_LOCALE 'en-US' LOCALE 'C'"])
def test_a_database_with_another_collation_is_refused(cluster: Cluster, options: str) -> None:
    with pytest.raises(ConfigInvalid, match="createdb --template=template0"):
        db.open_database(cluster.make_database(options))


@pytest.mark.parametrize("url", ["postgresql://nobody@127.0.0.1:1/none", "mysql://there/db"])
def test_an_unreachable_database_is_a_config_error(url: str) -> None:
    with pytest.raises(ConfigInvalid, match=r"^storage\.database: .*(refused|not supported)"):
        db.open_database(url)


def test_the_driver_is_the_one_that_is_tested() -> None:
    assert isinstance(Postgresql("postgresql:///x")._adapter, peewee.Psycopg3Adapter)


@on_server
def test_a_deadline_leaves_the_time_that_the_server_gives(server: str) -> None:
    ((name,),) = db.rows("SELECT current_database()")

    def timeout() -> str:
        return str(db.rows("SHOW statement_timeout")[0][0])

    change = f'ALTER DATABASE "{name}"'
    db.write(lambda: db.execute(f"{change} SET statement_timeout = 7000"))
    try:
        db.close_database()
        db.open_database(server)
        assert timeout() == "7s"
        with db.deadline(5):
            assert timeout() == "5s"
        assert timeout() == "7s"
    finally:
        db.write(lambda: db.execute(f"{change} RESET statement_timeout"))
