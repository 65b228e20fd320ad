"""Log lines: kept whole and safe, found again, and never by another tenant."""

from functools import partial

import pytest

from appliance.core import logs as process_log
from appliance.core.database import db
from appliance.core.errors import InvalidRequest, ValidationFailed
from appliance.core.pages import PageRequest
from appliance.core.scope import TenantScope
from appliance.monitor import logs
from appliance.monitor.logs import Line, LineFilter, Tail


def write_lines(scope: TenantScope, *lines: Line) -> None:
    db.write(lambda: logs.write_lines(scope, lines))


def messages(scope: TenantScope, filters: LineFilter | None = None, page: PageRequest | None = None) -> list[str]:
    return [line.message for line in logs.list_lines(scope, filters or LineFilter(), page or PageRequest()).items]


def test_a_line_is_read_as_it_was_written(acme: TenantScope) -> None:
    line = Line(1000, "warn", "step", "late", {"n": [1, {"a": None}]}, "exe_1", "intake", "check", "req_1")
    write_lines(acme, line)
    assert logs.list_lines(acme, LineFilter(), PageRequest()).items == [line]


def test_another_tenant_sees_nothing(acme: TenantScope, other: TenantScope) -> None:
    write_lines(acme, Line(1, "info", "step", "ours", execution_id="exe_1"))
    write_lines(other, Line(2, "info", "step", "theirs", execution_id="exe_1"))
    assert messages(other, LineFilter(execution_id="exe_1")) == ["theirs"]
    assert [line.message for line in Tail(other, LineFilter(), 0).read()] == ["theirs"]
    assert messages(acme) == ["ours"]


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        (LineFilter(level="warn"), ["c", "b 100%"]),
        (LineFilter(text="100%"), ["b 100%"]),
        (LineFilter(text="00"), []),
        (LineFilter(text="NEED"), ["a"]),
        (LineFilter(text="needle hay"), ["a"]),
        (LineFilter(text="needle b"), []),
        (LineFilter(text="grüße"), ["a"]),
        (LineFilter(text="GRUSSE"), ["a"]),
        (LineFilter(text="zoë"), ["c"]),
        (LineFilter(text="exe_77"), ["c"]),
        (LineFilter(text="nline"), []),
        (LineFilter(text="in", level="error"), ["c"]),
        (LineFilter(source="engine"), ["c"]),
        (LineFilter(process_id="intake"), ["b 100%"]),
        (LineFilter(since=20), ["c", "b 100%"]),
        (LineFilter(since=10, until=30), ["b 100%", "a"]),
        (LineFilter(level="error", until=30), []),
    ],
)
@pytest.mark.parametrize("many", [1, logs.MANY_MATCHES])
def test_lines_are_found_by_filter(
    acme: TenantScope, other: TenantScope, monkeypatch: pytest.MonkeyPatch, filters: LineFilter, expected: list[str], many: int
) -> None:
    monkeypatch.setattr(logs, "MANY_MATCHES", many)
    write_lines(
        acme,
        Line(10, "info", "step", "a", {"hay": "needle\nline", "said": ["Grüße"]}),
        Line(20, "warn", "step", "b 100%", process_id="intake"),
        Line(30, "error", "engine", "c", {"by": "ZOE"}, "exe_77", "in"),
    )
    write_lines(other, Line(40, "error", "step", "needle hay", execution_id="exe_77"))
    assert messages(acme, filters) == expected


def test_pages_go_back_in_time_without_gaps(acme: TenantScope) -> None:
    write_lines(acme, *[Line(5, "info", "step", str(number)) for number in range(1203)])
    seen: list[str] = []
    cursor = None
    while cursor is not None or not seen:
        page = logs.list_lines(acme, LineFilter(), PageRequest(500, cursor))
        seen += [line.message for line in page.items]
        cursor = page.next_cursor
    assert seen == [str(number) for number in reversed(range(1203))]


def test_secrets_are_redacted_also_inside_fields_and_at_the_cut(acme: TenantScope) -> None:
    secret = 'hunter"2\nhunter'
    process_log.remember_secret(secret)
    write_lines(acme, Line(1, "info", "step", "x" * 8190 + secret, {secret: [f"is {secret}"]}))
    (line,) = logs.list_lines(acme, LineFilter(), PageRequest()).items
    assert "hunter" not in line.message
    assert line.fields == {"[redacted]": ["is [redacted]"]}


def test_a_flood_is_cut(acme: TenantScope) -> None:
    write_lines(acme, Line(1, "info", "step", "ä" * 50_000, {"rows": ["\x01é" * 50_000]}))
    (line,) = logs.list_lines(acme, LineFilter(), PageRequest()).items
    assert len(line.message.encode()) <= logs.MESSAGE_BYTES
    assert line.fields is not None
    assert line.fields["truncated"] is True
    ((fields,),) = db.rows("SELECT fields FROM log_line")
    assert len(fields.encode()) <= logs.FIELDS_BYTES


def test_characters_that_cannot_be_stored_are_replaced(acme: TenantScope) -> None:
    deep: list[object] = []
    for _ in range(5000):
        deep = [deep]
    write_lines(acme, Line(1, "info", "step", "a\ud800b\x00c", {"\udfff": float("nan"), "d": deep, "b": b"\xff"}))
    (line,) = logs.list_lines(acme, LineFilter(), PageRequest()).items
    assert line.message == "a?b\ufffdc"
    assert line.fields is not None
    assert line.fields["?"] == "nan"


@pytest.mark.parametrize("fields", [7, "text", [1, {"a": 2}], 0, False])
def test_log_fields_of_step_code_are_normalized(acme: TenantScope, fields: object) -> None:
    write_lines(acme, Line(1, "fatal'; --", "step", "x", fields))
    (line,) = logs.list_lines(acme, LineFilter(), PageRequest()).items
    assert (line.level, line.fields) == ("info", {"value": fields})


def test_an_unknown_level_is_refused_as_a_filter(acme: TenantScope) -> None:
    with pytest.raises(ValidationFailed):
        logs.list_lines(acme, LineFilter(level="fatal"), PageRequest())


def test_following_begins_after_a_line_and_sees_new_ones_in_order(acme: TenantScope, other: TenantScope) -> None:
    assert logs.last_number() == 0
    write_lines(acme, Line(9, "info", "step", "old"))
    start = logs.last_number()
    write_lines(other, Line(10, "info", "step", "theirs"))
    write_lines(acme, Line(5, "info", "step", "first"), Line(4, "debug", "step", "quiet"), Line(6, "error", "step", "second"))
    tail = Tail(acme, LineFilter(level="info"), start)
    assert [line.message for line in tail.read()] == ["first", "second"]
    assert tail.read() == []
    write_lines(acme, Line(1, "warn", "step", "third"))
    assert [line.message for line in tail.read()] == ["third"]


def test_a_follower_gets_new_lines_whatever_their_time(acme: TenantScope) -> None:
    """A step that logs for minutes is kept at its end, and a clock is set back."""
    write_lines(acme, Line(5, "info", "step", "too old"), Line(90, "info", "step", "old"))
    tail = Tail(acme, LineFilter(since=50), 0)
    write_lines(acme, Line(7, "info", "step", "of a long step"))
    assert [line.message for line in tail.read()] == ["old", "of a long step"]


def test_a_follower_resumes_after_any_line(
    acme: TenantScope, other: TenantScope, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "MAX_LINES", 3)
    for number in range(10):
        write_lines(acme, Line(5, "warn" if number % 2 else "info", "step", f"word {number}"), Line(6, "warn", "step", "other"))
        write_lines(other, Line(5, "warn", "step", f"word {number}"))
    filters = LineFilter(level="warn", text="word")
    tail, seen = Tail(acme, filters, 0), []
    while lines := tail.read():
        seen += lines
    assert [line.message for line in seen] == [f"word {number}" for number in (1, 3, 5, 7, 9)]
    for index, line in enumerate(seen):
        resumed = Tail(acme, filters, line.number)
        assert [each.number for each in (*resumed.read(), *resumed.read())] == [each.number for each in seen[index + 1 :]]


def test_a_follower_of_the_newest_lines_is_never_behind(acme: TenantScope, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "MAX_LINES", 3)
    tail = Tail(acme, LineFilter(), logs.last_number())
    write_lines(acme, *[Line(5, "info", "step", str(number)) for number in range(10)])
    assert [line.message for line in tail.read(only_newest=True)] == ["7", "8", "9"]
    assert (tail.read(only_newest=True), tail.is_behind) == ([], False)


def test_lines_from_before_the_search_index_are_indexed_later(acme: TenantScope, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "BATCH_SIZE", 2)
    old = "INSERT INTO log_line (tenant_id, at, level, source, message, fields) VALUES ('acme', ?, 20, 'step', ?, ?)"
    for number in range(5):
        db.write(partial(db.execute, old, (number, f"old {number}", '{"n":"Ärger"}')))
    write_lines(acme, Line(9, "info", "step", "ärger"))
    assert messages(acme, LineFilter(text="ärger")) == ["ärger"]
    assert logs.index_older() == 5
    assert logs.index_older() == 0
    assert messages(acme, LineFilter(text="ärger")) == ["ärger", "old 4", "old 3", "old 2", "old 1", "old 0"]


def test_deleted_lines_are_not_found(acme: TenantScope, other: TenantScope) -> None:
    write_lines(acme, Line(1, "info", "step", "needle one"), Line(5, "info", "step", "needle two"))
    write_lines(other, Line(5, "info", "step", "needle theirs"))
    logs.purge(3)
    assert messages(acme, LineFilter(text="needle")) == ["needle two"]
    db.write(partial(logs.remove_from_index, other))
    assert messages(other, LineFilter(text="needle")) == ([] if db.is_sqlite() else ["needle theirs"])
    db.write(partial(db.execute, "DELETE FROM tenant WHERE id = 'other'"))
    if db.is_sqlite():
        assert db.rows("SELECT count(*) FROM log_line_index WHERE log_line_index MATCH 'needle'") == [(1,)]
        db.write(partial(db.execute, "INSERT INTO log_line_index (log_line_index, rank) VALUES ('integrity-check', 1)"))


@pytest.mark.parametrize("text", ["%", " ".join("abcdefghijk")])
def test_a_search_without_words_or_of_too_many_is_refused(acme: TenantScope, text: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        messages(acme, LineFilter(text=text))
    assert caught.value.details[0].pointer == "/text"


def test_retention_deletes_old_lines_of_every_tenant(acme: TenantScope, other: TenantScope) -> None:
    write_lines(acme, *[Line(at, "info", "step", str(at)) for at in range(5000)])
    write_lines(other, Line(1, "info", "step", "old"), Line(5000, "info", "step", "new"))
    assert logs.purge(4999) == 5000
    assert messages(acme) == ["4999"]
    assert messages(other) == ["new"]


def test_lines_of_a_failed_write_are_not_stored(acme: TenantScope) -> None:
    def fail() -> None:
        logs.write_lines(acme, [Line(1, "info", "step", "lost")])
        raise RuntimeError("no")

    with pytest.raises(RuntimeError):
        db.write(fail)
    assert messages(acme) == []
