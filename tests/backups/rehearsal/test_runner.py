"""Rehearsals on schedule and on request: one over all processes, its result for everybody, and nothing left by a killed one."""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from appliance.backups.rehearsal import (
    RehearsalResult,
    RehearsalRunner,
    findings,
    get_status,
    has_failed,
    list_rehearsals,
    records,
    runner,
)
from appliance.cli import main
from appliance.core import clock
from appliance.core.catalogues import read_catalogue
from appliance.core.config import load_config
from appliance.core.database import db
from appliance.core.errors import ConfigInvalid, Conflict
from appliance.core.leases import Lease
from appliance.core.sentences import unpack
from tests.architecture.source_tree import ROOT
from tests.backups.backup_processes import BackupProcess
from tests.backups.conftest import PASSPHRASE, World, make_world
from tests.backups.rehearsal.test_trials import leftovers, processes_of
from tests.processes.world import wait_until

HOUR = 3_600_000
RESULT = RehearsalResult("2026-01-01T00:00:00Z", 10, 2, 2, 2, 1200, 800)


@dataclass
class Appliance:
    """An appliance with one backup whose restore is to be rehearsed; `alive` names its living processes."""

    world: World
    alive: set[str] = field(default_factory=set)
    runners: list[RehearsalRunner] = field(default_factory=list)

    def open(self, name: str, *, workers: bool = True) -> RehearsalRunner:
        self.alive.add(name)
        config = replace(self.world.config, server=replace(self.world.config.server, run_workers=workers))
        self.runners.append(RehearsalRunner(config, name, self.alive.__contains__))
        return self.runners[-1]


def run_due(own: RehearsalRunner) -> None:
    """Do what the process does periodically."""
    own.start_due()
    own.resume()
    wait_until(lambda: not own._active, seconds=300)


@pytest.fixture
def appliance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Appliance]:
    monkeypatch.setattr(runner, "NICE", 0)  # so that a busy machine does not starve it
    world = make_world(tmp_path / "data")
    backup = replace(world.config.backup, to=str(tmp_path / "backups"), rehearse_every="7d", passphrase=PASSPHRASE)
    world = World(replace(world.config, backup=backup))
    with world.opened():
        world.fill()
        assert BackupProcess(world.config, world.places).run_due() is not None
        appliance = Appliance(world)
        yield appliance
        for each in appliance.runners:
            each.stop()


def later(monkeypatch: pytest.MonkeyPatch, hours: int) -> None:
    at = clock.now_ms() + hours * HOUR + 1
    monkeypatch.setattr(clock, "now_ms", lambda: at)


def answer(result: RehearsalResult | None, problem: str | None, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Let every rehearsal end with this, without its process; returns the sources, once they are rehearsed."""
    sources: list[str] = []

    def rehearse(_: RehearsalRunner, __: records.Claim, source: str) -> tuple[RehearsalResult | None, str | None]:
        sources.append(source)
        return result, problem

    monkeypatch.setattr(RehearsalRunner, "_rehearse", rehearse)
    return sources


def test_the_newest_backup_is_rehearsed_when_due(appliance: Appliance) -> None:
    own = appliance.open("one")
    run_due(own)
    (only,) = list_rehearsals()
    assert only.problem is None
    assert only.result is not None
    assert (only.result.contents, only.result.sampled, only.result.trails) == (2, 2, 3)
    assert Path(only.source).parent == Path(appliance.world.config.backup.to)
    assert "answered after" in dict(findings(appliance.world.config, list_rehearsals()))["ok"]
    assert not has_failed()
    run_due(own)
    assert len(list_rehearsals()) == 1, "the next is due in a week"
    assert leftovers(appliance.world) == []


def test_it_is_due_again_after_the_interval_and_a_failed_one_after_a_day(
    appliance: Appliance, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, own = appliance.world.config, appliance.open("one")
    with monkeypatch.context() as patch:
        assert answer(None, "the disk is full", patch) == []
        run_due(own)
    assert has_failed()
    assert "the disk is full" in dict(findings(config, list_rehearsals()))["FAIL"]
    status = get_status(config, list_rehearsals())
    assert status.last is not None
    assert status.next_at == status.last.started_at + 24 * HOUR
    later(monkeypatch, 24)
    answer(RESULT, None, monkeypatch)
    run_due(own)
    assert (has_failed(), len(list_rehearsals())) == (False, 2)
    assert get_status(config, list_rehearsals()).next_at == clock.now_ms() + 7 * 24 * HOUR
    later(monkeypatch, 15 * 24)
    assert any("is the appliance running" in text for _, text in findings(config, list_rehearsals()))


def test_only_one_is_made_at_a_time_and_a_server_without_workers_leaves_it(
    appliance: Appliance, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources = answer(RESULT, None, monkeypatch)
    server, worker = appliance.open("server", workers=False), appliance.open("worker")
    server.request()
    with pytest.raises(Conflict, match="already being rehearsed"):
        worker.request()
    assert get_status(appliance.world.config, list_rehearsals()).running is not None
    assert sources == []
    run_due(worker)
    assert len(sources) == 1
    run_due(appliance.open("two"))
    assert [each.result for each in list_rehearsals()] == [RESULT]


def test_one_of_a_dead_process_is_made_by_another(appliance: Appliance, monkeypatch: pytest.MonkeyPatch) -> None:
    answer(RESULT, None, monkeypatch)
    appliance.open("server", workers=False).request()
    appliance.alive.add("dead")
    assert db.write(lambda: records.claim(Lease((1,), 0, None, 0), "dead")) is not None
    survivor = appliance.open("survivor")
    run_due(survivor)
    assert list_rehearsals()[0].is_running, "its process lives"
    appliance.alive.remove("dead")
    run_due(survivor)
    assert [each.result for each in list_rehearsals()] == [RESULT]


@pytest.mark.parametrize("how", ["stop", "lost"])
def test_a_stop_or_a_lost_lease_ends_all_that_it_started(appliance: Appliance, how: str) -> None:
    own, folder = appliance.open("own"), appliance.world.config.data / "rehearsals"
    own.start_due()
    wait_until(lambda: bool(list(folder.glob("*/serve.log"))) and processes_of(folder), seconds=200)
    if how == "stop":
        own.stop()
        assert db.rows("SELECT state, owner, claims FROM backup_rehearsal") == [("running", None, 0)], "whoever runs next makes it"
    else:
        db.write(lambda: db.execute("UPDATE backup_rehearsal SET fence = fence + 1, owner = 'two'"))
        wait_until(lambda: not own._active, seconds=60)
        assert db.rows("SELECT state, owner FROM backup_rehearsal") == [("running", "two")]
    wait_until(lambda: processes_of(folder) == [], seconds=60)
    assert leftovers(appliance.world) == []


def test_the_reason_of_a_failed_process_is_recorded(appliance: Appliance) -> None:
    (path,) = Path(appliance.world.config.backup.to).iterdir()
    path.write_bytes(path.read_bytes()[:-20])
    run_due(appliance.open("one"))
    (only,) = list_rehearsals()
    assert "is damaged" in str(only.problem)


def test_a_reason_stays_a_sentence_that_can_be_translated(
    appliance: Appliance, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The process that rehearses prints its id and values, and the row keeps them."""
    command = ["--config", os.devnull, "--data", str(appliance.world.config.data), "backup", "rehearse", "s3://none", "--json"]
    assert main(command) == 1
    output = capsys.readouterr()
    assert output.err.startswith("gos: 's3://none' names no file in a bucket")
    answer(None, unpack(json.loads(output.out)["problem"]), monkeypatch)
    run_due(appliance.open("one"))
    (only,) = list_rehearsals()
    german = read_catalogue(ROOT / "ui" / "translations" / "de.po").language
    assert german.translate(only.problem or "").startswith("'s3://none' nennt keine Datei in einem Bucket")


def test_no_setting_or_credential_reaches_the_restored_appliance(appliance: Appliance, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOS_STORAGE_DATABASE", "postgresql://production/gos")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "token")
    environment = appliance.open("one")._environment()
    assert "GOS_STORAGE_DATABASE" not in environment
    assert environment["AWS_SESSION_TOKEN"] == "token", "the bucket of the backup may need it"
    assert "GOS_BACKUP_PASSPHRASE" not in environment, "it goes by a pipe"
    assert os.environ["PATH"] == environment["PATH"]


def test_too_short_an_interval_is_refused() -> None:
    for value in ("59m", "soon"):
        with pytest.raises(ConfigInvalid, match=r"backup\.rehearse_every"):
            load_config(environment={}, flags={"backup.rehearse_every": value})
