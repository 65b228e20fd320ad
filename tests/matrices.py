"""Selects the tests that a run skips without `--all`: parts of the long matrices that CONTRIBUTING.md lists."""

import math
import random
import subprocess
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import pytest

# Tests that run on both databases in each run; all others run on PostgreSQL with --all only.
BOTH_DATABASES = (
    "tests/store/", "tests/core/", "tests/datapool/", "tests/processes/", "tests/chaos/", "tests/quotas/", "tests/master_key/",
)
HOSTILE = ("test_hostile_javascript", "test_hostile_php")
KILLS = "test_a_kill_at_any_statement_leaves_a_whole_state"
LONG = ("test_the_second_before_a_deletion_is_restored_by_postgresql",)
ONE_OF = 10


def commit() -> str:
    """The current commit, as the default seed; `unversioned` outside a repository."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short=12", "HEAD"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unversioned"


def left_out(items: Iterable[pytest.Item], seed: str) -> set[str]:
    """The ids of the tests that only `--all` runs; the same for the same seed."""
    names = {item.nodeid for item in items}
    duplicates = {item.nodeid for item in items if _is_duplicate(item, names) or getattr(item, "originalname", "") in LONG}
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


def sample(names: list[str], seed: str) -> set[str]:
    """One in ten of the names, at least one; the same for the same seed."""
    return set(random.Random(seed).sample(sorted(names), math.ceil(len(names) / ONE_OF)))  # noqa: S311  # no secret


def _is_duplicate(item: pytest.Item, names: set[str]) -> bool:
    """Whether the test runs on PostgreSQL and the same test on SQLite is enough."""
    call = getattr(item, "callspec", None)
    if call is None or call.params.get("store_url") != "postgresql":
        return False
    runs_on_both = item.nodeid.startswith(BOTH_DATABASES) or "crash" in item.path.name
    return not runs_on_both and item.nodeid.replace("postgresql", "sqlite") in names
