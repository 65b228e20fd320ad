"""CSV and XLSX: what real files hold comes out, what is written comes back, and nothing executes."""

import csv
import datetime
import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path

import openpyxl
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from openpyxl.utils import get_column_letter

from appliance.formats import Bounds, FormatFailed
from appliance.formats.csv_text import detect_delimiter
from appliance.formats.xlsx_writing import column_letters

from .conftest import MEGABYTE, Perform

FailureOf = Callable[..., FormatFailed]
NORTHWIND = Path(__file__).parents[2] / "../shared/data/northwind"
CYRILLIC = (
    "\u0438\u043c\u044f;\u0433\u043e\u0440\u043e\u0434\n\u0418\u0432\u0430\u043d;\u041c\u043e\u0441\u043a\u0432\u0430\n"
    + "\u0421\u0430\u043d\u043a\u0442;\u041f\u0435\u0442\u0435\u0440\u0431\u0443\u0440\u0433\n" * 3
)
ROWS = [{"a": 1, "b": "=1+1", "c": "-5.5"}, {"a": 2.5, "d": True, "b": 'Ünïcödé "q", and\nmore'}]


def lines(*rows: object) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


@pytest.mark.parametrize("name", ["orders", "customers", "order_details", "products", "suppliers"])
def test_real_tables_come_out_cell_by_cell(perform: Perform, name: str) -> None:
    path = NORTHWIND / f"{name}.csv"
    if not path.exists():  # without the shared sample data, use our own
        path = Path(__file__).parents[2] / "appliance/starter/sample/orders.csv"
    result = perform("parse.csv", path)
    with path.open(encoding="utf-8-sig", newline="") as file:
        expected = list(csv.DictReader(file, delimiter=result.facts["delimiter"]))
    assert result.records == expected
    assert result.facts["count"] == len(expected) > 1


@pytest.mark.parametrize(
    ("content", "delimiter", "encoding", "first"),
    [
        ("Name;Größe\nMüller;1,5\n".encode("cp1252"), ";", "cp1252", {"Name": "Müller", "Größe": "1,5"}),
        ("\ufeffa,b\n1,2\n".encode(), ",", "utf-8", {"a": "1", "b": "2"}),
        ("a\tb\nä\t2\n".encode("utf-16"), "\t", "utf-16", {"a": "ä", "b": "2"}),
        (b'a|b\n"x\ny"|"1|2"\n', "|", "utf-8", {"a": "x\ny", "b": "1|2"}),
        (b"only\nx\n", ",", "utf-8", {"only": "x"}),
        (
            CYRILLIC.encode("cp1251"),
            ";",
            "cp1251",
            {
                "\u0438\u043c\u044f": "\u0418\u0432\u0430\u043d",
                "\u0433\u043e\u0440\u043e\u0434": "\u041c\u043e\u0441\u043a\u0432\u0430",
            },
        ),
    ],
)
def test_dialect_and_encoding_are_detected(
    perform: Perform, content: bytes, delimiter: str, encoding: str, first: dict[str, str]
) -> None:
    result = perform("parse.csv", content)
    assert (result.facts["delimiter"], result.facts["encoding"], result.records[0]) == (delimiter, encoding, first)


def test_options_override_detection(perform: Perform) -> None:
    content = "a;b\n'x;y';é\n".encode("latin-1")
    result = perform("parse.csv", content, delimiter=";", quote="'", encoding="latin-1")
    assert result.records == [{"a": "x;y", "b": "é"}]
    assert perform("parse.csv", b"1,2\n3,4\n", header=False).records == [["1", "2"], ["3", "4"]]
    assert perform("parse.csv", b"1,2\n", header=["x", "y"]).records == [{"x": "1", "y": "2"}]


def test_unnamed_and_duplicate_columns_get_unique_names(perform: Perform) -> None:
    assert perform("parse.csv", b"a,,a\n1,2,3\n").records == [{"a": "1", "column_2": "2", "a_2": "3"}]


def test_cells_stay_text_without_types(perform: Perform) -> None:
    content = b"n,x,ok,big,none\n007,1.50,yes,12345678901234567890,\n"
    assert perform("parse.csv", content).records[0]["n"] == "007"
    types = {"n": "integer", "x": "number", "ok": "boolean", "big": "integer", "none": "number"}
    expected = {"n": 7, "x": 1.5, "ok": True, "big": "12345678901234567890", "none": None}
    assert perform("parse.csv", content, types=types).records == [expected]


@pytest.mark.parametrize(
    ("content", "options", "expected"),
    [
        (b"a,b\n1,2\n1,2,3\n", {}, "line 3 has 3 cells"),
        (b'a,b\n1,"2\n', {}, "line 2 is not valid CSV"),
        (b"a\n1\x002\n", {}, "NUL"),
        (b"a\nx\n", {"types": {"a": "integer"}}, "line 2: a is 'x'"),
        (b"a\nx\n", {"types": {"b": "integer"}}, "not a column"),
        (b"a\n\xff\n", {"encoding": "utf-8"}, "not valid utf-8"),
        (b"a\nx\n", {"encoding": "klingon"}, "'klingon' is unknown"),
    ],
)
def test_an_invalid_table_is_refused_with_its_line(
    failure_of: FailureOf, content: bytes, options: dict[str, object], expected: str
) -> None:
    failed = failure_of("parse.csv", content, **options)
    assert (failed.code, failed.failure_class) == ("content_invalid", "validation")
    assert expected in failed.message


def test_written_csv_is_read_back_and_executes_nothing(perform: Perform) -> None:
    written = perform("write.csv", lines(*ROWS, {"a": "@x", "b": "+49 30 123", "c": "-12,5 %", "d": "\tx"}))
    assert written.content.splitlines()[0] == b"a,b,c,d"
    records = perform("parse.csv", written.content).records
    assert records[0] == {"a": "1", "b": "'=1+1", "c": "-5.5", "d": ""}
    assert records[2] == {"a": "'@x", "b": "'+49 30 123", "c": "'-12,5 %", "d": "'\tx"}
    unchanged = perform("write.csv", lines(*ROWS), formulas="keep", delimiter=";", line_end="\n", columns=["b", "a"])
    assert unchanged.content.startswith(b"b;a\n=1+1;1\n")


def test_a_character_that_the_encoding_lacks_is_refused(failure_of: FailureOf) -> None:
    assert "row 1 cannot be written as CSV in cp1252" in failure_of("write.csv", lines({"a": "中"}), encoding="cp1252").message


def test_a_written_workbook_opens_elsewhere(perform: Perform) -> None:
    written = perform("write.xlsx", lines(*ROWS), sheet="Bestellungen & mehr")
    book = openpyxl.load_workbook(io.BytesIO(written.content))
    assert book.sheetnames == ["Bestellungen & mehr"]
    cells = [[cell.value for cell in row] for row in book.active.iter_rows()]  # type: ignore[union-attr]
    assert cells == [["a", "b", "c", "d"], [1, "=1+1", "-5.5", None], [2.5, ROWS[1]["b"], None, True]]
    assert book.active["B2"].data_type != "f"  # type: ignore[index]
    assert perform("parse.xlsx", written.content).records[1]["b"] == ROWS[1]["b"]
    assert perform("write.xlsx", lines(*ROWS)).content == perform("write.xlsx", lines(*ROWS)).content


def test_sheets_dates_errors_and_formulas_of_a_foreign_workbook(perform: Perform, failure_of: FailureOf) -> None:
    book = openpyxl.Workbook()
    first = book.active
    assert first is not None
    first.append(["when", "day", "sum", "bad", "time"])
    first.append(
        [datetime.datetime.fromisoformat("2026-03-01T14:30:00"), datetime.date(2026, 3, 2), "=1+1", "#DIV/0!", datetime.time(8, 5)]
    )
    first.append([None, None, None])
    second = book.create_sheet("Other")
    second.append(["x", None, "y"])
    second.append([1.0, 2, 3.5])
    out = io.BytesIO()
    book.save(out)
    result = perform("parse.xlsx", out.getvalue())
    assert result.records == [{"when": "2026-03-01T14:30:00", "day": "2026-03-02", "sum": None, "bad": None, "time": "08:05:00"}]
    assert result.facts["sheets"] == ["Sheet", "Other"]
    other = perform("parse.xlsx", out.getvalue(), sheet="Other").records
    assert other == [{"x": 1, "column_2": 2, "y": 3.5}] == perform("parse.xlsx", out.getvalue(), sheet=2).records
    assert "available sheets: Sheet, Other" in failure_of("parse.xlsx", out.getvalue(), sheet="None").message


def test_a_workbook_that_unpacks_to_too_much_is_refused_before_it_is_read(failure_of: FailureOf) -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("xl/workbook.xml", b"<a/>" + b" " * (40 << 20))
    assert len(out.getvalue()) < 1 << 20
    failed = failure_of("parse.xlsx", out.getvalue())
    assert (failed.code, failed.failure_class) == ("content_too_large", "validation")


def with_part(workbook: bytes, name: str, change: Callable[[bytes], bytes]) -> bytes:
    """The workbook with one part changed."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(workbook)) as old, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for info in old.infolist():
            archive.writestr(info.filename, change(old.read(info)) if info.filename == name else old.read(info))
    return out.getvalue()


@pytest.mark.parametrize("mark", [b"MARK", b"<c "])
def test_an_oversized_cell_is_refused_with_any_memory_limit(
    perform: Perform, failure_of: FailureOf, mark: bytes
) -> None:
    """As the text of a cell or as an attribute, on which a reader of XML spends minutes."""
    workbook = perform("write.xlsx", lines({"a": "before MARK", "b": 1})).content
    name = "xl/worksheets/sheet1.xml"
    huge = with_part(workbook, name, lambda part: part.replace(mark, mark + b"y" * (20 * MEGABYTE), 1))
    for memory in (32, 1024):
        failed = failure_of("parse.xlsx", huge, bounds=Bounds(60, memory, 500 * MEGABYTE))
        assert (failed.code, failed.failure_class) == ("content_too_large", "validation")
        assert f"part {name}" in failed.message
    large = with_part(workbook, name, lambda part: part.replace(b"MARK", b"y" * 500_000))
    assert perform("parse.xlsx", large).records == [{"a": "before " + "y" * 500_000, "b": 1}]


def test_a_workbook_whose_rows_exceed_the_output_limit_is_too_large(perform: Perform, failure_of: FailureOf) -> None:
    """The name of a column is in the workbook once, and in every row that is read."""
    workbook = perform("write.xlsx", lines(*({"a" * 1000: number} for number in range(2000)))).content
    failed = failure_of("parse.xlsx", workbook, bounds=Bounds(60, 256, MEGABYTE))
    assert (failed.code, failed.failure_class) == ("content_too_large", "validation")


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 no", b"a,b\n", b"\xd0\xcf\x11\xe0" + b"\0" * 600])
def test_invalid_workbooks_are_refused(failure_of: FailureOf, content: bytes) -> None:
    assert failure_of("parse.xlsx", content).code == "content_invalid"


@given(st.integers(1, 16_384))
def test_column_letters_are_those_of_spreadsheets(number: int) -> None:
    assert column_letters(number) == get_column_letter(number)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=8), min_size=3, max_size=3),
        min_size=2,
        max_size=6,
    ),
    st.sampled_from(",;\t|"),
)
@example([["0", "0", ","], ["0", "0", ","]], ";")
def test_the_delimiter_of_a_regular_table_is_found(rows: list[list[str]], delimiter: str) -> None:
    quoted = "".join(delimiter.join(f'"{cell.replace(chr(34), chr(34) * 2)}"' for cell in row) + "\n" for row in rows)
    assert detect_delimiter(quoted, '"') == delimiter
