"""Log lines: kept whole and safe, found again, and never by another tenant."""

import pytest

from appliance.core import db
from appliance.core import logs as process_log
from appliance.core.errors import ValidationFailed
from appliance.core.pages import PageRequest
from appliance.core.scope import TenantScope
from appliance.monitor import logs
from appliance.monitor.logs import Line, LineFilter


def keep(scope: TenantScope, *lines: Line) -> None:
    db.write(lambda: logs.write_lines(scope, lines))


def messages(scope: TenantScope, wanted: LineFilter | None = None, page: PageRequest | None = None) -> list[str]:
    return [line.message for line in logs.list_lines(scope, wanted or LineFilter(), page or PageRequest()).items]


def test_a_line_is_read_as_it_was_written(acme: TenantScope) -> None:
    line = Line(1000, "warn", "step", "late", {"n": [1, {"a": None}]}, "exe_1", "intake", "check", "req_1")
    keep(acme, line)
    assert logs.list_lines(acme, LineFilter(), PageRequest()).items == [line]


def test_another_tenant_sees_nothing(acme: TenantScope, other: TenantScope) -> None:
    keep(acme, Line(1, "info", "step", "ours", execution_id="exe_1"))
    keep(other, Line(2, "info", "step", "theirs", execution_id="exe_1"))
    assert messages(other, LineFilter(execution_id="exe_1")) == ["theirs"]
    assert [line.message for _, line in logs.list_lines_after(other, LineFilter(), 0)] == ["theirs"]
    assert messages(acme) == ["ours"]


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (LineFilter(level="warn"), ["c", "b 100%"]),
        (LineFilter(text="00%"), ["b 100%"]),
        (LineFilter(text="0_"), []),
        (LineFilter(text="needle"), ["a"]),
        (LineFilter(source="engine"), ["c"]),
        (LineFilter(process_id="intake"), ["b 100%"]),
        (LineFilter(since=20), ["c", "b 100%"]),
        (LineFilter(since=10, until=30), ["b 100%", "a"]),
        (LineFilter(level="error", until=30), []),
    ],
)
def test_lines_are_found_by_filter(acme: TenantScope, wanted: LineFilter, found: list[str]) -> None:
    keep(
        acme,
        Line(10, "info", "step", "a", {"hay": "needle"}),
        Line(20, "warn", "step", "b 100%", process_id="intake"),
        Line(30, "error", "engine", "c"),
    )
    assert messages(acme, wanted) == found


def test_pages_go_back_in_time_without_gaps(acme: TenantScope) -> None:
    keep(acme, *[Line(5, "info", "step", str(number)) for number in range(1203)])
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
    keep(acme, Line(1, "info", "step", "x" * 8190 + secret, {secret: [f"is {secret}"]}))
    (line,) = logs.list_lines(acme, LineFilter(), PageRequest()).items
    assert "hunter" not in line.message
    assert line.fields == {"[redacted]": ["is [redacted]"]}


def test_a_flood_is_cut(acme: TenantScope) -> None:
    keep(acme, Line(1, "info", "step", "ä" * 50_000, {"rows": ["\x01é" * 50_000]}))
    (line,) = logs.list_lines(acme, LineFilter(), PageRequest()).items
    assert len(line.message.encode()) <= logs.MESSAGE_BYTES
    assert line.fields is not None
    assert line.fields["truncated"] is True
    ((fields,),) = db.rows("SELECT fields FROM log_line")
    assert len(fields.encode()) <= logs.FIELDS_BYTES


def test_what_no_store_takes_is_replaced(acme: TenantScope) -> None:
    deep: list[object] = []
    for _ in range(5000):
        deep = [deep]
    keep(acme, Line(1, "info", "step", "a\ud800b\x00c", {"\udfff": float("nan"), "d": deep, "b": b"\xff"}))
    (line,) = logs.list_lines(acme, LineFilter(), PageRequest()).items
    assert line.message == "a?b\ufffdc"
    assert line.fields is not None
    assert line.fields["?"] == "nan"


@pytest.mark.parametrize("fields", [7, "text", [1, {"a": 2}], 0, False])
def test_what_step_code_makes_up_is_kept_in_the_shape_of_the_contract(acme: TenantScope, fields: object) -> None:
    keep(acme, Line(1, "fatal'; --", "step", "x", fields))
    (line,) = logs.list_lines(acme, LineFilter(), PageRequest()).items
    assert (line.level, line.fields) == ("info", {"value": fields})


def test_an_unknown_level_is_refused_as_a_filter(acme: TenantScope) -> None:
    with pytest.raises(ValidationFailed):
        logs.list_lines(acme, LineFilter(level="fatal"), PageRequest())


def test_following_begins_after_a_line_and_sees_new_ones_in_order(acme: TenantScope, other: TenantScope) -> None:
    assert logs.last_number() == 0
    keep(acme, Line(9, "info", "step", "old"))
    start = logs.last_number()
    keep(other, Line(10, "info", "step", "theirs"))
    keep(acme, Line(5, "info", "step", "first"), Line(4, "debug", "step", "quiet"), Line(6, "error", "step", "second"))
    found = logs.list_lines_after(acme, LineFilter(level="info"), start)
    assert [line.message for _, line in found] == ["first", "second"]
    assert logs.list_lines_after(acme, LineFilter(), found[-1][0]) == []


def test_retention_deletes_old_lines_of_every_tenant(acme: TenantScope, other: TenantScope) -> None:
    keep(acme, *[Line(at, "info", "step", str(at)) for at in range(5000)])
    keep(other, Line(1, "info", "step", "old"), Line(5000, "info", "step", "new"))
    assert logs.purge(4999) == 5000
    assert messages(acme) == ["4999"]
    assert messages(other) == ["new"]


def test_lines_of_a_write_that_fails_are_not_kept(acme: TenantScope) -> None:
    def fail() -> None:
        logs.write_lines(acme, [Line(1, "info", "step", "lost")])
        raise RuntimeError("no")

    with pytest.raises(RuntimeError):
        db.write(fail)
    assert messages(acme) == []
