"""The cursor over changed records: none is left out, whatever changed together or late."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from gos_connector_business.changes import OVERLAP_S, PAGE, Change, poll_changes

from appliance.connectors.contract import SystemFailure

START = datetime(2026, 11, 21, 10, tzinfo=UTC)


class Table:
    """Records with the second and the fraction they were changed at; only the second is told."""

    def __init__(self) -> None:
        self.rows: dict[int, tuple[int, float]] = {}

    def newest(self) -> Change | None:
        found = sorted(self.rows, key=lambda number: (self.rows[number], number))
        return self._change(found[-1]) if found else None

    def same(self, at: datetime, after: int | str | None, limit: int) -> list[Change]:
        second = (at - START).total_seconds()
        return [self._change(each) for each in sorted(self.rows) if self.rows[each][0] == second and each > int(after or 0)][:limit]

    def later(self, at: datetime | None, limit: int) -> list[Change]:
        second = -1 if at is None else (at - START).total_seconds()
        found = sorted((each for each in self.rows if self.rows[each][0] > second), key=lambda each: self.rows[each])
        return [self._change(each) for each in found][:limit]

    def _change(self, number: int) -> Change:
        return Change(START + timedelta(seconds=self.rows[number][0]), number, {"n": number})


class Poller:
    """Polls as the appliance does: the cursor goes through JSON, and `more` asks again at once."""

    def __init__(self, table: Table, begin: str = "start") -> None:
        self.table, self.query, self.cursor, self.clock = table, {"begin": begin}, None, 0.0
        self.seen: dict[str, Any] = {}

    def poll(self) -> int:
        """How many items had not come before; the poll goes on until nothing more is announced."""
        before, rounds = len(self.seen), 0
        while True:
            found = poll_changes(self.table, self.query, self.cursor, lambda: self.clock)
            self.cursor = json.loads(json.dumps(found.cursor))
            self.seen.update({item.key: item.data for item in found.items})
            rounds += 1
            assert rounds < 50
            assert found.items or not found.more
            if not found.more:
                return len(self.seen) - before


def test_everything_comes_once_and_then_what_changes() -> None:
    table = Table()
    table.rows = {number: (number, 0.0) for number in range(1, 3 * PAGE + 5)}
    poller = Poller(table)
    assert poller.poll() == 3 * PAGE + 4
    assert poller.poll() == 0
    table.rows[7] = (5000, 0.0)
    assert poller.poll() == 1
    assert poller.seen["7@2026-11-21T11:23:20Z"] == {"id": 7, "changed_at": "2026-11-21T11:23:20Z", "record": {"n": 7}}


@pytest.mark.parametrize("bulk", [PAGE - 1, PAGE, PAGE + 1, 3 * PAGE, 3 * PAGE + 7])
def test_many_that_changed_at_one_moment_all_come(bulk: int) -> None:
    table = Table()
    # Within their second they were written in the opposite order of their ids.
    table.rows = {number: (3, 1 - number / 10_000) for number in range(10, 10 + bulk)} | {1: (1, 0.0), 2: (9, 0.0)}
    poller = Poller(table)
    assert poller.poll() == bulk + 2


def test_the_beginning_now_answers_nothing_that_was_there() -> None:
    table = Table()
    table.rows = {1: (1, 0.0), 2: (2, 0.0)}
    poller = Poller(table, "now")
    assert poller.poll() == 0
    assert poller.poll() == 0
    table.rows[3] = (3, 0.0)
    assert poller.poll() == 1
    table.rows[1] = (4, 0.0)
    assert poller.poll() == 1


def test_the_beginning_now_of_nothing_answers_the_first() -> None:
    poller = Poller(Table(), "now")
    assert poller.poll() == 0
    poller.table.rows[1] = (1, 0.0)
    assert poller.poll() == 1


def test_what_becomes_visible_late_comes_within_the_overlap() -> None:
    table = Table()
    table.rows = {1: (1000, 0.0), 5: (1100, 0.3)}
    poller = Poller(table)
    poller.poll()
    poller.clock += OVERLAP_S - 1
    table.rows |= {2: (1100 - int(OVERLAP_S) + 1, 0.0), 4: (1100, 0.1)}
    assert poller.poll() == 2


def test_a_quiet_table_is_not_read_again_for_ever() -> None:
    table = Table()
    table.rows = dict.fromkeys(range(1, 20), (10, 0.0))
    poller = Poller(table)
    poller.poll()
    assert len(poll_changes(table, poller.query, poller.cursor, lambda: OVERLAP_S / 2).items) == 19
    poller.clock = OVERLAP_S + 1
    poller.poll()
    assert poll_changes(table, poller.query, poller.cursor, lambda: poller.clock).items == []


def test_a_system_without_order_is_told_instead_of_skipped() -> None:
    class Unordered(Table):
        def later(self, at: datetime | None, limit: int) -> list[Change]:
            return super().later(at, limit)[::-1]

    table = Unordered()
    table.rows = {number: (number, 0.0) for number in range(1, PAGE + 1)}
    with pytest.raises(SystemFailure, match="order"):
        Poller(table).poll()
