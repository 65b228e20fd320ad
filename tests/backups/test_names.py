"""Names of scheduled and requested backups: unique, and sorted by when they were made."""

from dataclasses import replace
from pathlib import Path

import pytest

from appliance.backups import backup_folder, backup_jobs
from appliance.backups.backup_folder import list_backups
from appliance.core import clock
from tests.backups.backup_processes import BackupProcess
from tests.backups.conftest import PASSPHRASE, World, make_world
from tests.processes.world import wait_until


@pytest.fixture
def scheduled(tmp_path: Path) -> World:
    world = make_world(tmp_path / "data")
    backup = replace(world.config.backup, to=str(tmp_path / "backups"), every="1h", keep=2, passphrase=PASSPHRASE)
    return World(replace(world.config, backup=backup))


def test_two_backups_of_one_moment_have_two_names(scheduled: World, monkeypatch: pytest.MonkeyPatch) -> None:
    now = clock.now_ms()
    monkeypatch.setattr(clock, "now_ms", lambda: now)
    with scheduled.opened():
        own = BackupProcess(scheduled.config, scheduled.places)
        first = own.run_due()
        own.request(PASSPHRASE)
        wait_until(lambda: all(job.result is not None for job in backup_jobs.list_jobs()))
        second = max(backup_jobs.list_jobs(), key=lambda job: job.number).result
        files = list_backups(scheduled.config)
    assert first is not None
    assert second is not None
    assert (first.problem, second.problem) == (None, None)
    assert first.path != second.path
    assert {each.name for each in files} == {Path(first.path).name, Path(second.path).name}


def test_backups_of_one_second_are_told_apart_by_their_milliseconds(scheduled: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a bucket nobody looks whether a name is taken."""
    moments = [1_800_000_000_123, 1_800_000_000_124]
    names = []
    with scheduled.opened():
        for now in moments:
            monkeypatch.setattr(clock, "now_ms", lambda now=now: now)
            names.append(backup_folder.new_path(scheduled.config).name)
    assert [backup_folder.moment_of_name(name) for name in names] == moments
    assert names[0].startswith("gos-20270115T080000.123Z-ins_")
    assert backup_folder.moment_of_name(names[0].replace(".123Z", "Z")) == 1_800_000_000_000, "as earlier releases name them"
