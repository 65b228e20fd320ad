"""Any input is answered with a coded error or a result, never with an internal error."""

import contextlib
import io
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from appliance.core.errors import ApplianceError
from appliance.core.scope import TenantScope
from appliance.datapool import service as datapool

WORDS = [
    *"""orders customers things number total day shipped extra customer id created_at _version name fields type text decimal
    relation select options collection unique required default min max scale indexes search access list deny filter sort -total
    group aggregate having fn sum avg field limit cursor expand count exact op create update upsert delete key values if_version
    _eq _gt _in _between _or _and _some _none _null _contains _icontains $now $actor 2026-01-01 2026-01-01T00:00:00Z 1.5 % a/b~c
    ent_000000000000000000000""".split(),  # noqa: SIM905  readable as a list of words
    "\x00", "\ud800", "'", '"', "\\",
]  # fmt: skip
words = st.sampled_from(WORDS) | st.text(max_size=4)
numbers = st.integers(-3, 3) | st.sampled_from([2**31, 2**53, 2**63, -(2**63), 10**40, 0.5, 1e300, float("inf"), float("nan")])
scalars = st.none() | st.booleans() | numbers | words
anything = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(words, inner, max_size=5), max_leaves=12
)
fields = st.lists(
    st.fixed_dictionaries({}, optional=dict.fromkeys(("id", "name", "type", "default", "min", "options", "scale"), anything))
)
operations = st.lists(
    st.fixed_dictionaries(
        {"op": st.sampled_from(["create", "update", "upsert", "delete"]), "collection": st.just("orders")},
        optional=dict.fromkeys(("id", "key", "values", "if_version", "colour"), anything),
    ),
    max_size=3,
)
queries = st.fixed_dictionaries(
    {},
    optional=dict.fromkeys(("filter", "having", "aggregate", "limit", "cursor", "count", "search"), anything)
    | dict.fromkeys(("sort", "fields", "expand", "group"), st.lists(words, max_size=3) | words),
)
hostile = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


def expect_an_answer(call: Callable[[], Any]) -> None:
    with contextlib.suppress(CallersMistake):
        try:
            call()
        except ApplianceError as error:
            refused = error.status < 500 and error.message and all(detail.code and detail.message for detail in error.details)
            raise (CallersMistake if refused else AssertionError)(error.message) from error


class CallersMistake(Exception):
    """A refusal as the contract requires."""


@hostile
@given(values=anything | st.dictionaries(words, anything))
def test_values(acme: TenantScope, values: Any) -> None:
    expect_an_answer(lambda: datapool.create_entity(acme, "orders", values))
    expect_an_answer(lambda: datapool.upsert_entity(acme, "orders", values))
    expect_an_answer(lambda: datapool.upsert_entity(acme, "orders", {"key": ["number"], "values": values}))


@hostile
@given(batch=anything | operations)
def test_batches(acme: TenantScope, batch: Any) -> None:
    expect_an_answer(lambda: datapool.run_batch(acme, batch))


@hostile
@given(query=anything | queries)
def test_queries(acme: TenantScope, query: Any) -> None:
    datapool.upsert_entity(acme, "orders", {"key": ["number"], "values": {"number": "1", "total": "5"}})
    expect_an_answer(lambda: datapool.query_entities(acme, "orders", query))


@hostile
@given(
    chosen=st.dictionaries(st.sampled_from(["number", "total", "day", "shipped", "extra", "customer", "_or"]), anything, min_size=1)
)
def test_filters(acme: TenantScope, chosen: Any) -> None:
    expect_an_answer(lambda: datapool.query_entities(acme, "orders", {"filter": chosen}))


@hostile
@given(document=anything, listed=fields, indexes=anything, access=anything)
def test_definitions(acme: TenantScope, document: Any, listed: Any, indexes: Any, access: Any) -> None:
    expect_an_answer(lambda: datapool.create_collection(acme, document))
    whole = {"name": "things", "fields": [{"name": "a", "type": "text"}, *listed]}
    expect_an_answer(lambda: datapool.create_collection(acme, whole))
    expect_an_answer(lambda: datapool.create_collection(acme, {**whole, "indexes": indexes, "access": access, "search": indexes}))
    expect_an_answer(lambda: datapool.change_collection(acme, "orders", document, allow_loss=True))
    expect_an_answer(lambda: datapool.change_collection(acme, "things", {"fields": whole["fields"]}, allow_loss=True))
    expect_an_answer(lambda: datapool.delete_collection(acme, "things", allow_loss=True))


@hostile
@given(data=st.binary(max_size=200), form=st.sampled_from(["csv", "ndjson"]))
def test_files(acme: TenantScope, data: bytes, form: Any) -> None:
    for content in (data, b"number,total\n" + data):
        expect_an_answer(partial(datapool.import_entities, acme, "orders", io.BytesIO(content), datapool.ImportOptions(form)))


@pytest.mark.parametrize("entity_id", ["", "ent_", "ent_" + "0" * 21, "\x00", "\ud800", "x" * 10_000, None, 5, {}])
def test_ids(acme: TenantScope, entity_id: Any) -> None:
    assert datapool.find_entity(acme, "orders", entity_id) is None
    expect_an_answer(lambda: datapool.get_entity(acme, "orders", entity_id))
    expect_an_answer(lambda: datapool.delete_entity(acme, "orders", entity_id))
