"""An installation moves from SQLite and a folder to PostgreSQL and a bucket, and back, and nothing is lost or changed."""

import random
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from appliance import migrations
from appliance.app.parts import make_places
from appliance.backups.moving import Move, MoveResult, move_installation
from appliance.backups.moving.checksums import encode_row
from appliance.backups.moving.problems import MoveFailed
from appliance.core.config.sections import Blobs as Settings
from appliance.core.database import db, full_text
from appliance.core.database.presence import Presence, open_presence
from appliance.core.database.substrings import SubstringIndex
from appliance.core.errors import ConfigInvalid, Conflict, InvalidRequest
from appliance.documents.models import DocumentRow
from appliance.tenants import service
from tests.backups.conftest import CANARY, World, digests, make_world
from tests.backups.test_transfer import add_rows
from tests.blobs.bucket import running_bucket
from tests.store.cluster import Cluster

NUMBERS = 1_200
"""Rows of one table that are more than two chunks."""


@pytest.fixture(scope="module")
def bucket() -> Iterator[Settings]:
    with running_bucket() as settings:
        yield settings


@pytest.fixture
def source(tmp_path: Path) -> World:
    """A stopped appliance on SQLite and a folder."""
    world = make_world(tmp_path / "data")
    with world.opened():
        scope = world.fill()
        add_rows(scope)
        for number in range(3):
            world.blobs.put(scope, f"content {number}".encode())
        db.write(_insert_tasks)
    return world


def _insert_tasks() -> None:
    for number in range(NUMBERS):
        db.execute("INSERT INTO task (queue, data, priority) VALUES ('x', ?, 0.5)", (f"{number}".encode(),))
    db.execute("DELETE FROM task WHERE id > ?", (NUMBERS - 10,))


@pytest.fixture
def target(tmp_path: Path, cluster: Cluster, bucket: Settings, request: pytest.FixtureRequest) -> World:
    """PostgreSQL and a place in the bucket of its own."""
    world = make_world(tmp_path / "elsewhere", cluster.make_database())
    return World(replace(world.config, blobs=replace(bucket, prefix=request.node.name.replace("[", "-").strip("]"))))


def move(source: World, target: World, report: Callable[[str, int, int], None] = lambda *_: None) -> MoveResult:
    return move_installation(Move(source.config, target.config, make_places), report)


def content_of(world: World) -> dict[str, str]:
    """The digest of each table, with the data closed afterwards."""
    with world.opened():
        return digests()


def name_of(world: World) -> str:
    """The name of its database on the server."""
    return urlsplit(str(world.config.storage.database)).path.removeprefix("/")


class Killed(BaseException):
    """The process ends here."""


def kill_at(number: int) -> Callable[[str, int, int], None]:
    reports = iter(range(number))

    def report(stage: str, done: int, of: int) -> None:
        if next(reports, None) is None:
            raise Killed

    return report


def test_an_installation_moves_and_moves_back(source: World, target: World, tmp_path: Path) -> None:
    before = content_of(source)
    file = source.config.data / "gos.db"
    bytes_before = file.read_bytes()
    done = move(source, target)
    assert (done.contents, done.copied_contents, done.damaged, done.is_resumed) == (5, 5, (), False)
    assert file.read_bytes() == bytes_before
    back = make_world(tmp_path / "back")
    with target.opened() as sealer:
        assert digests() == before
        check_use(target)
        assert service.unseal_secret(service.system_scope("initech"), sealer, "erp") == CANARY
        after = digests()
    assert move(target, back).contents == 5
    with back.opened():
        assert digests() == after
        check_use(back)
        assert db.rows("PRAGMA integrity_check") == [("ok",)]


def check_use(world: World) -> None:
    """Contents are readable, searches find, and serials of deleted rows are not given out again."""
    scope = service.system_scope("initech")
    row = scope.select(DocumentRow).get()
    assert b"".join(world.blobs.read_checked(scope, row.sha256)) == b"the text of initech" * 1000
    assert len(full_text.find_ids("document_text", ["report"], 0, 9)) == 1
    names = SubstringIndex("document", "number", "name")
    assert sorted(names.find_numbers(row.name, 9) or [1, 2]) == [1, 2]
    last = _last_number()
    db.write(lambda: db.execute("INSERT INTO task (queue, data, priority) VALUES ('x', ?, 0)", (b"x",)))
    ((number,),) = db.rows("SELECT max(id) FROM task")
    assert number == last + 1 > NUMBERS
    db.write(lambda: db.execute("DELETE FROM task WHERE id = ?", (number,)))


def _last_number() -> int:
    sql = "SELECT seq FROM sqlite_sequence WHERE name = 'task'" if db.is_sqlite() else "SELECT last_value FROM task_id_seq"
    return int(db.rows(sql)[0][0])


@pytest.mark.parametrize("seed", range(2))
def test_a_move_that_is_killed_goes_on(source: World, target: World, seed: int, tmp_path: Path) -> None:
    """It is killed at a random step again and again, towards the server and back."""
    before, generator = content_of(source), random.Random(seed)  # noqa: S311  repeatable
    back = make_world(tmp_path / "back")
    for origin, goal in ((source, target), (target, back)):
        kills = 0
        while True:
            try:
                done = move(origin, goal, kill_at(generator.randrange(1, 60)) if kills < 3 else lambda *_: None)
                break
            except Killed:
                kills += 1
                with pytest.raises(ConfigInvalid, match="has not completed"):
                    content_of(goal)
                db.close_database()
        assert (done.contents, done.is_resumed) == (5, kills > 0)
        assert content_of(goal) == before


def test_copied_rows_are_not_copied_again(source: World, target: World) -> None:
    with pytest.raises(Killed):
        move(source, target, _kill_after("task", 1_000))
    steps: list[tuple[str, int]] = []
    move(source, target, lambda stage, done, of: steps.append((stage, done)))
    assert [done for stage, done in steps if stage == "task"] == [NUMBERS - 10]


def _kill_after(table: str, rows: int) -> Callable[[str, int, int], None]:
    def report(stage: str, done: int, of: int) -> None:
        if stage == table and done >= rows:
            raise Killed

    return report


def test_lost_connections_end_no_move_wrongly(source: World, target: World, tmp_path: Path, cluster: Cluster) -> None:
    """The move stops with an error, and goes on with the next run."""

    def lose(stage: str, done: int, of: int) -> None:
        if stage == "task" and done < of:
            others = "datname = current_database() AND pid <> pg_backend_pid()"
            cluster.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {others}", name_of(target))  # noqa: S608

    before, back = content_of(source), make_world(tmp_path / "back")
    for origin, goal in ((source, target), (target, back)):
        with pytest.raises(MoveFailed, match="run the same command again"):
            move(origin, goal, lose)
        assert move(origin, goal).is_resumed
        assert content_of(goal) == before


DAMAGES = {
    "a changed value": "UPDATE task SET data = '\\x3132'::bytea WHERE id = 7",
    "a missing row": "DELETE FROM task WHERE id = 7",
    "a further row": "INSERT INTO task (id, queue, data, priority) VALUES (99999, 'x', '1', 0)",
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_difference_at_the_target_is_found(source: World, target: World, cluster: Cluster, damage: str) -> None:
    with pytest.raises(Killed):
        move(source, target, _kill_after("contents", 1))
    name = urlsplit(target.config.storage.database).path[1:]
    cluster.execute(damage, name)
    with pytest.raises(MoveFailed, match="the table task has 1190 rows"):
        move(source, target)
    db.close_database()
    with pytest.raises(ConfigInvalid, match="has not completed"):
        content_of(target)
    db.close_database()


def test_a_row_missing_in_a_file_is_found(source: World, tmp_path: Path) -> None:
    target = make_world(tmp_path / "elsewhere")
    with pytest.raises(Killed):
        move(source, target, _kill_after("contents", 1))
    with closing(sqlite3.connect(target.config.data / "gos.db")) as file:
        file.execute("DELETE FROM task WHERE id = 7")
        file.commit()
    with pytest.raises(MoveFailed, match="the table task has 1190 rows"):
        move(source, target)


def test_a_content_with_a_flipped_byte_is_copied_again(source: World, tmp_path: Path) -> None:
    target = make_world(tmp_path / "elsewhere")
    with pytest.raises(Killed):
        move(source, target, _kill_after("verified tables", 1))
    path = next(each for each in (target.config.data / "blobs" / "initech").rglob("*") if each.is_file())
    content = bytearray(path.read_bytes())
    content[3] ^= 1
    path.write_bytes(content)
    assert move(source, target).copied_contents == 1
    assert path.read_bytes() != bytes(content)


def test_a_store_that_changes_contents_is_found(source: World, tmp_path: Path) -> None:
    target = make_world(tmp_path / "elsewhere")

    class Flipping:
        """A store whose reads differ in one bit."""

        def __init__(self, places: object) -> None:
            self._places = places

        def __getattr__(self, name: str) -> object:
            return getattr(self._places, name)

        def read(self, place: str, start: int, end: int) -> Iterator[bytes]:
            whole = bytearray(b"".join(self._places.read(place, start, end)))  # type: ignore[attr-defined]
            whole[0] ^= 1
            yield bytes(whole)

    def places_of(config: object, installation: str) -> object:
        places = make_places(config, installation)  # type: ignore[arg-type]
        return Flipping(places) if config is target.config else places

    with pytest.raises(MoveFailed, match="differs at the target"):
        move_installation(Move(source.config, target.config, places_of), lambda *_: None)  # type: ignore[arg-type]


def test_contents_that_the_source_has_lost_are_named(source: World, tmp_path: Path) -> None:
    path = next(each for each in (source.config.data / "blobs" / "initech").rglob("*") if each.is_file())
    path.unlink()
    done = move(source, make_world(tmp_path / "elsewhere"))
    assert done.damaged == (path.relative_to(source.config.data / "blobs").as_posix(),)
    assert done.contents == 4


def test_only_the_contents_move_when_the_database_stays(source: World, bucket: Settings) -> None:
    target = World(replace(source.config, blobs=replace(bucket, prefix="contents-only")))
    assert move(source, target).copied_contents == 5
    assert move(source, target).copied_contents == 0
    with target.opened():
        check_use(target)
    with pytest.raises(InvalidRequest, match="nothing to move"):
        move(source, source)


def test_a_target_that_is_not_empty_is_refused(source: World, target: World, tmp_path: Path) -> None:
    for used in (World(replace(target.config, blobs=source.config.blobs)), make_world(tmp_path / "used")):
        with used.opened():
            service.create_tenant("acme", "Acme")
            before = digests()
        with pytest.raises(MoveFailed, match="not empty"):
            move(source, used)
        assert content_of(used) == before


def test_another_key_at_the_target_is_never_replaced(source: World, target: World) -> None:
    key = target.config.data / "key"
    key.parent.mkdir(parents=True, exist_ok=True)
    key.write_bytes(bytes(32))
    with pytest.raises(Conflict, match="exists and differs"):
        move(source, target)
    assert key.read_bytes() == bytes(32)
    key.rename(key.with_name("key.before"))
    assert move(source, target).is_resumed
    assert key.read_bytes() == (source.config.data / "key").read_bytes()


def test_a_target_that_is_no_database_is_refused(source: World, tmp_path: Path) -> None:
    target = make_world(tmp_path / "elsewhere")
    target.config.data.mkdir()
    file = target.config.data / "gos.db"
    file.write_bytes(b"a file of something else" * 100)
    with pytest.raises(MoveFailed, match="not a database"):
        move(source, target)
    assert file.read_bytes() == b"a file of something else" * 100


def test_a_source_that_was_upgraded_meanwhile_starts_anew(source: World, target: World, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Killed):
        move(source, target, kill_at(3))
    with closing(sqlite3.connect(source.config.data / "gos.db")) as file:
        file.execute("INSERT INTO migration VALUES (?, 'next', 0)", (migrations.last_number() + 1,))
        file.commit()
    monkeypatch.setattr(migrations, "last_number", lambda: 999_999)
    with pytest.raises(MoveFailed, match="before an upgrade"):
        move(source, target)


def test_a_move_goes_on_from_its_own_source_only(source: World, target: World, tmp_path: Path) -> None:
    with pytest.raises(Killed):
        move(source, target, kill_at(3))
    other = make_world(tmp_path / "other")
    with other.opened():
        service.create_tenant("acme", "Acme")
    (other.config.data / "key").write_bytes((source.config.data / "key").read_bytes())
    with pytest.raises(MoveFailed, match="from another database"):
        move(other, target)


def test_a_running_appliance_is_refused(source: World, target: World, tmp_path: Path) -> None:
    with source.opened():
        presence = open_presence(source.config.data / "workers")
        with pytest.raises(Conflict, match="is running"):
            move(source, target)
        presence.close()
    with closing(sqlite3.connect(source.config.data / "gos.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(Conflict, match="is running"):
            move(source, target)
    move(source, target)
    with target.opened():
        presence = open_presence(target.config.data / "workers")
        with pytest.raises(Conflict, match="perhaps on another machine"):
            move(target, make_world(tmp_path / "back"))
        presence.close()


def test_an_appliance_that_uses_the_target_folder_is_refused(source: World, target: World) -> None:
    presence = Presence(target.config.data / "workers")
    with pytest.raises(Conflict, match="is running"):
        move(source, target)
    presence.close()


def test_nobody_writes_to_the_source_meanwhile(source: World, target: World, tmp_path: Path, cluster: Cluster) -> None:
    def try_file(stage: str, done: int, of: int) -> None:
        with (
            closing(sqlite3.connect(source.config.data / "gos.db", timeout=0)) as other,
            pytest.raises(sqlite3.OperationalError, match="locked"),
        ):
            other.execute("DELETE FROM tenant")

    def try_server(stage: str, done: int, of: int) -> None:
        name = urlsplit(target.config.storage.database).path[1:]
        sql = f"SELECT pg_try_advisory_lock({int.from_bytes(b'gos:writ', 'big')})"
        assert cluster.execute(sql, name) == [(False,)]

    move(source, target, try_file)
    move(target, make_world(tmp_path / "back"), try_server)


def test_a_source_of_another_release_is_refused(source: World, target: World) -> None:
    with closing(sqlite3.connect(source.config.data / "gos.db")) as file:
        file.execute("INSERT INTO migration VALUES (?, 'future', 0)", (migrations.last_number() + 1,))
        file.commit()
    with pytest.raises(ConfigInvalid, match="install the newer release"):
        move(source, target)


def test_rows_are_encoded_alike_and_apart() -> None:
    assert encode_row((True, None, memoryview(b"x"))) == encode_row((1, None, b"x"))
    rows = [("1",), (1,), (b"1",), (1.0,), (None,), ("1", ""), ("", "1"), (1, 1), (11,)]
    assert len({encode_row(row) for row in rows}) == len(rows)
