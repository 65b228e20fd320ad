"""When a file counts as new."""

import json
from typing import Any

import pytest
from gos_connector_files.declaration import MOST_WATCHED
from gos_connector_files.settling import MOST_AT_ONCE, new_files
from gos_connector_files.store import Entry, draft_of

from appliance.connectors.contract import Polled, Rejected


def entry(path: str, size: int = 1, modified: float = 1000.0) -> Entry:
    return Entry(path, "file", size, modified)


def poll(entries: list[Entry], cursor: Any, **query: Any) -> Polled:
    return new_files(entries, query, json.loads(json.dumps(cursor)))


def names(polled: Polled) -> list[str]:
    return [item.data["path"] for item in polled.items]


def test_existing_files_are_new_only_with_begin_start() -> None:
    first = poll([entry("a")], None)
    assert names(first) == names(poll([entry("a")], first.cursor)) == names(poll([entry("a")], first.cursor)) == []
    first = poll([entry("a")], None, begin="start")
    assert names(first) == []
    assert names(poll([entry("a")], first.cursor)) == ["a"]


def test_a_file_is_reported_once_when_it_stops_growing() -> None:
    polled = poll([], None)
    reported = []
    for size in (1, 5, 9, 9, 9, 9):
        polled = poll([entry("a", size)], polled.cursor)
        reported.append(names(polled))
    assert reported == [[], [], [], ["a"], [], []]


def test_a_changed_file_is_reported_again_with_a_new_key() -> None:
    polled = poll([], None)
    keys = []
    for modified in (1000, 1000, 2000, 2000):
        polled = poll([entry("a", 1, modified)], polled.cursor)
        keys += [item.key for item in polled.items]
    assert keys == ["a@1000:1", "a@2000:1"]


def test_a_deleted_file_is_forgotten_and_reported_when_it_returns() -> None:
    polled = poll([entry("a")], None)
    polled = poll([], polled.cursor)
    assert polled.cursor == {"seen": {}, "growing": {}}
    polled = poll([entry("a")], polled.cursor)
    assert names(poll([entry("a")], polled.cursor)) == ["a"]


def test_matching_files_are_reported_oldest_first() -> None:
    entries = [entry("b.csv", 1, 2000), entry("a.csv", 1, 3000), entry("c.txt"), Entry("d.csv", "folder")]
    first = poll(entries, None, begin="start", pattern="*.csv")
    assert names(poll(entries, first.cursor, pattern="*.csv")) == ["b.csv", "a.csv"]


def test_drafts_of_uploads_are_not_reported() -> None:
    entries = [entry(draft_of("in/a.csv", "key")), entry(".gos-mine.part")]
    assert names(poll(entries, poll(entries, None, begin="start").cursor)) == [".gos-mine.part"]


def test_many_files_are_reported_in_batches() -> None:
    entries = [entry(f"{number:04}", 1, number) for number in range(MOST_AT_ONCE + 50)]
    polled = poll(entries, None, begin="start")
    polled = poll(entries, polled.cursor)
    assert (len(polled.items), polled.more) == (MOST_AT_ONCE, True)
    polled = poll(entries, polled.cursor)
    assert (len(polled.items), polled.more) == (50, False)
    assert names(poll(entries, polled.cursor)) == []


def test_too_many_files_are_rejected() -> None:
    with pytest.raises(Rejected, match=str(MOST_WATCHED)):
        poll([entry(str(number)) for number in range(MOST_WATCHED + 1)], None)
