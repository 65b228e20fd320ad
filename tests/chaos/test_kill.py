"""Whatever is killed, and whenever: nothing accepted is lost, nothing is done twice; the controls prove that the test can fail."""

from pathlib import Path

import pytest

from tests.store.cluster import Cluster

from .harness import run_chaos
from .mix import MARKS_PER_RUN
from .restarts import run_restarts


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest) -> str:
    """The URL of a server's database; empty for SQLite."""
    if request.param == "sqlite":
        return ""
    cluster: Cluster = request.getfixturevalue("cluster")
    return cluster.make_database()


def test_nothing_is_lost_or_done_twice_when_everything_is_killed(tmp_path: Path, database: str) -> None:
    report = run_chaos(tmp_path, rounds=2, count=60, seed=7, database=database)
    assert (report.lost, report.duplicated, report.missing) == ([], [], [])
    assert (report.accepted, report.answered) == (120, 30)


@pytest.mark.chaos
def test_twenty_rounds_of_two_hundred(tmp_path: Path, database: str) -> None:
    report = run_chaos(tmp_path, rounds=20, count=200, seed=1, database=database)
    assert (report.lost, report.duplicated, report.missing) == ([], [], [])
    assert (report.accepted, report.answered) == (4000, 1000)
    assert report.reclaimed > 0, "no execution was ever interrupted: the kills came at the wrong time"


@pytest.mark.chaos
@pytest.mark.parametrize("control", ["fence", "sweeper"])
def test_without_a_defence_the_same_run_fails(tmp_path: Path, control: str, database: str) -> None:
    report = run_chaos(tmp_path, control=control, rounds=20, count=200, seed=1, database=database)
    assert report.lost or report.duplicated, f"removing the {control} was not noticed"


@pytest.mark.chaos
def test_two_servers_and_two_workers_settle_executions_soon_after_kills(tmp_path: Path, cluster: Cluster) -> None:
    report = run_restarts(tmp_path, cluster, {"kills": 4}, seed=1, count=400, rate=4)
    print(f"settled {report.settled_s} s after the last acceptance; of the dead for {report.recovery_s} s")
    assert (report.duplicated, report.missing, report.marks) == ([], [], 400 * MARKS_PER_RUN)
    assert report.settled_s is not None, report.unsettled
    assert report.settled_s < 60
    assert max(report.recovery_s) < 2


@pytest.mark.chaos
def test_nothing_is_lost_when_connections_are_cut_and_postgresql_crashes(tmp_path: Path, cluster: Cluster) -> None:
    report = run_restarts(tmp_path, cluster, {"kills": 3, "cuts": 6, "outages": 1}, seed=2, count=300)
    assert (report.duplicated, report.missing, report.marks) == ([], [], 300 * MARKS_PER_RUN)
    assert report.settled_s is not None, report.unsettled
    assert (report.kills, report.cuts, report.outages) == (3, 6, 1)
