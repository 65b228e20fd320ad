"""A crash at any write of an execution whose step runs an agent: one run for each attempt, no effect twice, none lost."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agents.stepping import STEP, Stepping, open_stepping
from tests.agents.world import ALLOW, ASK, TAINTED, book, calls, mark, says
from tests.processes.host.test_journal import MOST_WRITES, PowerCut, When, power_cut


@pytest.fixture
def stepping(tmp_path: Path) -> Iterator[Stepping]:
    with open_stepping(tmp_path) as opened:
        yield opened


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_crash_at_any_write_starts_one_run_and_loses_none(stepping: Stepping, when: When) -> None:
    turns = [calls(mark("first")), calls(book(amount=1)), says("done")]
    stepping.world.make(*turns, rules=[{**ASK, "operations": ["set"]}, ALLOW, TAINTED])
    process_id = stepping.publish(STEP, {"id": "after", "rule": {"expression": "= steps.triage"}})
    for number in (*range(1, 9 if when == "before" else 1), *range(9, MOST_WRITES, 4)):  # the run is begun in the first ones
        stepping.wipe()
        execution_id, cut = stepping.begin(process_id), False
        try:
            with power_cut(number, when):
                row = stepping.finish(execution_id)
        except PowerCut:
            cut = True
            stepping.restart()
            row = stepping.finish(execution_id)
        assert (row.status, row.output) == ("succeeded", "done"), (number, row.error)
        assert [run.status for run in stepping.runs(execution_id)] == ["succeeded"], number
        assert stepping.world.marks() == ["first"], number
        assert len({key for _, key, _ in stepping.world.booked()}) == 1, number
        if not cut:
            break
    assert 10 < number < MOST_WRITES
