"""Executions are found by a value of their input and by their label, which may be changed while they go on seeing their own."""

import itertools
import threading
from typing import Any

import httpx
import pytest

from appliance.core.database import db
from appliance.core.database.sqlite import Sqlite
from appliance.core.errors import ValidationFailed
from appliance.core.pages import PageRequest, encode_cursor
from appliance.processes.executions import search
from appliance.processes.executions.input_values import executions_with, iter_values, text_of
from appliance.processes.executions.service import (
    EventAnswer,
    Execution,
    ExecutionFilter,
    change_label,
    find_newest,
    list_executions,
    matching_query,
)
from tests.processes.rehearsal.replaying import replay
from tests.processes.test_api import BASE, data, error
from tests.processes.world import World, code, rule

BY_ID = "sqlite_autoindex_execution_1 (tenant_id=? AND id=?)"


def search_ids(world: World, search: str, process: str | None = None) -> set[str]:
    rows = list_executions(world.scope, ExecutionFilter(process, search=search), PageRequest(limit=500)).items
    return {row.id for row in rows}


def test_an_execution_is_found_by_a_value_of_its_input(world: World) -> None:
    process = world.publish([rule("a", "= 1")])
    order = {"number": 90001, "paid": True, "total": 12.5, "at": 7.0, "customer": {"name": "Ann = Bo"}}
    order["lines"] = [{"sku": "S-1"}, {"sku": "S-2"}]
    one = world.start(process, {"order": order})
    other = world.start(process, {"order": {"number": "90001"}, "note": "x=S-1"})
    assert search_ids(world, "90001") == search_ids(world, "order.number=90001") == {one, other}
    assert search_ids(world, "order.lines.sku=S-2") == search_ids(world, "S-2") == {one}
    assert search_ids(world, "order.paid=true") == search_ids(
        world, "order.total=12.50"
    ) == search_ids(world, "order.at=7") == {one}
    assert search_ids(world, "order.customer.name=Ann = Bo") == search_ids(world, "=Ann = Bo") == {one}
    assert search_ids(world, "=x=S-1") == {other}
    assert search_ids(world, "x=S-1") == search_ids(world, "9000") == search_ids(world, "number=90001") == set()
    assert search_ids(world, "90001", "none") == set()
    foreign = list_executions(world.other, ExecutionFilter(search="90001"), PageRequest()).items
    assert foreign == []
    for invalid in ("order.number=", "=", "x" * 201):
        with pytest.raises(ValidationFailed):
            search_ids(world, invalid)


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        ({"a": {"b": {"c": {"d": {"e": 1, "f": {"g": 2}}}}}}, [("a.b.c.d.e", "1")]),
        ({"deep": {"inner": 1}, "outer": 2}, [("outer", "2"), ("deep.inner", "1")]),
        ({f"n{index}": index for index in range(30)}, [(f"n{index}", str(index)) for index in range(20)]),
        ({"none": None, "empty": "", "long": "x" * 201, "most": "y" * 200}, [("most", "y" * 200)]),
        ({"list": [[1], "two", {"three": False}]}, [("list", "two"), ("list", "1"), ("list.three", "false")]),
        ({"x" * 201: 1}, []),
        ({"big": list(range(100_000))}, [("big", str(index)) for index in range(20)]),
        ({"nothing": [None] * 100_000, "after": 1}, [("after", "1")]),
        ([1], [("", "1")]),
    ],
)
def test_the_first_values_of_an_input_are_indexed(payload: Any, expected: list[tuple[str, str]]) -> None:
    assert list(iter_values(payload)) == expected


def test_numbers_are_indexed_as_they_are_written() -> None:
    texts = [text_of(value) for value in (1, 1.0, 1.5, 2**60, True, "1.0", None)]
    assert texts == ["1", "1", "1.5", str(2**60), "true", "1.0", None]


def test_the_values_go_with_their_execution_and_the_search_uses_its_index(world: World) -> None:
    process = world.publish([rule("a", "= 1")])
    row = world.finish(world.start(process, {"only": "here-once"}))
    count = "SELECT count(*) FROM execution_input WHERE execution_id = ?"
    assert db.rows(count, (row.id,)) == [(1,)]
    sql, values = list_query(world)
    result = " ".join(str(line[3]) for line in db.rows(f"EXPLAIN QUERY PLAN {sql}", tuple(values)))
    assert "execution_input_value" in result
    world.flow.delete_process(world.scope, process)
    assert db.rows(count, (row.id,)) == [(0,)]


@pytest.mark.parametrize(
    ("filters", "indexes"),
    [
        (ExecutionFilter(), ["execution_newest"]),
        (ExecutionFilter(status="failed"), ["execution_state"]),
        (ExecutionFilter(status="queued"), ["execution_state"]),
        (ExecutionFilter(step="save"), ["execution_failed_step"]),
        (ExecutionFilter(label="order 7"), ["execution_label (tenant_id=? AND label=?"]),
        (ExecutionFilter(failure_class="timeout"), ["execution_failure_class (tenant_id=? AND failure_class=?"]),
        (ExecutionFilter(by="trigger"), ["execution_started_by (tenant_id=? AND <expr>=?"]),
        (ExecutionFilter(search="number=7"), ["execution_input_value (tenant_id=? AND value=? AND path=?)", BY_ID]),
        (ExecutionFilter(text="needle"), ["execution_label", "execution_failure_code", "execution_input_value", BY_ID]),
    ],
    ids=["newest", "failed", "queued", "step", "label", "failure class", "starter", "search", "text"],
)
def test_lists_are_read_from_indexes(
    world: World, monkeypatch: pytest.MonkeyPatch, filters: ExecutionFilter, indexes: list[str]
) -> None:
    world.start(world.publish([rule("a", "= 1")]), {"number": 7})
    executed: list[tuple[str, Any]] = []
    own_thread = threading.get_ident()
    run_statement = Sqlite._execute_cursor

    def noted(self: Sqlite, sql: str, params: Any, **options: Any) -> Any:
        if sql.startswith("SELECT") and threading.get_ident() == own_thread:
            executed.append((sql, params or ()))
        return run_statement(self, sql, params, **options)

    monkeypatch.setattr(Sqlite, "_execute_cursor", noted)
    cursor = encode_cursor([1_790_000_000_000, "exe_1"], "-created_at,-id")
    for page in (PageRequest(), PageRequest(cursor=cursor)):
        executed.clear()
        list_executions(world.scope, filters, page)
        lines = [str(row[3]) for sql, params in list(executed) for row in db.rows(f"EXPLAIN QUERY PLAN {sql}", tuple(params))]
        assert [name for name in indexes if not any(name in line for line in lines)] == [], lines
        assert not [line for line in lines if line.startswith("SCAN")], lines
        if "execution_newest" not in indexes:
            assert not [line for line in lines if "execution_newest" in line], lines


@pytest.mark.parametrize("criteria", [ExecutionFilter(search="n=7"), ExecutionFilter(search="7"), ExecutionFilter(text="7")])
def test_of_many_matches_each_row_is_examined_by_itself(
    world: World, monkeypatch: pytest.MonkeyPatch, criteria: ExecutionFilter
) -> None:
    monkeypatch.setattr(search, "MANY_MATCHES", 1)
    world.start(world.publish([rule("a", "= 1")]), {"n": 7})
    query = matching_query(world.scope, criteria).order_by(Execution.created_at.desc(), Execution.id.desc()).limit(51)
    sql, values = query.sql()
    lines = [str(line[3]) for line in db.rows(f"EXPLAIN QUERY PLAN {sql}", tuple(values))]
    key = "sqlite_autoindex_execution_input_1 (tenant_id=? AND execution_id=?"
    assert [line for line in lines if "execution_newest" in line], lines
    assert [line for line in lines if key in line], lines


def test_a_page_goes_on_after_a_search(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    process = world.publish([rule("a", "= 1")])
    ids = [world.start(process, {"customer": "C-7", "number": number}) for number in range(5)]
    world.start(process, {"customer": "C-8"})
    criteria = ExecutionFilter(process, search="customer=C-7")
    for many, sort in itertools.product((2, 2_000), ("-created_at", "created_at", "id", "-id")):
        monkeypatch.setattr(search, "MANY_MATCHES", many)
        pages: list[list[str]] = []
        cursor: str | None = None
        while not pages or cursor:
            page = list_executions(world.scope, criteria, PageRequest(2, cursor, sort))
            pages.append([row.id for row in page.items])
            cursor = page.next_cursor
        assert [id_ for page in pages for id_ in page] == (ids[::-1] if sort.startswith("-") else ids)
        assert [len(page) for page in pages] == [2, 2, 1]


@pytest.mark.parametrize("many", [2, 2_000])
def test_words_that_many_labels_have_find_the_same(world: World, monkeypatch: pytest.MonkeyPatch, many: int) -> None:
    monkeypatch.setattr(search, "MANY_MATCHES", many)
    process = world.publish([rule("a", "= 1")])
    labelled = [world.start(process, label=f"shared {number} word") for number in range(3)]
    valued = world.start(process, {"note": "shared"})
    world.start(process, {"note": "another"}, label="not this")
    rows = list_executions(world.scope, ExecutionFilter(process, text="shared"), PageRequest(limit=3))
    assert [row.id for row in rows.items] == [valued, *labelled[:0:-1]]
    rest = list_executions(world.scope, ExecutionFilter(process, text="shared"), PageRequest(limit=3, cursor=rows.next_cursor))
    assert [row.id for row in rest.items] == labelled[:1]


def test_the_newest_of_each_process_is_read_from_an_index(world: World) -> None:
    first, second = world.publish([rule("a", "= 1")]), world.publish([rule("a", "= 1")])
    rows = [world.finish(world.start(process)) for process in (first, first, second)]
    newest = find_newest(world.scope, [first, second, "unknown"])
    assert {name: row.id for name, row in newest.items()} == {first: rows[1].id, second: rows[2].id}
    sql = "SELECT id FROM execution WHERE tenant_id = ? AND process_id = ? ORDER BY created_at DESC, id DESC LIMIT 1"
    (line,) = db.rows(f"EXPLAIN QUERY PLAN {sql}", (world.scope.tenant_id, first))
    assert "execution_listed" in line[3]


def test_the_queue_is_counted_by_an_index(world: World) -> None:
    sql = "SELECT count(*), min(enqueued_at) FROM execution WHERE tenant_id = ? AND status = 'queued'"
    result = " ".join(str(line[3]) for line in db.rows(f"EXPLAIN QUERY PLAN {sql}", (world.scope.tenant_id,)))
    assert "execution_state" in result


def list_query(world: World) -> tuple[str, list[Any]]:
    query = executions_with(world.scope, "only=here-once")
    return query.sql()  # type: ignore[no-any-return]


def test_a_label_is_changed_and_the_execution_sees_its_own(world: World) -> None:
    process = world.publish([{"id": "wait", "wait": {"event": "go"}}, code("a", "return [api.execution.label]")])
    execution = world.start(process, label="first")
    waiting = world.wait_for_status(execution, "waiting")
    change_label(world.scope, execution, process, "second")
    assert change_label(world.scope, execution, process, "third").label_text == "third"
    token = waiting.waiting_for["waits"][0]["token"]
    world.flow.resume_execution(world.scope, execution, process, EventAnswer(token))
    row = world.finish(execution)
    assert (row.output, row.label_text) == (["first"], "third")
    assert replay(world, row).is_identical
    none = world.finish(world.start(process_of(world)))
    assert change_label(world.scope, none.id, none.process_id, "now").first_label == ""
    assert change_label(world.scope, none.id, none.process_id, None).label_text is None
    assert replay(world, none).is_identical


def process_of(world: World) -> str:
    return world.publish([code("a", "return [api.execution.label]")])


def test_over_http(acme: httpx.Client, globex: httpx.Client) -> None:
    address = f"{BASE}/found-over-http"
    assert acme.put(address, json={"steps": [rule("a", "= 1")]}).is_success
    data(acme.post(f"{address}/publish", json={}))
    one = data(acme.post(f"{address}/execute?wait=5&label=old", json={"number": "found-1"}))
    data(acme.post(f"{address}/execute?wait=5", json={"number": "found-2"}))
    for path in (f"{address}/executions", "/api/v1/executions"):
        ids = [row["execution_id"] for row in data(acme.get(path, params={"q": "number=found-1"}))]
        assert ids == [one["execution_id"]]
    assert data(acme.patch(one["links"]["self"], json={"label": "new"}))["label"] == "new"
    assert [row["execution_id"] for row in data(acme.get(f"{address}/executions?label=new"))] == [one["execution_id"]]
    for query, finds in (
        ("text=ne&started_by=key&version=1", True), ("text=found-1", True), ("started_by=trigger", False), ("version=2", False),
        ("failed_step=a", False), ("took_at_least=1h", False), ("label=new&took_at_least=0ms", True),
    ):  # fmt: skip
        assert bool(data(acme.get(f"{address}/executions?{query}"))) is finds, query
    assert error(acme.get(f"{address}/executions?took_at_least=long"), 422)["details"][0]["pointer"] == "/took_at_least"
    chosen = {"filter": {"ids": [one["execution_id"], "exe_unknown"], "text": "found-1"}, "action": "cancel"}
    assert data(acme.post("/api/v1/executions/bulk", json=chosen))["matched"] == 0
    assert "label" not in data(acme.patch(one["links"]["self"], json={"label": None}))
    assert error(acme.patch(one["links"]["self"], json={}), 422)["details"][0]["pointer"] == "/label"
    assert error(globex.patch(one["links"]["self"], json={"label": "x"}), 404)["code"] == "not_found"
    assert error(acme.get(f"{address}/executions?q=number="), 422)["details"][0]["pointer"] == "/q"
