"""The runs that two sequences share: as many items as there can be, in order, and never more steps than were given."""

import random

import pytest

from appliance.processes.definitions.sequence_diff import Match, WorkBudget, find_matches


def most_in_common(old: str, new: str) -> int:
    """By the plain table of all beginnings."""
    row = [0] * (len(new) + 1)
    for one in old:
        before, row = row, [0]
        for index, other in enumerate(new):
            row.append(before[index] + 1 if one == other else max(before[index + 1], row[index]))
    return row[-1]


@pytest.mark.parametrize("seed", range(20))
def test_the_longest_common_runs_are_found_in_order(seed: int) -> None:
    rng = random.Random(seed)  # noqa: S311  # the same in every run
    for _ in range(100):
        old, new = ("".join(rng.choices("abc", k=rng.randrange(12))) for _ in range(2))
        runs, is_all = find_matches(old, new, WorkBudget(10_000), 10_000)
        assert is_all
        assert [old[run.old : run.old + run.size] for run in runs] == [new[run.new : run.new + run.size] for run in runs]
        ends = [(0, 0), *((run.old + run.size, run.new + run.size) for run in runs)]
        assert all(run.old >= i and run.new >= j for run, (i, j) in zip(runs, ends, strict=False))
        assert sum(run.size for run in runs) == most_in_common(old, new)


def test_without_enough_work_budget_only_the_ends_are_found() -> None:
    work = WorkBudget(100)
    assert find_matches("a" + "bc" * 50 + "z", "a" + "cd" * 60 + "z", work, 60) == ([Match(0, 0, 1), Match(101, 121, 1)], False)
    assert work.remaining == 40
