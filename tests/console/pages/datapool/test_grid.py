"""The table of a collection: typed cells, filters by rows and by JSON, columns, and an address that can be bookmarked."""

import csv
import io
import json
import re
from collections.abc import Callable
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx
import pytest

from tests.console.browser import Browser

BUYERS = {"name": "grid_buyers", "fields": [{"name": "name", "type": "text"}, {"name": "country", "type": "text"}]}
SALES = {
    "name": "grid_sales",
    "search": ["note"],
    "fields": [
        {"name": "number", "type": "integer", "unique": True},
        {"name": "total", "type": "decimal", "scale": 2},
        {"name": "paid", "type": "boolean"},
        {"name": "state", "type": "select", "options": ["open", "sent"]},
        {"name": "placed", "type": "datetime"},
        {"name": "buyer", "type": "relation", "collection": "grid_buyers"},
        {"name": "note", "type": "text"},
        {"name": "extra", "type": "json"},
    ],
}


@pytest.fixture(scope="module")
def buyer(acme: httpx.Client) -> str:
    acme.post("/api/v1/datapool", json=BUYERS).raise_for_status()
    zaanse = {"name": "Zaanse <Snoep>", "country": "NL"}
    return str(acme.post("/api/v1/datapool/grid_buyers/entities", json=zaanse).json()["data"]["id"])


@pytest.fixture(scope="module")
def sales(acme: httpx.Client, buyer: str) -> list[str]:
    """Three sales, the ids oldest first; the first is the buyer's."""
    acme.post("/api/v1/datapool", json=SALES).raise_for_status()
    rows = [
        {"number": 7, "total": "12.50", "paid": True, "state": "open", "placed": "2026-01-31T09:30:00Z", "buyer": buyer,
         "note": "tea"},
        {"number": 8, "total": "99", "paid": False, "state": "sent", "note": "coffee, beans", "extra": {"a": [1]}},
        {"number": 9, "note": "=1+1"},
    ]  # fmt: skip
    return [acme.post("/api/v1/datapool/grid_sales/entities", json=row).json()["data"]["id"] for row in rows]


def numbers(page: httpx.Response, status: int = 200) -> list[int]:
    assert page.status_code == status
    return [int(number) for number in re.findall(r'class="cover" href="/console/datapool/grid_sales/[^"]+">(\d+)<', page.text)]


@pytest.fixture
def look(owner: Browser, sales: list[str]) -> Callable[..., httpx.Response]:
    def get(**query: str) -> httpx.Response:
        return owner.get(owner.at("acme", f"/console/datapool/grid_sales?{urlencode(query)}"))

    return get


def query_of(url: str) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}


def test_cells_are_formatted_by_type(look: Callable[..., httpx.Response], sales: list[str]) -> None:
    text = look(sort="number").text
    assert '<td class="number"><span class="clip">12.50' in text
    assert 'datetime="2026-01-31T09:30:00.000Z" title="2026-01-31 09:30:00 UTC" data-local>2026-01-31 09:30<' in text
    assert re.search(r'href="/console/datapool/grid_buyers/ent_\w+" title="ent_\w+">Zaanse &lt;Snoep&gt;</a>', text)
    assert 'data-truth="yes"' in text
    assert '<span class="badge plain">sent</span>' in text
    assert "extra</th>" not in text, "JSON fields are no columns by default"
    assert "3 entities" in text


def test_filter_rows_become_a_bookmarkable_address(look: Callable[..., httpx.Response], owner: Browser) -> None:
    page = look(apply="rows", f0="total", o0="_gte", v0="12.5", f1="state", o1="_in", v1="open, sent", sort="number")
    assert numbers(page) == [7, 8]
    query = query_of(owner.url)
    assert query == {"filter": '{"total":{"_gte":"12.5"},"state":{"_in":["open","sent"]}}', "sort": "number"}
    again = look(**query)
    assert numbers(again) == [7, 8]
    assert "total is at least 12.5" in again.text
    assert 'value="open, sent"' in again.text


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (("paid", "_eq", "yes"), [7]),
        (("placed", "_lt", "2026-02-01"), [7]),
        (("note", "_icontains", "COFFEE"), [8]),
        (("total", "_null", ""), [9]),
        (("total", "_filled", ""), [7, 8]),
        (("number", "_between", "8, 9"), [8, 9]),
        (("number", "_neq", "7"), [8, 9]),
        (("_version", "_eq", "1"), [7, 8, 9]),
        (("buyer", "_filled", ""), [7]),
        (("buyer", "_eq", "the buyer's id"), [7]),
        (("buyer", "_eq", "ent_000000000000000000000"), []),
    ],
)
def test_every_operator_filters(
    look: Callable[..., httpx.Response], buyer: str, row: tuple[str, str, str], expected: list[int]
) -> None:
    value = buyer if row[2] == "the buyer's id" else row[2]
    assert numbers(look(apply="rows", f0=row[0], o0=row[1], v0=value, sort="number")) == expected


def test_two_comparisons_of_one_field_both_apply(look: Callable[..., httpx.Response], owner: Browser) -> None:
    query = {"f0": "number", "o0": "_gt", "v0": "7", "f1": "number", "o1": "_lt", "v1": "9"}
    assert numbers(look(apply="rows", **query)) == [8]
    assert numbers(look(**query_of(owner.url))) == [8]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (("number", "_eq", "many"), "The field &#39;number&#39;: must be a whole number"),
        (("total", "_icontains", "1"), "Contains cannot be used with the field &#39;total&#39;"),
        (("_version", "_eq", "99999999999999999999"), "The field &#39;_version&#39;: must fit into 64 bits"),
        (("state", "_eq", ""), "Enter a value to compare &#39;state&#39; with"),
    ],
)
def test_an_invalid_comparison_is_explained_and_stays_in_the_form(
    look: Callable[..., httpx.Response], row: tuple[str, str, str], message: str
) -> None:
    page = look(apply="rows", f0=row[0], o0=row[1], v0=row[2])
    assert message in page.text
    assert f'value="{row[2]}"' in page.text
    assert numbers(page, 400) == []


def test_a_filter_can_be_written_as_json(look: Callable[..., httpx.Response]) -> None:
    page = look(filter=json.dumps({"_or": [{"number": 8}, {"buyer": {"country": "NL"}}]}), sort="number", apply="json")
    assert numbers(page) == [7, 8]
    assert "Custom JSON filter" in page.text
    for text in ("{", "[]", '{"nope": 1}', '{"total": {"_eq": "x"}}'):
        refused = look(filter=text)
        assert refused.status_code == 400
        assert 'data-testid="problem"' in refused.text
    assert "nope" in look(filter='{"nope": 1}').text


def test_columns_are_chosen_and_stay_in_the_address(look: Callable[..., httpx.Response], owner: Browser) -> None:
    page = look(apply="columns", search="tea", **{"c.extra": "1", "c.number": "1"})
    assert query_of(owner.url) == {"columns": "number,extra", "search": "tea"}
    assert re.findall(r'<th scope="col"[^>]*>(?:<a [^>]*>)?(\w+)', page.text) == ["number", "extra"]
    assert numbers(page) == [7]


def test_an_outdated_address_shows_the_first_page(look: Callable[..., httpx.Response]) -> None:
    assert len(numbers(look(cursor="nonsense"))) == 3


def test_the_filtered_entities_are_exported(owner: Browser, look: Callable[..., httpx.Response], sales: list[str]) -> None:
    chosen = urlencode({"filter": '{"number": {"_gte": 8}}'})
    answer = owner.get(owner.at("acme", f"/console/datapool/grid_sales/export?format=csv&{chosen}"))
    assert answer.headers["content-disposition"] == "attachment; filename=grid_sales.csv"
    rows = list(csv.DictReader(io.StringIO(answer.text)))
    assert [(row["number"], row["note"]) for row in rows] == [("8", "coffee, beans"), ("9", "'=1+1")]
    lines = owner.get(owner.at("acme", "/console/datapool/grid_sales/export?format=ndjson")).text.splitlines()
    assert [json.loads(line)["id"] for line in lines] == sales
    assert owner.get(owner.at("acme", "/console/datapool/grid_sales/export?format=exe")).status_code == 422


def test_no_title_crosses_from_one_tenant_to_another(signed_in: Callable[[str], Browser], sales: list[str]) -> None:
    other = signed_in("owner@globex.test")
    for path in ("grid_sales", f"grid_sales/{sales[0]}", "grid_sales/export"):
        assert other.get(other.at("globex", f"/console/datapool/{path}")).status_code == 404
