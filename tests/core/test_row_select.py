"""Fields of rows are selected as peewee selects them."""

from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import peewee
import pytest

import appliance
from appliance.core.database import db
from appliance.core.database.db import TenantModel
from appliance.core.database.row_select import RowSelect

FOLDER = Path(appliance.__file__).parent
for file in FOLDER.rglob("models.py"):
    import_module(".".join(("appliance", *file.relative_to(FOLDER).with_suffix("").parts)))


def models(base: Any) -> Iterator[Any]:
    for each in base.__subclasses__():
        yield each
        yield from models(each)


MODELS = sorted((each for each in models(TenantModel) if each.__module__.startswith("appliance.")), key=lambda each: each.__name__)


class Crate(TenantModel):
    """One of every kind of column that our tables have, one of them under another name."""

    id = peewee.TextField()
    title = peewee.TextField(null=True, column_name="label")
    contents = db.JsonField(null=True)
    is_open = peewee.BooleanField()
    pieces = peewee.IntegerField()
    sent_at = peewee.BigIntegerField(null=True)
    weight = peewee.FloatField()
    sealed = peewee.BlobField()

    class Meta:
        primary_key = peewee.CompositeKey("tenant_id", "id")


@pytest.fixture
def crates(database: Path) -> None:
    columns = "tenant_id TEXT, id TEXT, label TEXT, contents TEXT, is_open INTEGER, pieces INTEGER, sent_at BIGINT, weight REAL"
    rows = [
        ("one", "a", "fragile", '{"b":[1]}', 1, 3, 2**40, 1.5, b"\0\xff"), ("one", "b", None, None, 0, 0, None, 0.0, b""),
    ]  # fmt: skip

    def fill() -> None:
        db.execute(f"CREATE TABLE crate ({columns}, sealed BLOB)")
        for row in rows:
            db.execute("INSERT INTO crate VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)

    db.write(fill)


def select(kind: Any, model: Any) -> Any:
    query = RowSelect(model) if kind is RowSelect else kind(model, model._meta.sorted_fields)
    return query.where(model.tenant_id == "one").order_by(model.tenant_id.desc()).limit(3)


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_the_sql_of_every_model_is_that_of_peewee(database: Path, model: Any) -> None:
    assert select(RowSelect, model).sql() == select(peewee.ModelSelect, model).sql()


def test_rows_are_those_of_peewee(crates: None) -> None:
    rows, expected = (list(select(kind, Crate)) for kind in (RowSelect, peewee.ModelSelect))
    assert len(rows) == 2
    assert [(type(each), each.__data__, each._dirty) for each in rows] == [(Crate, each.__data__, each._dirty) for each in expected]
    assert (rows[0].contents, rows[0].is_open, rows[1].title) == ({"b": [1]}, True, None)


def test_some_fields_are_those_of_peewee(crates: None) -> None:
    fields = (Crate.title, Crate.is_open, Crate.contents)
    queries = [kind.where(Crate.id == "a") for kind in (RowSelect(Crate, fields), peewee.ModelSelect(Crate, list(fields)))]
    assert queries[0].sql() == queries[1].sql()
    assert [each.__data__ for each in queries[0]] == [each.__data__ for each in queries[1]]
    assert [each.id for each in queries[0]] == [None]
    number = peewee.fn.COUNT(Crate.id).alias("number")
    counts = [RowSelect(Crate, (Crate.is_open, number)), peewee.ModelSelect(Crate, [Crate.is_open, number])]
    of_each = [[(each.is_open, each.number) for each in query.group_by(Crate.is_open).order_by(Crate.is_open)] for query in counts]
    assert of_each == [[(False, 1), (True, 1)]] * 2


def test_other_columns_and_other_kinds_of_rows_are_those_of_peewee(crates: None) -> None:
    inside = peewee.ModelSelect(Crate, [Crate.id])
    uses: list[Callable[[Any], Any]] = [
        lambda query: query.dicts(), lambda query: query.tuples(), lambda query: query.select(Crate.id).tuples(),
        lambda query: query.select_extend((Crate.pieces + 1).alias("more")).dicts(),
        lambda query: [(each.id, each.more) for each in query.select_extend((Crate.pieces + 1).alias("more"))],
        lambda query: [vars(each) for each in query.select(Crate.id, Crate.contents)],
        lambda query: inside.where(Crate.id.in_(query.select(Crate.id))).tuples(),
    ]  # fmt: skip
    for use in uses:
        assert list(use(select(RowSelect, Crate))) == list(use(select(peewee.ModelSelect, Crate)))
    assert select(RowSelect, Crate).count() == 2
    assert select(RowSelect, Crate).where(Crate.id == "b").exists()
    other = Crate._meta.table.alias("other")
    joined = [select(kind, Crate).from_(Crate, other) for kind in (RowSelect, peewee.ModelSelect)]
    assert joined[0].sql() == joined[1].sql()
