"""A reset of a tenant is continued by another process when its own is gone, and is done once."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from appliance.backups.jobs import RESET, NewJob, records
from appliance.blobs import ReceivedFile, quota
from appliance.core.database import db
from appliance.core.errors import Conflict, ScopeMissing, StorageFull
from appliance.core.leases import LeaseLost
from appliance.core.scope import TenantScope
from appliance.datapool import service as datapool
from appliance.solutions import SolutionServices, reset_jobs, resetting, write_zip
from appliance.tenants import quota_settings
from tests.backups.job_processes import Processes, collections, hang, kill, open_processes, wait_for
from tests.processes.world import wait_until

FILES = {"solution.yaml": b"name: wanted\n", "collections/parts.yaml": b"name: parts\nfields:\n  - {name: number, type: text}\n"}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Processes]:
    with open_processes(tmp_path / "data") as processes:
        yield processes


def archive(cluster: Processes) -> ReceivedFile:
    return cluster.blobs.receive(write_zip(FILES))


def count_resets(scope: TenantScope) -> int:
    sql = "SELECT count(*) FROM audit_entry WHERE tenant_id = ? AND action = 'tenant.reset'"
    return int(db.rows(sql, (scope.tenant_id,))[0][0])


def test_a_reset_of_a_process_that_died_is_made_by_another(cluster: Processes) -> None:
    here, there = cluster.open("one"), cluster.open("two")
    here.runner.submit = lambda claim: None  # type: ignore[method-assign]  # it dies before it begins
    here.resets.start(cluster.scope, archive(cluster))
    with pytest.raises(Conflict, match="already running"):
        there.resets.start(cluster.scope, archive(cluster))
    assert cluster.files() == [], "an archive is in the row of its job"
    kill(cluster, there, "one")
    done = wait_for(lambda: there.resets.latest(cluster.scope))
    assert (done.state, done.result["deleted"] > 0, done.result["failed"]) == ("done", True, {})
    assert (collections(cluster.scope), count_resets(cluster.scope), cluster.files()) == (["parts"], 1, [])


def test_a_reset_beyond_the_storage_quota_is_not_begun(cluster: Processes) -> None:
    process, scope = cluster.open("one"), cluster.scope
    skill = b"---\nname: counting\ndescription: Counts.\n---\n" + b"Count to ten.\n" * 5_000
    files = {**FILES, "SKILLS/counting/SKILL.md": skill}
    used = quota.used_bytes(scope)
    quota_settings.change_quotas(scope, {"storage": f"{used + len(skill) - 1}B"})
    before = collections(scope)
    with pytest.raises(StorageFull) as refused:
        process.resets.start(scope, cluster.blobs.receive(write_zip(files)))
    assert refused.value.extra is not None
    assert {name: refused.value.extra[name] for name in ("quota", "needed", "used")} == {
        "quota": "storage", "needed": len(skill), "used": used,
    }  # fmt: skip
    assert f"gos tenant quota {scope.tenant_id} storage=" in refused.value.message
    assert (process.resets.latest(scope), collections(scope), cluster.files()) == (None, before, [])
    with pytest.raises(StorageFull):
        process.resets.reset(scope, files)
    claim = hang(cluster, NewJob(RESET, archive=write_zip(files)))  # begun when there was room
    kill(cluster, process)
    job = wait_for(lambda: process.resets.latest(scope))
    assert (claim.id, job.state, collections(scope)) == (job.id, "failed", before)
    assert job.problem is not None
    assert "of storage" in job.problem.message


def test_whoever_looks_at_a_reset_does_not_read_its_archive(cluster: Processes, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page of a reset and its command look every moment, and an archive may have megabytes."""
    process, statements = cluster.open("one"), list[str]()
    process.runner.submit = lambda claim: None  # type: ignore[method-assign]  # it does not begin
    process.resets.start(cluster.scope, archive(cluster))
    monkeypatch.setattr(db.database.obj, "query_hooks", [lambda event: statements.append(event.sql)])
    latest = process.resets.latest(cluster.scope)
    assert (latest is not None and latest.is_busy, len(statements)) == (True, 1)
    assert "archive" not in statements[0]


def test_the_row_that_each_write_of_a_reset_changes_has_no_archive(cluster: Processes) -> None:
    """SQLite writes a row as a whole."""
    process = cluster.open("one")
    process.runner.submit = lambda claim: None  # type: ignore[method-assign]  # it does not begin
    process.resets.start(cluster.scope, archive(cluster))
    assert db.rows("SELECT kind, archive IS NULL FROM tenant_job ORDER BY kind") == [("reset", 1), ("reset-solution", 0)]
    db.write(partial(records.finish, hang(cluster, NewJob(records.EXPORT)), {}))
    db.write(partial(db.execute, "UPDATE tenant_job SET expires_at = 0 WHERE kind <> 'export'"))
    assert records.delete_expired() == []
    kill(cluster, cluster.open("two"), "one")
    done = wait_for(lambda: process.resets.latest(cluster.scope))
    assert (done.state, collections(cluster.scope)) == ("done", ["parts"])
    assert db.rows("SELECT kind FROM tenant_job ORDER BY kind") == [("export",), ("reset",)]


@pytest.mark.parametrize("missing", ["keys.write", "solutions.apply"])
def test_a_reset_needs_more_than_the_scopes_of_its_solution(cluster: Processes, missing: str) -> None:
    scope = replace(cluster.scope, scopes=cluster.scope.scopes - {missing})
    with pytest.raises(ScopeMissing, match=missing):
        cluster.open("one").resets.start(scope, None)
    assert records.list_jobs(scope, records.RESET) == []


def test_a_reset_whose_process_died_after_its_write_is_not_written_again(
    cluster: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = cluster.open("one"), cluster.open("two")

    def die(*_: object) -> None:
        raise LeaseLost("as if the process had died: nothing more is recorded")

    monkeypatch.setattr(reset_jobs, "publish_reset", die)
    here.resets.start(cluster.scope, archive(cluster))
    wait_until(lambda: not here.runner._active)
    datapool.create_collection(cluster.scope, {"name": "later", "fields": [{"name": "a", "type": "text"}]})
    monkeypatch.setattr(reset_jobs, "publish_reset", resetting.publish_reset)
    kill(cluster, there, "one")
    done = wait_for(lambda: there.resets.latest(cluster.scope))
    assert (done.state, done.result["deleted"] > 0) == ("done", True)
    assert (collections(cluster.scope), count_resets(cluster.scope), cluster.files()) == (["later", "parts"], 1, [])


def test_a_reset_that_fails_after_its_write_is_done(cluster: Processes, monkeypatch: pytest.MonkeyPatch) -> None:
    process = cluster.open("one")

    def fail(scope: TenantScope, tools: SolutionServices, written: resetting.WrittenReset) -> None:
        raise Conflict("it cannot be published now")

    monkeypatch.setattr(reset_jobs, "publish_reset", fail)
    process.resets.start(cluster.scope, archive(cluster))
    done = wait_for(lambda: process.resets.latest(cluster.scope))
    assert (done.state, done.problem, collections(cluster.scope)) == ("done", None, ["parts"])


def test_a_reset_by_a_process_that_lost_it_is_undone(cluster: Processes, monkeypatch: pytest.MonkeyPatch) -> None:
    here = cluster.open("one")
    cluster.alive.add("two")
    save = records.save_progress

    def save_and_lose(*progress: object) -> None:
        save(*progress)  # type: ignore[arg-type]
        db.execute("UPDATE tenant_job SET fence = fence + 1, owner = 'two'")

    monkeypatch.setattr(records, "save_progress", save_and_lose)
    here.resets.start(cluster.scope, None)
    wait_until(lambda: not here.runner._active)
    assert (collections(cluster.scope), count_resets(cluster.scope)) == (["lines", "orders"], 0)


def test_a_reset_does_not_tell_the_result_of_another_one(cluster: Processes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another one may begin as soon as it has ended, before whoever waits for it looks again."""
    process = cluster.open("one")
    run = process.runner._run

    def run_and_begin_another(claim: records.Claim) -> None:
        monkeypatch.setattr(process.runner, "_run", run)
        run(claim)
        hang(cluster, NewJob(records.RESET))

    monkeypatch.setattr(process.runner, "_run", run_and_begin_another)
    with pytest.raises(Conflict, match="this reset has ended, and another one has begun"):
        process.resets.reset(cluster.scope, FILES)
