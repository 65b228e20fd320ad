"""Files inspected before they are imported."""

import io
import json

import pytest

from appliance.core.errors import ValidationFailed
from appliance.core.scope import TenantScope
from appliance.datapool.field_suggestions import suggest_fields
from appliance.datapool.file_imports import MAX_COLUMNS, FileImports

ACME = TenantScope("acme", "key:acme")


def begin(imports: FileImports, name: str, text: str) -> list[str]:
    return imports.begin(ACME, "goods", name, io.BytesIO(text.encode())).columns


@pytest.fixture
def imports() -> FileImports:
    return FileImports(None)  # type: ignore[arg-type]  # these files are no workbooks


def table(columns: int, delimiter: str = ",") -> str:
    return delimiter.join(["a"] * columns) + "\n" + delimiter.join(["1"] * columns) + "\n"


def test_a_file_has_a_maximum_number_of_columns(imports: FileImports) -> None:
    assert len(begin(imports, "a.csv", table(MAX_COLUMNS))) == MAX_COLUMNS
    many = json.dumps({f"m{number}": 1 for number in range(MAX_COLUMNS + 1)})
    for name, text in (("a.csv", table(MAX_COLUMNS + 1)), ("a.ndjson", many)):
        with pytest.raises(ValidationFailed, match="more than 1,000 columns") as caught:
            begin(imports, name, text)
        assert caught.value.details[0].pointer == "/file"


def test_an_inspection_with_too_many_columns_leaves_the_file_unchanged(imports: FileImports) -> None:
    text = "|".join(["a"] * (MAX_COLUMNS + 1))
    upload = imports.begin(ACME, "goods", "a.csv", io.BytesIO(f"{text},b\n1,2\n3,4\n".encode()))
    before = (upload.columns, upload.sample, upload.delimiter)
    assert len(upload.columns) == 2
    with pytest.raises(ValidationFailed, match="more than 1,000 columns"):
        imports.inspect_again(ACME, upload.id, "|", "utf-8")
    assert (upload.columns, upload.sample, upload.delimiter) == before


def test_duplicate_columns_get_unique_names() -> None:
    names = [field["name"] for field in suggest_fields(["a", "a", "a_2", "a", "Order ID", "", "1"], [])]
    assert names == ["a", "a_2", "a_2_2", "a_3", "order_id", "column_6", "column_1"]
    assert len({field["name"] for field in suggest_fields(["a"] * MAX_COLUMNS, [])}) == MAX_COLUMNS
