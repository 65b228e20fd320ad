"""The `file` step: documents read into rows and values, rows written into documents, each once."""

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import openpyxl
import pypdfium2
import pytest

from appliance.core.pages import PageRequest
from appliance.datapool import service as datapool
from appliance.documents import DocumentFilter, NewDocument
from appliance.processes.executions.service import Execution

from .world import World, rule

NORTHWIND = Path(__file__).parents[2] / "../shared/data/northwind"
CSV = 'number,total,customer\n1,10.50,Müller\n2,7.00,"Søn, & Co"\n'
ORDERS = [{"number": "1", "total": "10.50", "customer": "Müller"}, {"number": "2", "total": "7.00", "customer": "Søn, & Co"}]


def store(world: World, name: str, content: bytes | str) -> str:
    data = content.encode() if isinstance(content, str) else content
    return world.flow.runner.tools.documents.store_document(world.scope, NewDocument(name), data).id


def content_of(world: World, document_id: str) -> bytes:
    return world.flow.runner.tools.documents.open_content(world.scope, document_id).read(1 << 24)


def documents(world: World, name: str) -> int:
    return len(
        world.flow.runner.tools.documents.list_documents(world.scope, DocumentFilter(name=name), PageRequest(limit=100)).items
    )


def run(world: World, payload: Any, **members: Any) -> Execution:
    """One `file` step."""
    return world.run([{"id": "it", "file": members}], payload)


def output(world: World, payload: Any, **members: Any) -> Any:
    result = run(world, payload, **members)
    assert result.status == "succeeded", result.error
    return result.output


@pytest.fixture(scope="module", autouse=True)
def orders(flow_world: World) -> None:
    fields = [
        {"name": "number", "type": "integer", "unique": True}, {"name": "total", "type": "decimal"},
        {"name": "customer", "type": "text"},
    ]  # fmt: skip
    datapool.create_collection(flow_world.scope, {"name": "orders", "fields": fields})


@pytest.fixture
def rows(world: World) -> Any:
    """Reads the rows of `orders`; deletes them first."""

    def read_rows() -> list[tuple[Any, ...]]:
        items = datapool.query_entities(world.scope, "orders", {"sort": "number", "limit": 500}).items
        return [(item["number"], item["total"], item["customer"]) for item in items]

    for item in datapool.query_entities(world.scope, "orders", {"limit": 500}).items:
        datapool.delete_entity(world.scope, "orders", item["id"])
    return read_rows


def test_a_table_becomes_rows(world: World) -> None:
    inputs = {"document": store(world, "orders.csv", CSV)}
    result = output(world, inputs, operation="parse", document="= input.document")
    assert result["rows"] == ORDERS
    assert (result["columns"], result["delimiter"], result["encoding"]) == (["number", "total", "customer"], ",", "utf-8")


@pytest.mark.parametrize(
    ("name", "content", "members", "expected"),
    [
        ("a.json", '{"a": [1]}', {}, {"data": {"a": [1]}, "encoding": "utf-8"}),
        ("a.json", "[1, 2]", {"format": "json", "each": True}, {"rows": [1, 2], "encoding": "utf-8", "count": 2}),
        ("a.ndjson", '{"a":1}\n', {}, {"rows": [{"a": 1}], "encoding": "utf-8", "count": 1}),
        ("a.xml", "<o><l>1</l></o>", {}, {"data": {"o": {"l": "1"}}}),
        ("a.xml", "<o><l>1</l></o>", {"format": "xml", "each": "l"}, {"rows": ["1"], "count": 1}),
        ("a.txt", "Größe", {}, {"text": "Größe", "encoding": "utf-8"}),
    ],
)  # fmt: skip
def test_other_formats_become_values(world: World, name: str, content: str, members: dict[str, Any], expected: Any) -> None:
    inputs = {"document": {"id": store(world, name, content)}}
    assert output(world, inputs, operation="parse", document="= input.document", **members) == expected


def test_what_is_written_is_a_document_that_reads_back(world: World) -> None:
    for form in ("csv", "xlsx", "ndjson", "json"):
        write = {"operation": "write", "format": form, "data": "= input.rows", "name": f"out.{form}", "folder": "a/b"}
        read = {"operation": "parse", "document": "= steps.made.document"} | (
            {"format": form, "each": True} if form == "json" else {}
        )
        steps = [{"id": "made", "file": write}, {"id": "back", "file": read}]
        result = world.run(steps, {"rows": ORDERS})
        assert result.output["rows"] == ORDERS, result.error
        created = world.steps(result)["made"].output["document"]
        size = len(content_of(world, created["id"]))
        assert (created["name"], created["folder"], created["size"]) == (f"out.{form}", "a/b", size)


def test_xml_text_and_pages_are_written(world: World) -> None:
    created = output(world, {}, operation="write", format="xml", data={"o": {"@n": 1, "l": ["a", "b"]}}, name="o.xml")
    assert b'<o n="1">' in content_of(world, created["document"]["id"])
    created = output(world, {}, operation="write", format="text", data="Größe", encoding="latin-1", name="o.txt")
    assert content_of(world, created["document"]["id"]) == "Größe".encode("latin-1")
    created = output(world, {"n": 7}, operation="convert", format="pdf", content="# Invoice {{ input.n }}", name="invoice.pdf")
    assert (created["document"]["media_type"], created["pages"]) == ("application/pdf", 1)
    read = output(world, created, operation="parse", document="= input.document")
    assert "Invoice 7" in read["text"]
    assert [page["page"] for page in read["pages"]] == [1]
    text = pypdfium2.PdfDocument(content_of(world, created["document"]["id"]))[0].get_textpage().get_text_bounded()
    assert "Invoice 7" in text
    page = store(world, "page.md", "# Hello <script>")
    created = output(world, {"page": page}, operation="convert", format="html", document="= input.page", name="page.html")
    assert b"<h1>Hello &lt;script&gt;</h1>" in content_of(world, created["document"]["id"])


def test_documents_are_packed_and_unpacked(world: World) -> None:
    inputs = {"documents": [store(world, "a.txt", "A"), store(world, "b.txt", "B")]}
    steps = [
        {
            "id": "packed",
            "file": {"operation": "zip", "documents": ["= input.documents[0]", "= input.documents[1]"], "name": "all.zip"},
        },
        {"id": "out", "file": {"operation": "unzip", "document": "= steps.packed.document", "folder": "unpacked", "only": ["b*"]}},
    ]
    result = world.run(steps, inputs)
    assert result.status == "succeeded", result.error
    assert [each["path"] for each in result.output["documents"]] == ["b.txt"]
    assert content_of(world, result.output["documents"][0]["id"]) == b"B"
    archive = io.BytesIO(content_of(world, world.steps(result)["packed"].output["document"]["id"]))
    assert zipfile.ZipFile(archive).namelist() == ["a.txt", "b.txt"]


def test_unpacked_files_are_in_their_folders(world: World) -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("x/y/a.txt", "A")
    inputs = {"document": store(world, "in.zip", out.getvalue())}
    result = output(world, inputs, operation="unzip", document="= input.document", folder="new", tags=["t"])
    assert [(each["folder"], each["name"], each["tags"]) for each in result["documents"]] == [("new/x/y", "a.txt", ["t"])]


def test_rows_go_into_a_collection_as_its_fields_demand(world: World, rows: Any) -> None:
    inputs = {"document": store(world, "orders.csv", CSV)}
    to = {"collection": "orders", "key": ["number"]}
    first = output(world, inputs, operation="parse", document="= input.document", to=to)
    counts = {"rows": 2, "created": 2, "updated": 0, "unchanged": 0, "failed": 0, "errors": []}
    assert first == {"collection": "orders", **counts}
    assert rows() == [(1, "10.5", "Müller"), (2, "7", "Søn, & Co")]
    again = output(world, inputs, operation="parse", document="= input.document", to=to)
    assert (again["created"], again["unchanged"]) == (0, 2)


def test_columns_are_chosen_for_fields(world: World, rows: Any) -> None:
    book = openpyxl.Workbook()
    sheet = book.active
    assert sheet is not None
    for row in (["No", "Sum", "x"], [5, 1.5, None], [6, 2, "y"]):
        sheet.append(row)
    out = io.BytesIO()
    book.save(out)
    to = {"collection": "orders", "fields": {"number": "No", "total": "Sum"}}
    result = output(world, {"d": store(world, "o.xlsx", out.getvalue())}, operation="parse", document="= input.d", to=to)
    assert result["created"] == 2
    assert rows() == [(5, "1.5", None), (6, "2", None)]


def test_rows_that_are_not_accepted_are_refused_or_reported(world: World, rows: Any) -> None:
    inputs = {"document": store(world, "orders.csv", CSV + "x,1,\n3,1,\n")}
    failed = run(world, inputs, operation="parse", document="= input.document", to={"collection": "orders"})
    assert failed.error is not None
    assert (failed.error["code"], failed.error["failure_class"]) == ("rows_refused", "validation")
    assert "row 3, number" in failed.error["message"]
    assert rows() == []
    report = output(
        world, inputs, operation="parse", document="= input.document", to={"collection": "orders", "on_error": "report"}
    )
    assert (report["created"], report["failed"], report["errors"][0]["row"], report["errors"][0]["field"]) == (3, 1, 3, "number")
    lines = "\n".join(json.dumps({"number": n, "total": "1", "customer": None}) for n in (7, "x", 9))
    typed = {"document": store(world, "o.ndjson", lines)}
    report = output(world, typed, operation="parse", document="= input.document", to={"collection": "orders", "on_error": "report"})
    assert (report["created"], report["errors"][0]["row"]) == (2, 2)


def test_rows_become_a_document_when_they_are_many(world: World) -> None:
    inputs = {"document": store(world, "big.csv", "a\n" + "x" * 100 + "\n" * 1 + ("y" * 100 + "\n") * 12_000)}
    failed = run(world, inputs, operation="parse", document="= input.document")
    assert failed.error is not None
    assert failed.error["code"] == "output_too_large"
    assert "as: document" in failed.error["message"]
    created = output(world, inputs, operation="parse", format="csv", document="= input.document", **{"as": "document"})
    assert (created["document"]["name"], created["count"]) == ("big.ndjson", 12_001)
    assert content_of(world, created["document"]["id"]).startswith(b'{"a":"xxx')


@pytest.mark.parametrize(
    ("members", "code", "message"),
    [
        ({"operation": "parse", "document": "doc_none"}, "not_found", ""),
        ({"operation": "parse", "document": "= 7"}, "arguments_invalid", "document"),
        ({"operation": "parse", "document": "= input.odd"}, "format_unknown", "`format`"),
        ({"operation": "parse", "format": "xlsx", "document": "= input.csv"}, "content_invalid", "not an XLSX"),
        (
            {"operation": "parse", "format": "csv", "document": "= input.csv", "delimiter": "= 'xx'"}, "arguments_invalid",
            "delimiter",
        ),
        ({"operation": "parse", "document": "= input.txt", "to": {"collection": "orders"}}, "arguments_invalid", "no rows"),
        ({"operation": "parse", "document": "= input.csv", "to": {"collection": "nowhere"}}, "not_found", "nowhere"),
        ({"operation": "write", "format": "csv", "data": "= 'x'", "name": "x.csv"}, "arguments_invalid", "a list of rows"),
        ({"operation": "write", "format": "csv", "data": [], "name": "a/b.csv"}, "validation_failed", "a/b.csv"),
        ({"operation": "unzip", "document": "= input.csv"}, "content_invalid", "not a readable zip"),
    ],
)  # fmt: skip
def test_an_invalid_file_step_fails_with_the_reason(world: World, members: dict[str, Any], code: str, message: str) -> None:
    inputs = {"csv": store(world, "a.csv", CSV), "odd": store(world, "a.bin", b"\x00\x01"), "txt": store(world, "a.txt", "x")}
    failed = run(world, inputs, **members)
    assert failed.error is not None
    assert (failed.error["code"], failed.error["failure_class"]) == (code, "validation")
    assert message in failed.error["message"]


def test_a_document_of_another_tenant_is_not_found(world: World) -> None:
    foreign = world.flow.runner.tools.documents.store_document(world.other, NewDocument("theirs.csv"), b"a\n1\n").id
    failed = run(world, {"d": foreign}, operation="parse", document="= input.d")
    assert failed.error is not None
    assert failed.error["code"] == "not_found"


def test_limits_of_the_step_hold(world: World) -> None:
    inputs = {"d": store(world, "deep.json", b"[" + b"[[],[]]," * 2_000_000 + b"1]")}
    result = world.run([{"id": "it", "file": {"operation": "parse", "document": "= input.d"}, "limits": {"memory_mb": 16}}], inputs)
    assert result.error is not None
    assert (result.error["code"], result.error["failure_class"]) == ("content_memory", "memory")
    result = world.run([{"id": "it", "file": {"operation": "parse", "document": "= input.d"}, "limits": {"time": "60ms"}}], inputs)
    assert result.error is not None
    assert (result.error["code"], result.error["failure_class"]) == ("content_timeout", "timeout")


def test_real_tables_flow_through_a_process(world: World) -> None:
    path = NORTHWIND / "orders.csv"
    data = path.read_bytes() if path.exists() else b"OrderID,ShipCountry\n" + b"10248,France\n" * 830
    steps = [
        {"id": "read", "file": {"operation": "parse", "document": "= input.d", "types": {"OrderID": "integer"}, "format": "csv"}},
        rule("french", "= steps.read.rows.filter(r => r.ShipCountry === 'France')"),
        {"id": "sheet", "file": {"operation": "write", "format": "xlsx", "data": "= steps.french", "name": "french.xlsx"}},
        {"id": "back", "file": {"operation": "parse", "document": "= steps.sheet.document"}},
    ]
    result = world.run(steps, {"d": store(world, "orders.csv", data)})
    assert result.status == "succeeded", result.error
    assert result.output["count"] == len(world.steps(result)["french"].output) > 50
    assert isinstance(result.output["rows"][0]["OrderID"], int)
