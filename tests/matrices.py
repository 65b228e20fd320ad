"""Selects the tests that a run skips without `--all`: parts of the long matrices that CONTRIBUTING.md lists."""

import math
import random
import subprocess
from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

import pytest

# Tests that run on both databases in each run; all others run on PostgreSQL with --all only.
BOTH_DATABASES = (
    "tests/store/", "tests/core/", "tests/datapool/", "tests/processes/", "tests/chaos/", "tests/quotas/", "tests/master_key/",
)
HOSTILE = ("test_hostile_javascript", "test_hostile_php")
KILLS = "test_a_kill_at_any_statement_leaves_a_whole_state"
ONLY_WITH_ALL = (
    "test_the_second_before_a_deletion_is_restored_by_postgresql",
    "test_a_reset_that_was_under_way_is_restored_by_postgresql_and_completed",
)
ONE_OF = 10

LONG_TESTS = Path(__file__).parent / "long_tests.txt"
LONG_SECONDS, ONE_OF_LONG = 1.25, 6
COMMANDS = "tests/architecture/test_pages.py::test_the_commands_of_a_page_work"
# Journeys, attacks, the contract, the cost of requests and the rules of the house are tested by each run, however long that takes.
ALWAYS = ("tests/journeys/", "tests/redteam/", "tests/api/", "tests/bench/", "tests/architecture/")


def commit() -> str:
    """The current commit, as the default seed; `unversioned` outside a repository."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short=12", "HEAD"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unversioned"


def left_out(items: Iterable[pytest.Item], seed: str) -> set[str]:
    """The ids of the tests that only `--all` runs; the same for the same seed."""
    names = {item.nodeid for item in items}
    duplicates = {item.nodeid for item in items if _is_duplicate(item, names) or getattr(item, "originalname", "") in ONLY_WITH_ALL}
    scripts = defaultdict(list)
    for item in items:
        if getattr(item, "originalname", "") in HOSTILE:
            scripts[item.originalname, item.callspec.params["script"].kind].append(item.nodeid)  # type: ignore[attr-defined]
        elif getattr(item, "originalname", "") == KILLS:
            params = item.callspec.params  # type: ignore[attr-defined]
            scripts[KILLS, f"{params['name']} {params['moment']}"].append(item.nodeid)
    chosen = {group: sample(each, f"{seed} {group}") for group, each in scripts.items()}
    chosen |= {group: {min(each)} for group, each in chosen.items() if group[0] == KILLS}  # each part has a twentieth of all kills
    return duplicates.union(*(set(each) - chosen[group] for group, each in scripts.items()))


def left_out_long(names: Iterable[str], seed: str) -> set[str]:
    """The long tests among these that a run of everything leaves out: of a file all or none, as one may need what another did."""
    long_ones = [name for name in names if function_of(name) in read_long_tests()]
    chosen = sample(list({file_of(name) for name in long_ones}), seed, ONE_OF_LONG)
    return {name for name in long_ones if file_of(name) not in chosen}


def sample(names: list[str], seed: str, one_of: int = ONE_OF) -> set[str]:
    """One in so many of the names, at least one; the same for the same seed."""
    return set(random.Random(seed).sample(sorted(names), math.ceil(len(names) / one_of)))  # noqa: S311  # no secret


def file_of(nodeid: str) -> str:
    """The file of a test."""
    return nodeid.partition("::")[0]


def function_of(nodeid: str) -> str:
    """The id of a test without its parameters."""
    return nodeid.partition("[")[0]


@cache
def read_long_tests() -> frozenset[str]:
    """The functions of which each run has a part of the tests."""
    return frozenset(LONG_TESTS.read_text("utf-8").splitlines())


class LongTestsRecorder:
    """A plugin of pytest: records which functions' tests take LONG_SECONDS or more together."""

    def __init__(self) -> None:
        self._seconds: defaultdict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[function_of(report.nodeid)] += report.duration

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        """Not after a run that was interrupted."""
        if exitstatus not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
            return
        LONG_TESTS.write_text("".join(f"{name}\n" for name in sorted(select_long_tests(self._seconds))), "utf-8")


def select_long_tests(seconds: Mapping[str, float]) -> list[str]:
    """Of functions and the seconds of their tests, those of which each run shall have a part."""
    return [
        name for name, each in seconds.items() if each >= LONG_SECONDS and (name == COMMANDS or not name.startswith(ALWAYS))
    ]


def _is_duplicate(item: pytest.Item, names: set[str]) -> bool:
    """Whether the test runs on PostgreSQL and the same test on SQLite is enough."""
    call = getattr(item, "callspec", None)
    if call is None or call.params.get("store_url") != "postgresql":
        return False
    runs_on_both = item.nodeid.startswith(BOTH_DATABASES) or "crash" in item.path.name
    return not runs_on_both and item.nodeid.replace("postgresql", "sqlite") in names
