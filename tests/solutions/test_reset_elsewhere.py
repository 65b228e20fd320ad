"""A reset that was under way goes on where the appliance was moved, or restored to a point in time, and is completed there."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from appliance.app.parts import make_places
from appliance.backups.jobs import RESET, Claim, JobFiles, NewJob, records
from appliance.backups.moving import Move, move_installation
from appliance.core.database import db
from appliance.core.database.bulk import short_writes
from appliance.monitor import logs
from appliance.solutions import Transfers, reset_jobs, write_zip
from appliance.tenants import service
from tests.backups.conftest import World, make_world
from tests.backups.job_processes import Processes, collections, open_processes
from tests.backups.points.worlds import point_world, restore_point, shipping, wait_for_shipment
from tests.backups.test_filling import add_busy_rows
from tests.backups.test_transfer import tenant_rows
from tests.bench.filling import fill
from tests.solutions.test_reset_steps import FILES, Killed, begin, check_closed, check_complete, die_before, last, take_over, work
from tests.store.cluster import Cluster

EXECUTIONS = 25
MOMENTS = {"claimed": 1, "begun": 2, "deleting": 9, "written": -1}
"""Before which of its writes the process of a reset dies; `written` is before it publishes WebApps."""


@pytest.fixture(autouse=True)
def _slowly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(short_writes, "MOST", 50)


def fill_up(cluster: Processes) -> None:
    fill(cluster.scope, EXECUTIONS)
    add_busy_rows(cluster.scope)
    fill(service.system_scope("hooli"), 5)
    logs.index_older()


def die_at(process: Transfers, claim: Claim, monkeypatch: pytest.MonkeyPatch, moment: str) -> None:
    """Work on a reset until the process dies at this moment."""
    with monkeypatch.context() as dying:
        dying.setattr(reset_jobs, "publish_reset", lambda *_: die_before(0)(0))
        with pytest.raises(Killed):
            work(process, claim, dying, die_before(MOMENTS[moment]))
    check_moment(claim, moment)


def check_moment(claim: Claim, moment: str) -> None:
    """The reset is as far as that."""
    job = records.find_claimed(claim)
    assert service.is_being_reset("initech") == (moment in ("begun", "deleting"))
    assert (job is not None and bool(job.result)) == (moment == "written")


@contextmanager
def at(world: World, cluster: Processes) -> Iterator[Processes]:
    """The processes of the appliance at another place."""
    with world.opened() as sealer:
        there = Processes(world, sealer, cluster.scope)
        yield there
        for each in there.processes:
            each.stop()


def complete(there: Processes, monkeypatch: pytest.MonkeyPatch, moment: str, others: dict[str, list[str]]) -> None:
    """Another process takes the reset over, as it finds it at this moment, and completes it."""
    if moment in ("begun", "deleting"):
        check_closed(there)
    work(*take_over(there, "one", "two"), monkeypatch)
    assert last(there).state == "done"
    check_complete(there, others)


@pytest.mark.parametrize("store_url", ["sqlite", "postgresql"], indirect=True)
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_reset_goes_on_where_the_appliance_has_moved(
    tmp_path: Path, store_url: str, cluster: Cluster, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """From SQLite to PostgreSQL, and back."""
    url, to = ("", cluster.make_database()) if store_url.startswith("sqlite") else (store_url, "")
    with open_processes(tmp_path / "data", url) as here:
        fill_up(here)
        die_at(*begin(here), monkeypatch, moment)
        before, others = tenant_rows("initech"), tenant_rows("hooli")
    target = make_world(tmp_path / "elsewhere", to)
    move_installation(Move(here.world.config, target.config, make_places), lambda *_: None)
    with at(target, here) as there:
        assert (tenant_rows("initech"), tenant_rows("hooli")) == (before, others)
        complete(there, monkeypatch, moment, others)


def test_every_moment_of_a_reset_is_restored_and_the_reset_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before it has begun, the tenant is as before, and nothing resets it later; from then on it is reset completely."""
    place = tmp_path / "points"
    place.mkdir()
    source = point_world(tmp_path / "data", str(place))
    moments: dict[str, int] = {}
    with source.opened() as sealer:
        here = Processes(source, sealer, source.fill())
        fill_up(here)
        before, others = tenant_rows("initech"), tenant_rows("hooli")
        with shipping(source) as shipper:
            process, claim = begin(here, "p0")
            for number, moment in enumerate(MOMENTS):
                die_at(process, claim, monkeypatch, moment)
                moments[moment] = wait_for_shipment(shipper)
                process, claim = take_over(here, f"p{number}", f"p{number + 1}")
            work(process, claim, monkeypatch)
            check_complete(here, others)
            moments["done"] = wait_for_shipment(shipper)
        for each in here.processes:
            each.stop()
    for moment, at_moment in moments.items():
        target = make_world(tmp_path / moment)
        restore_point(source, target, at_moment)
        with at(target, here) as there:
            if moment == "claimed":
                assert (tenant_rows("initech"), service.is_being_reset("initech")) == (before, False)
                assert db.rows("SELECT 1 FROM tenant_job WHERE kind = ?", (RESET,)) == []
                assert collections(there.scope) == ["lines", "orders"]
                continue
            assert tenant_rows("hooli") == others
            if moment != "done":
                there.alive.add("one")
                complete(there, monkeypatch, moment, others)
            else:
                check_complete(there, others)


def test_the_file_of_a_reset_that_an_earlier_release_has_started_is_not_needed_once_it_has_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That file is in no backup, and is not moved."""
    with open_processes(tmp_path / "data") as here:
        fill_up(here)
        others, process = tenant_rows("hooli"), here.open("one")
        archive = here.blobs.receive(write_zip(FILES))
        size = archive.size
        place = JobFiles(here.world.config, here.world.places).adopt(here.scope, archive)
        job = NewJob(RESET, place=place, size=size)
        claim = db.write(partial(records.insert_running, here.scope, job, "one"))[0]
        with pytest.raises(Killed):
            work(process, claim, monkeypatch, die_before(3))
        check_moment(claim, "begun")
        here.world.places.delete(place)
        complete(here, monkeypatch, "begun", others)


def test_a_reset_whose_file_is_missing_before_it_has_begun_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_processes(tmp_path / "data") as here:
        fill_up(here)
        before, process = tenant_rows("initech"), here.open("one")
        job = NewJob(RESET, place="initech/jobs/absent", size=9)
        claim = db.write(partial(records.insert_running, here.scope, job, "one"))[0]
        process.runner._run(claim)
        assert (last(here).state, tenant_rows("initech")) == ("failed", before)
        assert "the file of this job is not stored here any more" in (problem.message if (problem := last(here).problem) else "")
