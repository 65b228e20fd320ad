"""What a run leaves out unless it is given `--all`: the long matrices that CONTRIBUTING.md lists."""

import math
import random
import subprocess
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import pytest

# Where every test runs on both databases in each run; elsewhere PostgreSQL is for --all.
BOTH_DATABASES = ("tests/store/", "tests/core/", "tests/datapool/", "tests/processes/", "tests/chaos/")
HOSTILE = ("test_hostile_javascript", "test_hostile_php")
ONE_OF = 10


def commit() -> str:
    """The commit that the tests are of, as their seed; `unversioned` outside a repository."""
    asked = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short=12", "HEAD"]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unversioned"


def left_out(items: Iterable[pytest.Item], seed: str) -> set[str]:
    """The ids of the tests that only `--all` runs; the same for the same seed."""
    names = {item.nodeid for item in items}
    doubles = {item.nodeid for item in items if _is_double(item, names)}
    scripts = defaultdict(list)
    for item in items:
        if getattr(item, "originalname", "") in HOSTILE:
            scripts[item.originalname, item.callspec.params["script"].kind].append(item.nodeid)  # type: ignore[attr-defined]
    return doubles.union(*(set(each) - sample(each, f"{seed} {group}") for group, each in scripts.items()))


def sample(names: list[str], seed: str) -> set[str]:
    """One in ten of them, and one at least; the same for the same seed."""
    return set(random.Random(seed).sample(sorted(names), math.ceil(len(names) / ONE_OF)))  # noqa: S311  # no secret


def _is_double(item: pytest.Item, names: set[str]) -> bool:
    """Whether it is a test on PostgreSQL whose twin on SQLite runs."""
    call = getattr(item, "callspec", None)
    if call is None or call.params.get("store_url") != "postgresql":
        return False
    kept = item.nodeid.startswith(BOTH_DATABASES) or "crash" in item.path.name
    return not kept and item.nodeid.replace("postgresql", "sqlite") in names
