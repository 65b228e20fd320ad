"""Each run selects a part of the long matrices, the same for the same seed; `--all` runs them completely."""

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from tests import matrices
from tests.matrices import LONG_SECONDS, file_of, left_out, left_out_long, read_long_tests, select_long_tests

ROOT = Path(__file__).parents[2]
HOSTILE = "tests/sandbox/hostile/test_javascript.py"


@dataclass
class Script:
    kind: str


@dataclass
class Call:
    params: dict[str, Any]


@dataclass
class Item:
    """A collected test with its parameters."""

    nodeid: str
    callspec: Call
    originalname: str = field(init=False)
    path: Path = field(init=False)

    def __post_init__(self) -> None:
        self.path = Path(self.nodeid.partition("::")[0])
        self.originalname = self.nodeid.partition("::")[2].partition("[")[0]


def make_item(database: str, test: str) -> Item:
    return Item(f"{test}[{database}]", Call({"store_url": database}))


def skipped(items: list[Any], seed: str = "a") -> set[str]:
    return left_out(items, seed)


def test_postgresql_runs_beside_sqlite_only_where_it_may_differ_most() -> None:
    twice = [make_item(each, "tests/monitor/test_alerts.py::test_x") for each in ("sqlite", "postgresql")]
    alone = make_item("postgresql", "tests/monitor/test_alerts.py::test_y")
    required = [
        make_item(each, f"{test}::test_x")
        for each in ("sqlite", "postgresql")
        for test in ("tests/datapool/test_batch.py", "tests/governance/test_crash.py")
    ]
    assert skipped([*twice, alone, *required]) == {twice[1].nodeid}


def test_a_seed_selects_the_same_scripts_and_some_of_each_kind() -> None:
    scripts = [
        Item(f"{HOSTILE}::test_hostile_javascript[{kind}: {number}]", Call({"script": Script(kind)}))
        for kind, count in (("memory", 30), ("time", 11))
        for number in range(count)
    ]
    samples = [{script.nodeid for script in scripts} - skipped(scripts, seed) for seed in ("a", "a", "b")]
    assert samples[0] == samples[1] != samples[2]
    assert [sum(kind in name for name in each) for kind in ("memory", "time") for each in samples] == [3, 3, 3, 2, 2, 2]


def test_a_run_of_everything_has_the_long_tests_of_one_file_in_six_and_all_others(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = {f"tests/test_{number}.py::test_{each}" for number in range(12) for each in "xy"}
    monkeypatch.setattr(matrices, "read_long_tests", lambda: slow)
    quick = {f"tests/test_{number}.py::test_z" for number in range(13)}
    names = {f"{each}[{number}]" for each in slow | quick for number in range(3)}
    samples = [names - left_out_long(names, seed) for seed in ("a", "a", "b")]
    assert samples[0] == samples[1] != samples[2]
    for chosen in samples:
        assert chosen >= {each for each in names if "test_z" in each}
        by_file = Counter(file_of(each) for each in chosen if "test_z" not in each)
        assert list(by_file.values()) == [6, 6]


def test_long_tests_are_recorded_except_those_that_always_run() -> None:
    name = "tests/{}.py::test_x".format
    seconds = {name("core/test_ids"): LONG_SECONDS, name("core/test_a"): LONG_SECONDS - 0.1, name("journeys/test_b"): 60.0}
    assert select_long_tests(seconds) == [name("core/test_ids")]


def test_a_complete_run_is_recorded_and_an_interrupted_one_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matrices, "LONG_TESTS", tmp_path / "long.txt")
    recorder = matrices.LongTestsRecorder()
    phases = (("core/a.py::x[1]", "call", 1.0), ("core/a.py::x[2]", "setup", 0.5), ("core/a.py::y", "call", 1.0))
    for nodeid, phase, seconds in phases:
        report = pytest.TestReport(nodeid, ("", 0, ""), {}, "passed", None, cast(Any, phase), duration=seconds)
        recorder.pytest_runtest_logreport(report)
    recorder.pytest_sessionfinish(pytest.ExitCode.INTERRUPTED)
    assert not (tmp_path / "long.txt").exists()
    recorder.pytest_sessionfinish(pytest.ExitCode.TESTS_FAILED)
    assert (tmp_path / "long.txt").read_text() == "core/a.py::x\n"


def test_each_recorded_long_test_exists() -> None:
    inherited = (ROOT / "appliance/connectors/testing.py").read_text("utf-8")
    missing = set()
    for name in read_long_tests():
        file, function = ROOT / name.partition("::")[0], name.rpartition("::")[2]
        if not file.exists() or f"def {function}(" not in file.read_text("utf-8") + inherited:
            missing.add(name)
    assert missing == set(), "delete these names, or record them anew with --all --record-long-tests"


class CollectedNames:
    """Records the names of collected tests."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.names = [item.nodeid for item in session.items]


def collect(*options: str) -> list[str]:
    """The tests that pytest would run, collected in this process, where the modules are already loaded."""
    names = CollectedNames()
    assert pytest.main(["--collect-only", "-q", "-p", "no:cacheprovider", "--rootdir", str(ROOT), *options], plugins=[names]) == 0
    return names.names


def test_all_or_chosen_tests_run_when_requested(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    whole, sample = collect("--all", HOSTILE), collect(HOSTILE, "--seed=a")
    assert set(sample) < set(whole)
    chosen = [name for name in whole if name not in sample][:20]
    assert collect(*chosen, "--seed=a") == chosen
