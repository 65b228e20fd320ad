"""`gos upgrade` that is killed anywhere, or has no space left, leaves the former or the new database; the next run says which."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from appliance import migrations
from appliance.core.config import Config
from appliance.core.database import db
from appliance.core.errors import Conflict
from appliance.migrations import last_number
from appliance.upgrade import roll_back, upgrade
from appliance.upgrade.journal import copy_of, read_journal
from appliance.upgrade.settling import settle
from tests.backups.rehearsal.test_trials import processes_of
from tests.forking import Forked
from tests.processes.world import wait_until
from tests.upgrade.old_data import Steps, make_old_data, run_on_full_disk, run_until
from tests.upgrade.test_command import hash_of, leftovers, state_of, use
from tests.upgrade.test_upgrade import opened

OLD, NEW = 75, last_number()


@pytest.fixture(scope="module")
def states(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Any]:
    """The state of the former database, and that of the new one."""
    config = make_old_data(tmp_path_factory.mktemp("states") / "data")
    former = state_of(config)
    upgrade(config, Steps().options())
    return {OLD: former, NEW: state_of(config)}


def kill(config: Config, words: list[str], place: str, number: int) -> None:
    log = config.data.parent / "log"
    code = Forked(run_until, str(config.data), words, place, number, log=log).wait(120)
    assert code == -9, log.read_text()


def number_of(config: Config, states: dict[int, Any]) -> int:
    """The last migration of the database, whose whole state is that of before or of after the upgrade."""
    state = state_of(config)
    number = NEW if state[0][-1] == NEW else OLD
    assert state == states[number]
    return number


# -- the saves of the journal: preparing, copy, 4 steps, swapping, done, and the step of the swap

BEFORE_SWAP = [*(("save", number) for number in (0, 1, 4, 6)), ("saved", 6), *(("statement", number) for number in (0, 15, 60))]

REPEATED = [("save", 1), ("save", 4), ("statement", 15)]
"""The kills after which the upgrade is repeated, which takes its time."""


@pytest.mark.parametrize(("place", "number"), BEFORE_SWAP)
def test_a_kill_before_the_end_of_the_swap_leaves_the_former_database(
    tmp_path: Path, states: dict[int, Any], place: str, number: int
) -> None:
    config = make_old_data(tmp_path / "data")
    before = hash_of(config)
    kill(config, [], place, number)
    if place == "save":
        assert hash_of(config) == before
    assert number_of(config, states) == OLD
    steps = Steps()
    if (place, number) not in REPEATED:
        settle(config, steps.report)
        assert steps.names() == ([] if (place, number) == ("save", 0) else ["settle"])
        assert not copy_of(config.data).exists() or place == "statement" or number >= 6
        return
    assert upgrade(config, steps.options()).is_changed
    assert steps[0] == ("settle", "the last upgrade ended before it changed the database, which is the former one")
    assert number_of(config, states) == NEW
    assert leftovers(config) == ["before.db", "journal.json", "lock"]


def test_a_kill_while_this_release_starts_on_the_copy_leaves_no_process(tmp_path: Path, states: dict[int, Any]) -> None:
    config = make_old_data(tmp_path / "data")
    before, rehearsals = hash_of(config), config.data / "rehearsals"
    process = Forked(run_until, str(config.data), [], "save", 1000, log=tmp_path / "log")
    wait_until(lambda: bool(list(rehearsals.glob("*/serve.log")) and processes_of(rehearsals)), seconds=120)
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait(60) == -signal.SIGKILL
    wait_until(lambda: processes_of(rehearsals) == [], seconds=60)
    assert hash_of(config) == before
    assert upgrade(config, Steps().options()).is_changed
    assert number_of(config, states) == NEW
    assert leftovers(config) == ["before.db", "journal.json", "lock"]


@pytest.mark.parametrize(("place", "number"), [("save", 7), ("saved", 7), ("saved", 8)])
def test_a_kill_after_the_swap_leaves_the_new_database(tmp_path: Path, states: dict[int, Any], place: str, number: int) -> None:
    config, steps = make_old_data(tmp_path / "data"), Steps()
    kill(config, [], place, number)
    assert number_of(config, states) == NEW
    assert not upgrade(config, steps.options()).is_changed
    assert ("settle" in steps.names()) == (place == "save")
    assert roll_back(config, steps.report, lose_changes=False).state == "rolled_back"
    assert number_of(config, states) == OLD


@pytest.mark.parametrize(("place", "number", "left"), [
    ("saved", 0, NEW), ("page", 20, NEW), ("save", 1, OLD), ("saved", 1, OLD),
])  # fmt: skip
def test_a_killed_roll_back_leaves_either(tmp_path: Path, states: dict[int, Any], place: str, number: int, left: int) -> None:
    config, steps = make_old_data(tmp_path / "data"), Steps()
    upgrade(config, steps.options())
    kill(config, ["--roll-back"], place, number)
    assert number_of(config, states) == left
    if left == NEW:
        roll_back(config, steps.report, lose_changes=False)
    else:
        upgrade(config, steps.options())
    assert number_of(config, states) == (OLD if left == NEW else NEW)


@pytest.mark.parametrize(("place", "number"), [("saved", 0), ("page", 20), ("save", 1)])
def test_what_was_written_after_a_killed_roll_back_needs_a_flag(
    tmp_path: Path, states: dict[int, Any], place: str, number: int
) -> None:
    """Whether this release was started on the new database or, which migrates it again, on the former one."""
    config, steps = make_old_data(tmp_path / "data"), Steps()
    upgrade(config, steps.options())
    kill(config, ["--roll-back"], place, number)
    with opened(config.database_url):
        migrations.migrate()
    use(config)
    with pytest.raises(Conflict, match="Add --lose-changes"):
        roll_back(config, steps.report, lose_changes=False)
    with opened(config.database_url):
        assert ("later",) in db.rows("SELECT id FROM tenant")
    roll_back(config, steps.report, lose_changes=True)
    assert number_of(config, states) == OLD


@pytest.mark.parametrize("state", ["preparing", "swapping"])
def test_a_disk_that_becomes_full_changes_nothing(tmp_path: Path, states: dict[int, Any], state: str) -> None:
    config, log = make_old_data(tmp_path / "data"), tmp_path / "log"
    before = hash_of(config)
    assert Forked(run_on_full_disk, str(config.data), state, 300_000, log=log).wait(120) == 1
    assert "the disk is full" in log.read_text()
    assert number_of(config, states) == OLD
    if state == "preparing":
        assert (hash_of(config), copy_of(config.data).exists()) == (before, False)
    journal = read_journal(config.data)
    assert journal is not None
    assert journal.state == "failed"
    assert upgrade(config, Steps().options()).is_changed
    assert number_of(config, states) == NEW
