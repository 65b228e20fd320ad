"""Nothing that was acknowledged is lost in a power cut; without a defence, something is."""

import argparse

import pytest

from .full_disk import run_batch as fill_disk
from .power_cuts import run_batch

pytestmark = pytest.mark.chaos
FAILURES = ("losses", "damage", "unfinished", "problems")


def cut(control: str, database: str = "", cuts: int = 40) -> dict[str, object]:
    return run_batch(argparse.Namespace(seed=7, database=database, control=control, cuts=cuts))


@pytest.mark.parametrize("database", ["", "postgresql"])
def test_power_cuts_lose_nothing(database: str) -> None:
    report = cut("none", database)
    assert not [report[name] for name in FAILURES if report[name]]
    assert report["cuts"] == 40
    assert report["checked"]


@pytest.mark.parametrize(("control", "database"), [("syncs", ""), ("folders", ""), ("commits", "postgresql")])
def test_without_a_defence_power_cuts_lose_something(control: str, database: str) -> None:
    assert cut(control, database)["losses"]


@pytest.mark.parametrize("database", ["", "tables", "server"])
def test_a_full_disk_loses_nothing(database: str) -> None:
    report = fill_disk(7, database, "none", 2)
    assert report.holds, report
    assert report.rounds == 2


@pytest.mark.parametrize("control", ["full", "room"])
def test_without_a_defence_a_full_disk_is_noticed(control: str) -> None:
    assert not fill_disk(7, "", control, 2).holds
