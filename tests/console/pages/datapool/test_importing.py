"""A file becomes entities in the console: previewed, tested in a dry run, and imported with a report of every row."""

import io
import re
import threading
from collections.abc import Callable
from html import unescape
from typing import Any

import httpx
import openpyxl
import pytest

from tests.console.browser import Browser

GOODS = {
    "name": "import_goods",
    "fields": [
        {"name": "sku", "type": "text", "unique": True, "required": True},
        {"name": "unit_price", "type": "decimal", "scale": 2},
        {"name": "shipped", "type": "date"},
        {"name": "packed", "type": "datetime"},
        {"name": "comment", "type": "text"},
    ],
}
CSV = (
    "SKU;Unit Price;Shipped;Packed;Colour\n"
    "a-1;9.50;1996-07-04 00:00:00.000;1996-07-04 08:00:00;red\n"
    'a-2;NULL;;;"dark\nblue"\n'
    "a-3;cheap;1996-13-01;;\n"
    "a-1;1;;;\n"
)


@pytest.fixture
def goods(acme: httpx.Client) -> httpx.Client:
    """The collection, empty."""
    acme.delete("/api/v1/datapool/import_goods?allow_loss=true")
    acme.post("/api/v1/datapool", json=GOODS).raise_for_status()
    return acme


def rows(api: httpx.Client) -> list[dict[str, Any]]:
    entities: list[dict[str, Any]] = api.get("/api/v1/datapool/import_goods/entities?sort=sku").json()["data"]
    return entities


def wait_for_import(owner: Browser) -> str:
    """The page of the import as soon as nothing is running."""
    pause, url = threading.Event(), owner.url
    for _ in range(400):
        text = owner.get(url).text
        if "data-live" not in text:
            return text
        pause.wait(0.05)
    raise AssertionError("the import does not end")


def read_column_form(text: str) -> dict[str, str]:
    """The fields that the form of columns would submit unchanged."""
    sent = {}
    for name, options in re.findall(r'<select name="(m\d+)"[^>]*>(.*?)</select>', text, re.DOTALL):
        option = re.search(r'value="([^"]*)" selected', options)
        sent[name] = unescape(option[1]) if option else ""
    return sent | dict.fromkeys(re.findall(r'name="(key\.\w+)" value="1" checked', text), "1")


def start_import(owner: Browser, name: str, content: bytes) -> dict[str, str]:
    page = owner.upload(owner.at("acme", "/console/datapool/import_goods/import"), (name, content))
    assert page.status_code == 200, page.text
    return read_column_form(page.text)


def test_a_file_is_imported_after_a_dry_run(owner: Browser, goods: httpx.Client) -> None:
    form = start_import(owner, "goods.csv", CSV.encode("cp1252"))
    assert form == {"m0": "sku", "m1": "unit_price", "m2": "shipped", "m3": "packed", "m4": "", "key.sku": "1"}
    at = owner.url
    owner.post(f"{at}/try", form | {"empty": "NULL"})
    text = wait_for_import(owner)
    assert rows(goods) == [], "a dry run stores nothing"
    assert "Import 3 rows" in text
    reported = re.findall(r'<td class="number">(\d+)</td><td class="mono">(\w+)</td>', text)
    assert sorted(reported) == [("5", "shipped"), ("5", "unit_price")], "lines are those of the file, also after a two-line cell"
    errors = owner.get(f"{at}/errors").text.splitlines()
    assert errors[0] == "line,field,code,message"
    assert errors[1].startswith("5,unit_price,invalid_format,")
    owner.url = at
    owner.post(f"{at}/run", {})
    assert "Imported" in wait_for_import(owner)
    first, second = rows(goods)
    assert (first["sku"], first["unit_price"], first["shipped"], first["packed"]) == ("a-1", "1.00", None, None)
    assert (second["sku"], second["unit_price"]) == ("a-2", None)
    assert owner.post(f"{at}/run", {}).status_code == 409, "a form submitted twice imports once"
    assert len(rows(goods)) == 2


def test_a_workbook_is_read_like_a_csv_file(owner: Browser, goods: httpx.Client) -> None:
    book = openpyxl.Workbook()
    sheet = book.create_sheet("goods", 0)
    for row in (["sku", "Unit Price", "comment"], [1001, 2.5, "=SUM(1)"], ["b", None, "é"]):
        sheet.append(row)
    file = io.BytesIO()
    book.save(file)
    form = start_import(owner, "goods.xlsx", file.getvalue())
    at = owner.url
    assert 'name="decimal"' not in owner.get(at).text
    owner.post(f"{at}/try", form | {"decimal": ","})
    assert "Import 2 rows" in wait_for_import(owner)
    owner.post(f"{at}/run", {})
    wait_for_import(owner)
    assert [(row["sku"], row["unit_price"]) for row in rows(goods)] == [("1001", "2.50"), ("b", None)]


def test_numbers_with_a_comma_and_days_with_points_are_read(owner: Browser, goods: httpx.Client) -> None:
    """As a German spreadsheet writes them; a workbook has numbers and days of its own, so nothing is chosen for it."""
    rows_of = "sku;Unit Price;Shipped;Packed\na;1.234,50;31.01.2026;31.01.2026 14:30\nb;7,5;1.2.2026;1.2.2026 9:05:30\n"
    form = start_import(owner, "goods.csv", rows_of.encode())
    at = owner.url
    assert 'name="decimal"' in owner.get(at).text
    owner.url = at
    refused = owner.post(f"{at}/try", form | {"decimal": "x"})
    assert refused.status_code == 422
    assert "decimal separator" in refused.text
    owner.post(f"{at}/try", form | {"decimal": ","})
    text = wait_for_import(owner)
    assert "Import 2 rows" in text
    assert re.search(r'<option value="," selected>', text), "choices stay selected"
    owner.post(f"{at}/run", {})
    wait_for_import(owner)
    assert [(row["unit_price"], row["shipped"], row["packed"]) for row in rows(goods)] == [
        ("1234.50", "2026-01-31", "2026-01-31T14:30:00.000Z"), ("7.50", "2026-02-01", "2026-02-01T09:05:30.000Z"),
    ]  # fmt: skip


def test_lines_of_json_are_imported_by_their_members(owner: Browser, goods: httpx.Client) -> None:
    form = start_import(owner, "goods.ndjson", b'{"Sku": "x", "note": "n"}\n{"Sku": "y"}\n{broken\n')
    assert form["m0"] == "sku"
    at = owner.url
    owner.post(f"{at}/try", form | {"m1": "comment"})
    assert "Import 2 rows" in wait_for_import(owner)
    owner.post(f"{at}/run", {})
    wait_for_import(owner)
    assert [(row["sku"], row["comment"]) for row in rows(goods)] == [("x", "n"), ("y", None)]


def test_of_two_columns_of_one_name_one_is_imported(owner: Browser, goods: httpx.Client) -> None:
    form = start_import(owner, "goods.csv", b"sku,comment,Comment,comment\nx,1,2,3\n")
    assert form == {"m0": "sku", "m1": "comment", "m2": "", "m3": "", "key.sku": "1"}, "each field is selected once"
    at = owner.url
    owner.post(f"{at}/try", form | {"m1": "", "m3": "comment"})
    text = wait_for_import(owner)
    assert "Import 1 row" in text
    assert read_column_form(text) == form | {"m1": "", "m3": "comment"}
    owner.post(f"{at}/run", {})
    wait_for_import(owner)
    assert [(row["sku"], row["comment"]) for row in rows(goods)] == [("x", "3")]


def test_a_wrong_guess_about_the_file_can_be_corrected(owner: Browser, goods: httpx.Client) -> None:
    start_import(owner, "goods.csv", "sku,comment\nä,x;y\n".encode("cp1252"))
    at = owner.url
    page = owner.post(f"{at}/look", {"delimiter": ",", "encoding": "cp850"})
    assert "õ" in page.text
    assert owner.post(f"{at}/look", {"delimiter": ",", "encoding": "nope"}).status_code == 422
    assert owner.post(f"{at}/look", {"delimiter": "x", "encoding": "utf-8"}).status_code == 422


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"m1": "sku"}, "are mapped to sku; map only one"),
        ({"m0": "", "m1": "", "key.sku": ""}, "Map at least one column"),
        ({"m0": ""}, "Sku identifies the entities"),
        ({"m0": "id"}, "Import_goods has no field &#39;id&#39;"),
    ],
)
def test_columns_that_make_no_sense_are_refused(owner: Browser, goods: httpx.Client, changed: dict[str, str], message: str) -> None:
    form = start_import(owner, "goods.csv", b"sku,comment\n1,2\n")
    page = owner.post(f"{owner.url}/try", {name: value for name, value in (form | changed).items() if value})
    assert page.status_code == 422
    assert message in page.text


@pytest.mark.parametrize(("name", "content"), [("a.csv", b""), ("a.csv", b"sku,comment\n"), ("a.xlsx", b"no workbook")])
def test_an_empty_file_is_refused_at_its_field(
    owner: Browser, goods: httpx.Client, name: str, content: bytes
) -> None:
    page = owner.upload(owner.at("acme", "/console/datapool/import_goods/import"), (name, content))
    assert page.status_code == 422
    assert 'id="file-error"' in page.text


def test_nobody_else_sees_or_runs_an_import(
    owner: Browser, signed_in: Callable[[str], Browser], goods: httpx.Client
) -> None:
    start_import(owner, "goods.csv", b"sku,comment\n1,2\n")
    path = owner.url.partition("/console")[2]
    builder, viewer = signed_in("builder@acme.test"), signed_in("viewer@acme.test")
    assert builder.get(builder.at("acme", f"/console{path}")).status_code == 404
    assert viewer.get(viewer.at("acme", f"/console{path}")).status_code == 403
    new = viewer.at("acme", "/console/datapool/import_goods/import")
    assert viewer.upload(new, ("a.csv", b"sku\n1\n")).status_code == 403
    assert owner.upload(new, ("a.csv", b"sku\n1\n"), {}, **{"Sec-Fetch-Site": "cross-site"}).status_code == 403
    assert rows(goods) == []
