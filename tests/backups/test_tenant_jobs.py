"""Exports and imports of tenants are shown by every process, and continued when theirs is gone."""

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from appliance.backups import ImportRequest
from appliance.backups.jobs import NewJob, TenantJob, UploadedExport, records
from appliance.backups.jobs.files import FOLDER
from appliance.blobs import GRACE_MS
from appliance.core.database import db
from appliance.core.errors import AlreadyExists, Conflict, NotFound
from appliance.core.leases import LeaseLost
from appliance.core.scope import TenantScope
from appliance.solutions import Transfers
from appliance.tenants import service as tenants
from tests.backups.conftest import CANARY, PASSPHRASE, make_world, restore
from tests.backups.job_processes import Processes, collections, hang, kill, open_processes, wait_for
from tests.processes.world import Wall, wait_until


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Processes]:
    with open_processes(tmp_path / "data") as processes:
        yield processes


# -- exports


def export(cluster: Processes, process: Transfers, passphrase: str | None = None) -> TenantJob:
    process.exports.start(cluster.scope, passphrase)
    return wait_for(lambda: process.exports.latest(cluster.scope))


def test_every_process_shows_an_export_and_offers_its_file(cluster: Processes) -> None:
    here, there = cluster.open("one"), cluster.open("two")
    first = export(cluster, here)
    assert (first.state, first.result, first.stage) == ("done", {"damaged": 0}, "contents")
    assert there.exports.latest(cluster.scope) == first
    (listed,) = there.exports.list_exports(cluster.scope)
    same, pieces = there.exports.read(cluster.scope, listed.name)
    assert (same, len(b"".join(pieces))) == (listed, listed.size)
    second = export(cluster, there, PASSPHRASE)
    assert [each.is_sealed for each in here.exports.list_exports(cluster.scope)] == [True], "it replaces the first"
    assert cluster.files() == [f"blobs/{second.place}"]
    here.exports.delete(cluster.scope, second.name)
    assert (cluster.files(), there.exports.list_exports(cluster.scope)) == ([], [])


def test_a_name_finds_only_exports_of_the_tenant(cluster: Processes) -> None:
    process = cluster.open("one")
    name = export(cluster, process).name
    for other in ("../key", f"../exports/{name}", name.replace("initech", "hooli"), ""):
        with pytest.raises(NotFound, match="create a new one"):
            process.exports.read(cluster.scope, other)
    with pytest.raises(NotFound):
        process.exports.read(tenants.system_scope("hooli"), name)


def test_one_export_of_a_tenant_runs_at_a_time_over_all_processes(cluster: Processes) -> None:
    here = cluster.open("one")
    hang(cluster, NewJob(records.EXPORT))
    with pytest.raises(Conflict, match="already running"):
        here.exports.start(cluster.scope, None)
    here.exports.start(tenants.system_scope("hooli"), None)
    assert wait_for(lambda: here.exports.latest(tenants.system_scope("hooli"))).state == "done"


def test_an_export_of_a_process_that_died_is_made_by_another(cluster: Processes) -> None:
    there = cluster.open("two")
    sealed = there.runner.seal(cluster.scope, "wrk_1", PASSPHRASE)
    claim = hang(cluster, NewJob(records.EXPORT, "wrk_1", {"encrypted": True}, sealed))
    rows = repr(db.rows("SELECT * FROM tenant_job"))
    assert PASSPHRASE not in rows
    kill(cluster, there)
    done = wait_for(lambda: there.exports.latest(cluster.scope))
    assert (done.id, done.state, done.sealed) == ("wrk_1", "done", None)
    _, pieces = there.exports.read(cluster.scope, done.name)
    assert b"".join(pieces)[:4] != b"\x28\xb5\x2f\xfd", "it is encrypted"
    with pytest.raises(LeaseLost):
        db.write(lambda: records.finish(claim, {"damaged": 0}))


def test_the_file_of_an_export_that_another_process_made_meanwhile_is_deleted(
    cluster: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = cluster.open("one")
    store = here._files.store

    def store_late(scope: TenantScope, path: Path) -> str:
        place = store(scope, path)
        db.write(lambda: db.execute("UPDATE tenant_job SET fence = fence + 1, owner = 'two'"))
        return place

    monkeypatch.setattr(here._files, "store", store_late)
    cluster.alive.add("two")
    here.exports.start(cluster.scope, None)
    wait_until(lambda: not here.runner._active)
    assert (cluster.files(), [job.state for job in records.list_jobs(cluster.scope, "export")]) == ([], ["running"])


def test_an_export_that_a_stopping_process_leaves_is_made_by_another(
    cluster: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = cluster.open("one"), cluster.open("two")

    def stop(*_: object) -> None:
        here.runner._stopping.set()
        here.runner.refuse_stopping()

    monkeypatch.setattr(here._files, "store", stop)
    here.exports.start(cluster.scope, PASSPHRASE)
    wait_until(lambda: not here.runner._active)
    left = here.exports.latest(cluster.scope)
    assert left is not None
    assert (left.state, left.problem, left.sealed is not None) == ("running", None, True)
    assert cluster.files() == []
    there.runner.resume()
    assert wait_for(lambda: there.exports.latest(cluster.scope)).state == "done"


def test_an_export_that_ends_every_process_is_given_up(cluster: Processes) -> None:
    there = cluster.open("two")
    hang(cluster, NewJob(records.EXPORT, sealed=b"sealed"))
    for name in ("three", "four", "five", "six"):
        (lost,) = records.LEASES.list_running()
        assert db.write(partial(records.claim, lost, name)) is not None
    cluster.alive.discard("dead")
    there.runner.resume()
    failed = wait_for(lambda: there.exports.latest(cluster.scope))
    assert failed.problem is not None
    assert (failed.state, failed.problem.message) == ("failed", "an internal error occurred; see the log of the appliance")
    assert failed.sealed is None


def test_an_export_is_kept_for_a_day_and_no_longer(cluster: Processes, monkeypatch: pytest.MonkeyPatch) -> None:
    process = cluster.open("one")
    done = export(cluster, process)
    wall = Wall(monkeypatch)
    wall.offset = records.RETENTION_MS - 60_000
    process.tidy()
    cluster.blobs.collect()
    assert len(process.exports.list_exports(cluster.scope)) == 1
    wall.offset = records.RETENTION_MS + 1
    with pytest.raises(NotFound, match="create a new one"):
        process.exports.read(cluster.scope, done.name)
    process.tidy()
    assert (cluster.files(), db.rows("SELECT * FROM tenant_job")) == ([], [])


def test_temporary_folders_of_dead_processes_and_files_of_earlier_releases_are_deleted(
    cluster: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    process, data = cluster.open("one"), cluster.world.config.data
    left = data / FOLDER / "wrk_1-00"
    left.mkdir(parents=True)
    (left / "lock").touch()
    for name in ("exports/a-20260101T000000Z.gost", "arriving/arr_1/export.gost"):
        (data / name).parent.mkdir(parents=True)
        (data / name).write_bytes(b"x")
    with process._files.working_folder("wrk_2") as working:
        process.tidy()
        assert left.is_dir(), "it may just be on its way to the lock"
        yesterday = left.stat().st_mtime - records.RETENTION_MS / 1000 - 60
        for path in (left, working, *data.glob("exports/*"), *data.glob("arriving/*")):
            os.utime(path, (yesterday, yesterday))
        process.tidy()
        assert (left.exists(), working.exists()) == (False, True)
    assert [*data.glob("exports/*"), *data.glob("arriving/*")] == []


# -- uploaded exports


def upload(cluster: Processes, process: Transfers, passphrase: str | None = None) -> UploadedExport:
    """An uploaded export of the tenant."""
    name = export(cluster, process, passphrase).name
    _, pieces = process.exports.read(cluster.scope, name)
    received = cluster.blobs.receive(pieces)
    process.exports.delete(cluster.scope, name)
    return process.arrivals.receive(cluster.scope, "moved.gost", received)


def wait_for_upload(cluster: Processes, process: Transfers, upload_id: str) -> UploadedExport:
    wait_until(lambda: not process.arrivals.get(cluster.scope, upload_id).is_busy)
    return process.arrivals.get(cluster.scope, upload_id)


def request(name: str) -> ImportRequest:
    return ImportRequest(Path(), None, name)


def test_an_upload_is_read_and_imported_by_any_process(cluster: Processes) -> None:
    here, there = cluster.open("one"), cluster.open("two")
    upload_id = upload(cluster, here, PASSPHRASE).id
    there.arrivals.open(cluster.scope, upload_id, "not the passphrase")
    wrong = wait_for_upload(cluster, here, upload_id).job
    assert wrong.problem is not None
    assert (wrong.state, wrong.sealed) == ("failed", None)
    assert "passphrase is wrong" in wrong.problem.message
    there.arrivals.open(cluster.scope, upload_id, PASSPHRASE)
    read = wait_for_upload(cluster, here, upload_id)
    assert (read.job.state, read.manifest["tenant"]["id"]) == ("waiting", "initech")
    assert PASSPHRASE not in repr(db.rows("SELECT * FROM tenant_job"))
    with pytest.raises(AlreadyExists):
        here.arrivals.write(cluster.scope, upload_id, request("hooli"))
    here.arrivals.write(cluster.scope, upload_id, request("copied"))
    done = wait_for_upload(cluster, there, upload_id)
    assert done.imported is not None
    assert (done.imported.tenant_id, done.job.state, done.job.sealed) == ("copied", "done", None)
    assert collections(tenants.system_scope("copied")) == ["lines", "orders"]
    assert cluster.files() == []
    with pytest.raises(Conflict):
        there.arrivals.write(cluster.scope, upload_id, request("again"))


@pytest.mark.parametrize("passphrase", [None, PASSPHRASE])
def test_an_import_of_a_process_that_died_is_written_by_another(cluster: Processes, passphrase: str | None) -> None:
    here, there = cluster.open("one"), cluster.open("two")
    upload_id = upload(cluster, here, passphrase).id
    if passphrase:
        here.arrivals.open(cluster.scope, upload_id, passphrase)
    wait_for_upload(cluster, here, upload_id)
    here.runner.submit = lambda claim: None  # type: ignore[method-assign]  # it dies before it begins
    here.arrivals.write(cluster.scope, upload_id, request("copied"))
    kill(cluster, there, "one")
    done = wait_for_upload(cluster, there, upload_id)
    assert done.job.problem is None
    assert collections(tenants.system_scope("copied")) == ["lines", "orders"]
    assert cluster.files() == []


def test_an_import_by_a_process_that_lost_it_is_undone(cluster: Processes, monkeypatch: pytest.MonkeyPatch) -> None:
    here = cluster.open("one")
    upload_id = wait_for_upload(cluster, here, upload(cluster, here).id).id
    take = "UPDATE tenant_job SET fence = fence + 1, owner = 'two' WHERE stage = 'writing'"
    cluster.alive.add("two")
    save = records.save_progress

    def save_and_lose(*progress: object) -> None:
        save(*progress)  # type: ignore[arg-type]
        db.execute(take)

    monkeypatch.setattr(records, "save_progress", save_and_lose)
    here.arrivals.write(cluster.scope, upload_id, request("copied"))
    wait_until(lambda: not here.runner._active)
    assert "copied" not in {each.id for each in tenants.list_tenants()}
    monkeypatch.undo()
    cluster.alive.remove("two")
    there = cluster.open("three")
    there.runner.resume()
    assert wait_for_upload(cluster, there, upload_id).imported is not None


def test_an_upload_expires_an_hour_after_the_last_access(cluster: Processes, monkeypatch: pytest.MonkeyPatch) -> None:
    process = cluster.open("one")
    upload_id = wait_for_upload(cluster, process, upload(cluster, process).id).id
    with pytest.raises(NotFound, match="has expired"):
        process.arrivals.get(cluster.scope.with_actor("user:eve"), upload_id)
    wall = Wall(monkeypatch)
    for minutes in (50, 100):
        wall.offset = minutes * 60_000
        process.tidy()
        assert process.arrivals.get(cluster.scope, upload_id).manifest
    wall.offset = 161 * 60_000
    with pytest.raises(NotFound, match="has expired"):
        process.arrivals.get(cluster.scope, upload_id)
    process.tidy()
    assert cluster.files() == []


def test_a_discarded_upload_leaves_nothing(cluster: Processes) -> None:
    process = cluster.open("one")
    uploaded = upload(cluster, process)
    wait_for_upload(cluster, process, uploaded.id)
    process.arrivals.delete(cluster.scope, uploaded.id)
    assert (cluster.files(), db.rows("SELECT * FROM tenant_job")) == ([], [])


def test_the_store_keeps_files_that_a_job_names_and_collects_others(
    cluster: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = cluster.open("one")
    uploaded = wait_for_upload(cluster, process, upload(cluster, process).id)
    process._files.adopt(cluster.scope, cluster.blobs.receive(b"a crash before the row"))
    Wall(monkeypatch).offset = GRACE_MS + 60_000
    cluster.blobs.collect()
    assert cluster.files() == [f"blobs/{uploaded.job.place}"]


def test_a_job_whose_file_is_missing_says_so(cluster: Processes) -> None:
    process = cluster.open("one")
    uploaded = wait_for_upload(cluster, process, upload(cluster, process).id)
    cluster.world.places.delete(uploaded.job.place)
    process.arrivals.write(cluster.scope, uploaded.id, request("copied"))
    failed = wait_for_upload(cluster, process, uploaded.id).job
    assert failed.problem is not None
    assert "is not stored here any more" in failed.problem.message


def test_a_restored_appliance_has_no_jobs(cluster: Processes, tmp_path: Path) -> None:
    there = cluster.open("two")
    sealed = there.runner.seal(cluster.scope, "wrk_1", CANARY)
    hang(cluster, NewJob(records.EXPORT, "wrk_1", {"encrypted": True}, sealed))
    hang(cluster, NewJob(records.RESET))
    cluster.world.backup(tmp_path / "a.gosb")
    db.close_database()
    target = make_world(tmp_path / "target")
    restore(tmp_path / "a.gosb", target)
    with target.opened():
        assert db.rows("SELECT * FROM tenant_job") == []
        assert collections(cluster.scope) == ["lines", "orders"]
