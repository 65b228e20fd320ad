"""Backups of the whole appliance as rows: every process shows them, one at a time is made, and that of a dead process anew."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from appliance.backups import backup_jobs, get_status, list_backups, list_jobs, verify_backup
from appliance.backups.backup_runner import Progress
from appliance.backups.schedule import find_due, findings
from appliance.core import clock
from appliance.core.database import db
from appliance.core.errors import Conflict
from tests.backups.backup_processes import BackupProcess
from tests.backups.conftest import PASSPHRASE, World, make_world, restore
from tests.processes.world import wait_until

HOUR = 3_600_000


@dataclass
class Appliance:
    """An appliance with scheduled backups whose store is open; `alive` names its living processes."""

    world: World
    alive: set[str] = field(default_factory=set)
    processes: list[BackupProcess] = field(default_factory=list)

    def open(self, name: str, *, workers: bool = True) -> BackupProcess:
        self.alive.add(name)
        config = replace(self.world.config, server=replace(self.world.config.server, run_workers=workers))
        self.processes.append(BackupProcess(config, self.world.places, name, self.alive.__contains__))
        return self.processes[-1]

    def hang(self, name: str) -> backup_jobs.Claim:
        """The claim of a living process on a requested backup, which it does not work on."""
        self.alive.add(name)
        self.open("server", workers=False).request(PASSPHRASE)
        (lost,) = backup_jobs.LEASES.list_running()
        claim = db.write(partial(backup_jobs.claim, lost, name))
        assert claim is not None
        return claim


@pytest.fixture
def appliance(tmp_path: Path) -> Iterator[Appliance]:
    world = make_world(tmp_path / "data")
    world = World(replace(world.config, backup=replace(world.config.backup, to=str(tmp_path / "backups"), every="1h", keep=2)))
    with world.opened():
        world.fill()
        appliance = Appliance(world)
        yield appliance
        for each in appliance.processes:
            each.close()


def on(monkeypatch: pytest.MonkeyPatch, machine: str) -> None:
    """From now on, this is the machine of that name."""
    for module in ("backup_jobs", "schedule"):
        monkeypatch.setattr(f"appliance.backups.{module}.this_machine", lambda: machine)


def later(monkeypatch: pytest.MonkeyPatch, hours: int) -> None:
    at = clock.now_ms() + hours * HOUR + 1
    monkeypatch.setattr(clock, "now_ms", lambda: at)


def test_a_server_without_workers_leaves_a_request_to_a_process_with_workers(appliance: Appliance) -> None:
    server, worker = appliance.open("server", workers=False), appliance.open("worker")
    server.request(PASSPHRASE)
    job = backup_jobs.find_running()
    assert job is not None
    assert (job.kind, job.stage, job.result) == ("requested", "asked", None)
    assert server.runner._active == {}
    assert PASSPHRASE not in repr(db.rows("SELECT * FROM backup_job"))
    result = worker.run_due()
    assert result is not None
    assert (result.problem, result.encrypted) == (None, True)
    assert get_status(appliance.world.config, list_jobs()).last == result
    assert verify_backup(Path(result.path), PASSPHRASE)["contents"]["count"] == 2
    assert db.rows("SELECT state, sealed, owner FROM backup_job") == [("ended", None, None)]
    assert worker.run_due() is None, "one that was made on request also counts as scheduled"


def test_only_one_backup_is_made_at_a_time(appliance: Appliance) -> None:
    appliance.hang("dead")
    for each in (appliance.open("one"), appliance.open("two", workers=False)):
        with pytest.raises(Conflict, match="already being made"):
            each.request(PASSPHRASE)
        assert each.run_due() is None


def test_of_two_processes_that_find_one_due_at_once_one_makes_it(appliance: Appliance) -> None:
    one, last = appliance.open("one"), 0
    assert find_due(appliance.world.config, list_jobs()) == 0
    assert one.run_due() is not None
    assert db.write(partial(backup_jobs.insert_due, last, "two")) is None
    assert len(list_jobs()) == 1


def test_a_backup_of_a_dead_process_is_made_by_another(appliance: Appliance) -> None:
    survivor = appliance.open("survivor")
    appliance.hang("dead")
    assert survivor.run_due() is None, "its process lives"
    appliance.alive.remove("dead")
    result = survivor.run_due()
    assert result is not None
    assert result.problem is None
    assert [each.name for each in list_backups(appliance.world.config)] == [Path(result.path).name]
    assert len(list_jobs()) == 1


def test_a_process_that_has_lost_its_backup_to_another_names_no_file(
    appliance: Appliance, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, report = appliance.open("own"), Progress.report

    def lose(self: Progress, stage: str, done: int, of: int) -> None:
        report(self, stage, done, of)
        if (stage, done) == ("checking", 2):
            db.write(lambda: db.execute("UPDATE backup_job SET fence = fence + 1, owner = 'two'"))

    appliance.alive.add("two")
    monkeypatch.setattr(Progress, "report", lose)
    assert own.run_due() is None
    assert list(Path(appliance.world.config.backup.to).iterdir()) == []
    assert db.rows("SELECT state, owner FROM backup_job") == [("running", "two")]


def test_a_backup_whose_processes_keep_dying_is_given_up(appliance: Appliance) -> None:
    appliance.hang("dead")
    db.write(lambda: db.execute("UPDATE backup_job SET claims = 5"))
    appliance.alive.remove("dead")
    own = appliance.open("own")
    result = own.run_due()
    assert result is not None
    assert "see the log" in str(result.problem)
    assert "FAIL" in dict(findings(appliance.world.config, list_jobs()))
    assert db.rows("SELECT state, sealed FROM backup_job") == [("ended", None)]
    assert own.run_due() is None, "the next attempt is in ten minutes"


def test_a_backup_that_was_aborted_by_a_stop_is_made_by_whoever_runs_next(
    appliance: Appliance, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = appliance.open("own")
    with monkeypatch.context() as patch:
        patch.setattr(Progress, "report", lambda *_: own.begin_to_stop())
        own.request(PASSPHRASE)
        wait_until(lambda: not own.runner._active)
    assert db.rows("SELECT state, owner FROM backup_job") == [("running", None)]
    result = appliance.open("next").run_due()
    assert result is not None
    assert verify_backup(Path(result.path), PASSPHRASE)["tables"]["tenant"] == 3


def test_a_scheduled_backup_of_another_machine_counts_and_is_shown(
    appliance: Appliance, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Each machine has a folder of its own under the same name."""
    config, folder = appliance.world.config, tmp_path / "backups"
    on(monkeypatch, "north")
    result = appliance.open("one").run_due()
    assert result is not None
    folder.rename(tmp_path / "of-north")
    on(monkeypatch, "south")
    assert appliance.open("two").run_due() is None
    status = get_status(config, list_jobs())
    assert (status.files, status.last, status.last_machine) == ((), result, "north")
    assert [(each.machine, each.result) for each in status.elsewhere] == [("north", result)]
    assert "north" in dict(findings(config, list_jobs()))["ok"]
    later(monkeypatch, 1)
    assert appliance.open("two").run_due() is not None


def test_a_backup_requested_on_another_machine_postpones_no_scheduled_one(
    appliance: Appliance, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    on(monkeypatch, "north")
    own = appliance.open("one")
    own.request(PASSPHRASE)
    wait_until(lambda: not own.runner._active)
    (tmp_path / "backups").rename(tmp_path / "of-north")
    on(monkeypatch, "south")
    assert appliance.open("two").run_due() is not None


def test_a_file_in_a_folder_of_all_machines_is_listed_once(appliance: Appliance, monkeypatch: pytest.MonkeyPatch) -> None:
    on(monkeypatch, "north")
    assert appliance.open("one").run_due() is not None
    on(monkeypatch, "south")
    status = get_status(appliance.world.config, list_jobs())
    assert (len(status.files), status.elsewhere) == (1, ())


def test_a_deleted_backup_is_no_longer_remembered(appliance: Appliance, monkeypatch: pytest.MonkeyPatch) -> None:
    own, results = appliance.open("one"), []
    for _ in range(3):
        results.append(own.run_due())
        later(monkeypatch, 1)
    assert [job.result for job in list_jobs()] == results[:0:-1]


def test_no_more_rows_are_kept_than_needed(appliance: Appliance) -> None:
    def insert_many() -> Any:
        for _ in range(backup_jobs.REMEMBERED + 3):
            db.execute("UPDATE backup_job SET state = 'ended'")
            backup_jobs.insert(backup_jobs.REQUESTED)

    db.write(insert_many)
    assert [job.number for job in list_jobs()] == list(range(backup_jobs.REMEMBERED + 3, 3, -1))


def test_a_restored_appliance_does_not_make_the_backup_that_it_is_from(appliance: Appliance, tmp_path: Path) -> None:
    result = appliance.open("one").run_due()
    assert result is not None
    db.close_database()
    restored = make_world(tmp_path / "restored")
    key_file = appliance.world.config.data / "key"
    restore(Path(result.path), restored, passphrase=None, key_file=key_file)
    with restored.opened():
        assert list_jobs() == []
