"""The cursor over changed records misses none, even when many change at once or appear late."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from gos_connector_business.changes import OVERLAP_S, PAGE, Change, poll_changes

from appliance.connectors.contract import SystemFailure

START = datetime(2026, 11, 21, 10, tzinfo=UTC)


class Table:
    """Records with the second and the fraction of their last change, of which only the second is reported."""

    def __init__(self) -> None:
        self.rows: dict[int, tuple[int, float]] = {}

    def find_newest(self) -> Change | None:
        numbers = sorted(self.rows, key=lambda number: (self.rows[number], number))
        return self._to_change(numbers[-1]) if numbers else None

    def list_at(self, at: datetime, after: int | str | None, limit: int) -> list[Change]:
        second = (at - START).total_seconds()
        numbers = [each for each in sorted(self.rows) if self.rows[each][0] == second and each > int(after or 0)]
        return [self._to_change(each) for each in numbers][:limit]

    def list_after(self, at: datetime | None, limit: int) -> list[Change]:
        second = -1 if at is None else (at - START).total_seconds()
        numbers = sorted((each for each in self.rows if self.rows[each][0] > second), key=lambda each: self.rows[each])
        return [self._to_change(each) for each in numbers][:limit]

    def _to_change(self, number: int) -> Change:
        return Change(START + timedelta(seconds=self.rows[number][0]), number, {"n": number})


class Poller:
    """Polls like the appliance: the cursor goes through JSON, and `more` is followed by another poll at once."""

    def __init__(self, table: Table, begin: str = "start") -> None:
        self.table, self.query, self.cursor, self.clock = table, {"begin": begin}, None, 0.0
        self.seen: dict[str, Any] = {}

    def poll(self) -> int:
        """Poll until `more` is false and return the number of items that are new."""
        before, rounds = len(self.seen), 0
        while True:
            polled = poll_changes(self.table, self.query, self.cursor, lambda: self.clock)
            self.cursor = json.loads(json.dumps(polled.cursor))
            self.seen.update({item.key: item.data for item in polled.items})
            rounds += 1
            assert rounds < 50
            assert polled.items or not polled.more
            if not polled.more:
                return len(self.seen) - before


def test_polls_return_every_record_once_and_then_its_changes() -> None:
    table = Table()
    table.rows = {number: (number, 0.0) for number in range(1, 3 * PAGE + 5)}
    poller = Poller(table)
    assert poller.poll() == 3 * PAGE + 4
    assert poller.poll() == 0
    table.rows[7] = (5000, 0.0)
    assert poller.poll() == 1
    assert poller.seen["7@2026-11-21T11:23:20Z"] == {"id": 7, "changed_at": "2026-11-21T11:23:20Z", "record": {"n": 7}}


@pytest.mark.parametrize("bulk", [PAGE - 1, PAGE, PAGE + 1, 3 * PAGE, 3 * PAGE + 7])
def test_all_records_changed_at_one_moment_are_returned(bulk: int) -> None:
    table = Table()
    # Within their second, the records were written in descending order of their ids.
    table.rows = {number: (3, 1 - number / 10_000) for number in range(10, 10 + bulk)} | {1: (1, 0.0), 2: (9, 0.0)}
    poller = Poller(table)
    assert poller.poll() == bulk + 2


def test_begin_now_skips_existing_records() -> None:
    table = Table()
    table.rows = {1: (1, 0.0), 2: (2, 0.0)}
    poller = Poller(table, "now")
    assert poller.poll() == 0
    assert poller.poll() == 0
    table.rows[3] = (3, 0.0)
    assert poller.poll() == 1
    table.rows[1] = (4, 0.0)
    assert poller.poll() == 1


def test_begin_now_on_an_empty_table_returns_the_first_record() -> None:
    poller = Poller(Table(), "now")
    assert poller.poll() == 0
    poller.table.rows[1] = (1, 0.0)
    assert poller.poll() == 1


def test_changes_that_appear_late_within_the_overlap_are_returned() -> None:
    table = Table()
    table.rows = {1: (1000, 0.0), 5: (1100, 0.3)}
    poller = Poller(table)
    poller.poll()
    poller.clock += OVERLAP_S - 1
    table.rows |= {2: (1100 - int(OVERLAP_S) + 1, 0.0), 4: (1100, 0.1)}
    assert poller.poll() == 2


def test_an_unchanged_table_is_not_read_again_after_the_overlap() -> None:
    table = Table()
    table.rows = dict.fromkeys(range(1, 20), (10, 0.0))
    poller = Poller(table)
    poller.poll()
    assert len(poll_changes(table, poller.query, poller.cursor, lambda: OVERLAP_S / 2).items) == 19
    poller.clock = OVERLAP_S + 1
    poller.poll()
    assert poll_changes(table, poller.query, poller.cursor, lambda: poller.clock).items == []


def test_unordered_changes_raise_system_failure() -> None:
    class Unordered(Table):
        def list_after(self, at: datetime | None, limit: int) -> list[Change]:
            return super().list_after(at, limit)[::-1]

    table = Unordered()
    table.rows = {number: (number, 0.0) for number in range(1, PAGE + 1)}
    with pytest.raises(SystemFailure, match="order"):
        Poller(table).poll()
