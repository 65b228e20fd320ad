"""Import and export: nothing is lost silently, nothing is executed."""

import csv
import gzip
import io
import json
from typing import Any

import pytest

from appliance.core.errors import PayloadTooLarge, ValidationFailed
from appliance.core.scope import TenantScope
from appliance.datapool import service as datapool
from appliance.datapool.service import ImportOptions, ImportReport


def load(scope: TenantScope, data: str | bytes, **options: Any) -> ImportReport:
    raw = data.encode() if isinstance(data, str) else data
    return datapool.import_entities(scope, "orders", io.BytesIO(raw), ImportOptions(**options))


def numbers(scope: TenantScope) -> list[str]:
    return [entity["number"] for entity in datapool.query_entities(scope, "orders", {"sort": "id"}).items]


def errors(report: ImportReport) -> list[tuple[int, str | None, str]]:
    return [(error["line"], error["field"], error["code"]) for error in report.errors]


def exported(scope: TenantScope, form: Any, **options: Any) -> str:
    return b"".join(datapool.export_entities(scope, "orders", form, **options)).decode()


def test_csv_becomes_entities_of_the_right_types(acme: TenantScope) -> None:
    data = (
        "\ufeffnumber;total;quantity;weight;paid;day;extra;contact\r\n"
        '1;10.5;3;1.5;true;2026-01-01;"{""a"": [1]}";"x@example.com"\r\n'
        '2;;;;;;;\r\n\r\n"3\r\nb";-0;7;2;0;;;\r\n'
    )
    report = load(acme, data)
    assert (report.rows, report.created, report.failed, report.stored) == (3, 3, 0, True)
    first, second, third = datapool.query_entities(acme, "orders", {"sort": "id"}).items
    assert (first["total"], first["quantity"], first["weight"], first["paid"], first["extra"]) == (
        "10.50",
        3,
        1.5,
        True,
        {"a": [1]},
    )
    assert (second["total"], second["quantity"], second["contact"]) == (None, 1, None)
    assert (third["number"], third["paid"]) == ("3\r\nb", False)


def test_every_bad_row_is_reported_by_line_and_field(acme: TenantScope) -> None:
    data = (
        b"number,total,day,customer,contact\n"
        b"1,1,2026-01-01,,\n"
        b",x,2026-13-01,,\n"
        b'"a\nb",2,,,\n'
        b"1,1,,,\n"
        b"5,1,,ent_000000000000000000000,\n"
        b"6,1\n"
        b"M\xfcller,1,yesterday,,\n"
        b'8,"x"y,,,\n'
        b"9,1,,,\n"
    )
    report = load(acme, data)
    assert errors(report) == [
        (3, "number", "required"),
        (3, "total", "invalid_format"),
        (3, "day", "invalid_format"),
        (6, "number", "not_unique"),
        (7, "customer", "not_found"),
        (8, None, "wrong_columns"),
        (9, "number", "invalid_encoding"),
        (9, "day", "invalid_format"),
        (10, None, "invalid_csv"),
    ]
    assert (report.rows, report.created, report.failed, report.error_count) == (9, 3, 6, 9)
    assert numbers(acme) == ["1", "a\nb", "9"]


def test_refuse_stores_nothing_unless_every_row_is_good(acme: TenantScope) -> None:
    report = load(acme, "number,total\n1,1\n2,x\n", on_error="refuse")
    assert (report.stored, report.failed, numbers(acme)) == (False, 1, [])
    assert load(acme, "number,total\n1,1\n2,2\n", on_error="refuse").stored
    assert numbers(acme) == ["1", "2"]


def test_values_are_read_as_a_german_spreadsheet_writes_them(acme: TenantScope) -> None:
    data = (
        "number;total;quantity;weight;paid;day\n"
        "1;1.234,5;1.000;2,5;ja;31.01.2026\n"
        "2;7,00;-3;1;no;1.2.2026\n"
        "3;12.50;1,5;1,2,3;on;32.1.2026\n"
    )
    report = load(acme, data, decimal=",")
    assert sorted(errors(report)) == [
        (4, "day", "invalid_format"), (4, "paid", "wrong_type"), (4, "quantity", "wrong_type"), (4, "total", "invalid_format"),
        (4, "weight", "invalid_format"),
    ]  # fmt: skip
    stored = datapool.query_entities(acme, "orders", {"sort": "id"}).items
    values = [[each[name] for name in ("total", "quantity", "weight", "paid", "day")] for each in stored]
    assert values == [["1234.50", 1000, 2.5, True, "2026-01-31"], ["7.00", -3, 1, False, "2026-02-01"]]
    assert errors(load(acme, "number,total\n4,\"1,5\"\n")) == [(2, "total", "invalid_format")], "a decimal comma must be set"


@pytest.mark.parametrize(
    ("data", "charset", "detected"),
    [
        (b"number\n1\n", "", "utf-8"),
        ("number\nM\u00fc\n".encode("cp1252"), "windows-1252", "cp1252"),
        ("number\nM\u00fc\n".encode("utf-16"), "", "utf-16"),
        ("number\nM\u00fc\n".encode("utf-16"), "UTF-16LE", "utf-16"),
        ("number\nM\u00fc\n".encode("utf-16-be"), "utf-16be", "utf-16-be"),
        ("\ufeffnumber\nM\u00fc\n".encode(), "UTF-8", "utf-8"),
    ],
)
def test_a_csv_is_read_in_its_charset(acme: TenantScope, data: bytes, charset: str, detected: str) -> None:
    assert datapool.detect_charset(io.BytesIO(data), "csv", charset) == detected
    assert load(acme, data, encoding=detected).created == 1
    assert numbers(acme) == ["1" if charset == "" and detected == "utf-8" else "M\u00fc"]


@pytest.mark.parametrize(
    ("data", "form", "charset", "message"),
    [
        (gzip.compress(b"number\n1\n", mtime=0), "csv", "", "gzip file.*unpack"),
        (b"PK\x03\x04rest", "csv", "", "ZIP"),
        ("number\n".encode("utf-16"), "csv", "utf-8", "is UTF-16, not utf-8"),
        ('{"a": 1}'.encode("utf-16"), "ndjson", "", "is UTF-16, but NDJSON must be UTF-8"),
        (b"{}", "ndjson", "latin-1", "NDJSON must be UTF-8"),
        (b"number", "csv", "klingon", "'klingon' is unknown"),
        (b"number", "csv", "rot13", "'rot13' is not supported"),
    ],
)
def test_a_file_of_another_format_is_named(data: bytes, form: Any, charset: str, message: str) -> None:
    with pytest.raises(ValidationFailed, match=message):
        datapool.detect_charset(io.BytesIO(data), form, charset)


def test_a_dry_run_reports_and_stores_nothing(acme: TenantScope) -> None:
    report = load(acme, "number,total\n1,1\n1,1\n", dry_run=True)
    assert (report.created, report.failed, report.stored, numbers(acme)) == (1, 1, False, [])


@pytest.mark.parametrize("options", [{"on_error": "refuse"}, {"dry_run": True}, {"in_write": True}])
def test_a_large_import_in_one_transaction_is_refused(acme: TenantScope, options: Any) -> None:
    with pytest.raises(PayloadTooLarge, match="20000 lines"):
        load(acme, "number\n" + "1\n" * 20_000, **options)


def test_a_key_makes_an_import_repeatable(acme: TenantScope) -> None:
    data = "number,total\n" + "".join(f"{n},{n}.25\n" for n in range(1200))
    assert load(acme, data, key=("number",)).created == 1200
    again = load(acme, data.replace("\n7,7.25\n", "\n7,8\n"), key=("number",))
    assert (again.created, again.updated, again.unchanged) == (0, 1, 1199)


@pytest.mark.parametrize(
    ("data", "pointer"), [("number,colour\n", "/header/1"), ("number,number\n", "/header/1"), ("number;total,x\n", "/header/0")]
)
def test_a_wrong_header_refuses_the_file(acme: TenantScope, data: str, pointer: str) -> None:
    with pytest.raises(ValidationFailed) as refusal:
        load(acme, data)
    assert refusal.value.details[0].pointer == pointer


def test_an_unknown_key_refuses_the_file(acme: TenantScope) -> None:
    with pytest.raises(ValidationFailed):
        load(acme, "number\n1\n", key=("colour",))


def test_bad_lines_of_ndjson_are_reported(acme: TenantScope) -> None:
    lines = [
        b'{"number": "1", "extra": {"a": null}}', b"", b"{", b"[1]", b'{"number": "\xff"}', b'{"number": "2", "total": NaN}',
        b'{"number": "3", "number": "4"}', b'{"number": 5}', b'{"number": "6", "id": "ent_x", "colour": 1}',
        b'{"number": "' + b"x" * (1 << 20) + b'"}', b'{"number": "\\ud800"}', b'{"number": "7", "_version": 4}', b"[" * 100_000,
    ]  # fmt: skip
    report = load(acme, b"\n".join(lines), format="ndjson")
    assert errors(report) == [
        (3, None, "invalid_json"), (4, None, "wrong_type"), (5, None, "invalid_encoding"), (6, None, "invalid_json"),
        (7, None, "invalid_json"), (8, "number", "wrong_type"), (9, "colour", "unknown_field"), (10, None, "payload_too_large"),
        (11, "number", "invalid_format"), (13, None, "invalid_json"),
    ]  # fmt: skip
    assert report.ignored_columns == ["_version", "id"]
    assert numbers(acme) == ["1", "7"]


TRICKY = ["=1+1", "+49", "-x", "@a", "\tb", "'q", "'=c", "''d", "'tis", "a,b", 'say "x"', "line\nbreak", "ä", " e "]


@pytest.mark.parametrize("form", ["csv", "ndjson"])
def test_an_export_can_be_imported_again(acme: TenantScope, globex: TenantScope, form: Any) -> None:
    for text in TRICKY:
        datapool.create_entity(
            acme, "orders", {"number": text, "total": "1.5", "paid": False, "extra": {"x": [text]}, "weight": -2}
        )
    report = load(globex, exported(acme, form), format=form)
    assert (report.created, report.errors) == (len(TRICKY), [])
    fields = ("number", "total", "paid", "extra", "weight", "quantity", "day")
    first, second = (datapool.query_entities(s, "orders", {"sort": "id"}).items for s in (acme, globex))
    assert [[e[k] for k in fields] for e in first] == [[e[k] for k in fields] for e in second]


def test_no_exported_cell_is_a_formula(acme: TenantScope) -> None:
    for text in TRICKY:
        datapool.create_entity(acme, "orders", {"number": text, "weight": -2})
    rows = list(csv.DictReader(io.StringIO(exported(acme, "csv"), newline="")))
    assert not [row["number"] for row in rows if row["number"][0] in "=+-@\t\r"]
    assert {row["weight"] for row in rows} == {"-2"}


def test_an_export_contains_every_selected_entity(acme: TenantScope, globex: TenantScope) -> None:
    datapool.create_entity(globex, "orders", {"number": "foreign"})
    for start in (0, 600):
        operations = [{"op": "create", "collection": "orders", "values": {"number": str(n)}} for n in range(start, start + 600)]
        datapool.run_batch(acme, operations)
    lines = [json.loads(line) for line in exported(acme, "ndjson").splitlines()]
    assert [line["number"] for line in lines] == [str(n) for n in range(1200)]
    assert len(exported(acme, "csv", filter_document={"number": {"_starts_with": "11"}}).splitlines()) == 1 + 1 + 10 + 100
