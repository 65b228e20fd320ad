"""Paging visits every row once, whatever the order; foreign cursors are refused."""

import base64
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import peewee
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.core.database import db
from appliance.core.database.db import PlatformModel
from appliance.core.errors import InvalidCursor, InvalidRequest
from appliance.core.pages import Page, PageRequest, paginate


class Thing(PlatformModel):
    id = peewee.TextField(primary_key=True)
    name = peewee.TextField()
    size = peewee.IntegerField()


FIELDS = {"id": Thing.id, "name": Thing.name, "size": Thing.size}
ROWS = st.lists(st.tuples(st.sampled_from(["", "a", "b", "ä", "'"]), st.integers(-2, 2)), max_size=25)
ORDERS = st.lists(
    st.sampled_from(["id", "-id", "name", "-name", "size", "-size"]), min_size=1, max_size=3, unique_by=lambda o: o.strip("-")
)


@pytest.fixture(scope="module")
def things(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path = tmp_path_factory.mktemp("pages") / "gos.db"
    db.open_database(f"sqlite:///{path}")
    db.write(Thing.create_table)
    yield path
    db.close_database()


def list_things(page: PageRequest) -> Page[Any]:
    return paginate(Thing.select(), page, FIELDS, default="-size")


def fill(rows: list[tuple[str, int]]) -> None:
    def replace() -> None:
        Thing.delete().execute()
        for number, (name, size) in enumerate(rows):
            Thing.create(id=f"t{number:02d}", name=name, size=size)

    db.write(replace)


@settings(deadline=None, max_examples=60)
@given(ROWS, ORDERS, st.integers(1, 7))
def test_paging_visits_every_row_once_in_order(things: Path, rows: list[tuple[str, int]], order: list[str], limit: int) -> None:
    fill(rows)
    seen: list[Any] = []
    cursor = None
    while True:
        page = list_things(PageRequest(limit, cursor, ",".join(order), count=True))
        assert page.total == len(rows)
        assert len(page.items) == limit or page.next_cursor is None
        seen += page.items
        cursor = page.next_cursor
        if cursor is None:
            break
    expected = [(f"t{number:02d}", name, size) for number, (name, size) in enumerate(rows)]
    for part in reversed([*order, order[0][: -len(order[0].lstrip("-"))] + "id"]):
        column = ("id", "name", "size").index(part.lstrip("-"))
        expected.sort(key=lambda row, column=column: _key(row[column]), reverse=part.startswith("-"))  # type: ignore[misc]
    assert [(row.id, row.name, row.size) for row in seen] == expected


def _key(value: Any) -> Any:
    return value.encode() if isinstance(value, str) else value


def test_rows_that_come_and_go_do_not_move_the_rest(things: Path) -> None:
    fill([("a", number) for number in range(10)])
    first = list_things(PageRequest(4, sort="size"))
    db.write(lambda: Thing.delete().where(Thing.size < 4).execute())
    db.write(lambda: Thing.create(id="new", name="a", size=-1))
    second = list_things(PageRequest(4, first.next_cursor, "size"))
    assert [row.size for row in second.items] == [4, 5, 6, 7]


@pytest.mark.parametrize("limit", [0, -1, 501, 10**9])
def test_a_limit_has_bounds(things: Path, limit: int) -> None:
    with pytest.raises(InvalidRequest, match="between 1 and 500"):
        list_things(PageRequest(limit))


@pytest.mark.parametrize("sort", ["colour", "", ",", "--size", "size;drop", "+size"])
def test_an_unknown_order_names_the_known_ones(things: Path, sort: str) -> None:
    if sort == "":
        assert list_things(PageRequest(sort=sort)).next_cursor is None
        return
    with pytest.raises(InvalidRequest, match="use one of id, name, size"):
        list_things(PageRequest(sort=sort))


def encoded(value: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


BROKEN: dict[str, Callable[[str], str]] = {
    "cut": lambda good: good[:-3],
    "not base64": lambda _: "!!!!",
    "not ascii": lambda _: "ä" * 8,
    "not utf-8": lambda _: "_____w",
    "not json": lambda _: encoded([1])[:-2] + "AA",
    "another order": lambda _: encoded(["-size,-id", 1, "t01"]),
    "too few": lambda _: encoded(["size,id", 1]),
    "too many": lambda _: encoded(["size,id", 1, "t01", 2]),
    "an object": lambda _: encoded({"size,id": 1}),
    "nested": lambda _: encoded(["size,id", [1], "t01"]),
    "deep": lambda _: base64.urlsafe_b64encode(b"[" * 100_000).decode(),
    "beyond 64 bits": lambda _: encoded(["size,id", 2**70, "t01"]),
    "infinite": lambda _: base64.urlsafe_b64encode(b'["size,id",Infinity,"x"]').decode(),
    "a text for a number": lambda _: encoded(["size,id", "large", "t01"]),
    "a NUL": lambda _: encoded(["size,id", 1, "\0"]),
    "half a character": lambda _: base64.urlsafe_b64encode(b'["size,id",1,"\\ud800"]').decode(),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_foreign_cursor_is_refused(things: Path, name: str) -> None:
    fill([("a", number) for number in range(3)])
    good = list_things(PageRequest(1, sort="size")).next_cursor
    assert good is not None
    with pytest.raises(InvalidCursor):
        list_things(PageRequest(1, BROKEN[name](good), "size"))


@given(st.text(max_size=60))
@settings(deadline=None, max_examples=100)
def test_no_cursor_breaks_a_list(things: Path, cursor: str) -> None:
    try:
        page = list_things(PageRequest(1, cursor, "size"))
    except InvalidCursor:
        return
    assert cursor == "" or page is not None
