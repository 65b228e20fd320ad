"""Writes XLSX row by row, with numbers, booleans and texts; no cell is a formula.

It does not use openpyxl, because that needs temporary files, which the worker cannot open.
Parts and cell types: ECMA-376 part 1, SpreadsheetML.
"""

import html
import json
import math
import re
import zipfile
from collections.abc import Sequence
from typing import Any

from .errors import ContentInvalid
from .request import Request
from .rows import find_columns, read_rows, scalar_text

MAX_ROWS, MAX_CELL_LENGTH, MAX_SHEET_NAME_LENGTH = 1_048_576, 32_767, 31
_SHEET_NAME = re.compile(r"[^\[\]:*?/\\\x00-\x1f]+")
_UNWRITABLE = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
_FIXED_TIME = (1980, 1, 1, 0, 0, 0)  # A fixed time makes the bytes reproducible.
_MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
_DOCUMENT = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_PACKAGE = "http://schemas.openxmlformats.org/package/2006"
_TYPE = "application/vnd.openxmlformats-officedocument.spreadsheetml"
_HEAD = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n'
_PARTS = {
    "[Content_Types].xml": f'<Types xmlns="{_PACKAGE}/content-types"><Default Extension="rels" '
    'ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
    '<Default Extension="xml" ContentType="application/xml"/>'
    f'<Override PartName="/xl/workbook.xml" ContentType="{_TYPE}.sheet.main+xml"/>'
    f'<Override PartName="/xl/styles.xml" ContentType="{_TYPE}.styles+xml"/>'
    f'<Override PartName="/xl/worksheets/sheet1.xml" ContentType="{_TYPE}.worksheet+xml"/></Types>',
    "_rels/.rels": f'<Relationships xmlns="{_PACKAGE}/relationships"><Relationship Id="rId1" Type="{_DOCUMENT}/officeDocument" '
    'Target="xl/workbook.xml"/></Relationships>',
    "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="{_PACKAGE}/relationships">'
    f'<Relationship Id="rId1" Type="{_DOCUMENT}/worksheet" Target="worksheets/sheet1.xml"/>'
    f'<Relationship Id="rId2" Type="{_DOCUMENT}/styles" Target="styles.xml"/></Relationships>',
    "xl/styles.xml": f'<styleSheet xmlns="{_MAIN}"><fonts count="2"><font><sz val="11"/><name val="Calibri"/></font>'
    '<font><b/><sz val="11"/><name val="Calibri"/></font></fonts><fills count="2"><fill><patternFill patternType="none"/></fill>'
    '<fill><patternFill patternType="gray125"/></fill></fills><borders count="1"><border><left/><right/><top/><bottom/><diagonal/>'
    '</border></borders><cellStyleXfs count="1"><xf numFmtId="0" fontId="0" fillId="0" borderId="0"/></cellStyleXfs>'
    '<cellXfs count="2"><xf numFmtId="0" fontId="0" fillId="0" borderId="0" xfId="0"/>'
    '<xf numFmtId="0" fontId="1" fillId="0" borderId="0" xfId="0" applyFont="1"/></cellXfs>'
    '<cellStyles count="1"><cellStyle name="Normal" xfId="0" builtinId="0"/></cellStyles></styleSheet>',
}
_FROZEN_HEADER = (
    '<sheetViews><sheetView workbookViewId="0"><pane ySplit="1" topLeftCell="A2" activePane="bottomLeft" state="frozen"/>'
    "</sheetView></sheetViews>"
)


def load() -> None:
    """Nothing but the standard library is needed."""


def write(request: Request) -> dict[str, Any]:
    """Write one sheet with a bold, frozen header."""
    name = request.option("sheet", "Sheet1")
    if (
        not isinstance(name, str)
        or len(name) > MAX_SHEET_NAME_LENGTH
        or not _SHEET_NAME.fullmatch(name)
        or name[0] == "'"
        or name[-1] == "'"
    ):
        raise ContentInvalid(f"`sheet` must be 1 to {MAX_SHEET_NAME_LENGTH} characters without [ ] : * ? / \\")
    columns = find_columns(request)
    has_header = bool(columns) and bool(request.option("header", True))
    with zipfile.ZipFile(request.output, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
        for path, text in _PARTS.items():
            archive.writestr(_member(path), _HEAD + text)
        sheets = f'<sheets><sheet name="{html.escape(name)}" sheetId="1" r:id="rId1"/></sheets>'
        book = f'<workbook xmlns="{_MAIN}" xmlns:r="{_DOCUMENT}">{sheets}</workbook>'
        archive.writestr(_member("xl/workbook.xml"), _HEAD + book)
        with archive.open(_member("xl/worksheets/sheet1.xml"), "w", force_zip64=True) as sheet:
            sheet.write(f'{_HEAD}<worksheet xmlns="{_MAIN}">{_FROZEN_HEADER if has_header else ""}<sheetData>'.encode())
            if has_header:
                sheet.write(_format_row(1, columns, style=1))
            count = 0
            for cells in read_rows(request, columns):
                count += 1
                if count + has_header > MAX_ROWS:
                    raise ContentInvalid(f"a sheet can have at most {MAX_ROWS} rows; write CSV instead")
                sheet.write(_format_row(count + has_header, cells, style=0))
            sheet.write(b"</sheetData></worksheet>")
    return {"columns": columns, "count": count}


def _member(path: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(path, _FIXED_TIME)
    info.compress_type = zipfile.ZIP_DEFLATED
    return info


def _format_row(number: int, cells: Sequence[Any], *, style: int) -> bytes:
    style_attribute = f' s="{style}"' if style else ""
    cells_xml = (_format_cell(f"{column_letters(place)}{number}", value, style_attribute) for place, value in enumerate(cells, 1))
    return f'<row r="{number}">{"".join(cells_xml)}</row>'.encode()


def _format_cell(place: str, value: Any, style: str) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return f'<c r="{place}"{style} t="b"><v>{int(value)}</v></c>'
    if isinstance(value, int | float) and math.isfinite(value) and len(repr(value)) < 18:
        return f'<c r="{place}"{style}><v>{value!r}</v></c>'
    text = json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else scalar_text(value)
    if len(text) > MAX_CELL_LENGTH:
        raise ContentInvalid(f"cell {place} has {len(text)} characters; the maximum in XLSX is {MAX_CELL_LENGTH}")
    safe = html.escape(_UNWRITABLE.sub("\ufffd", text), quote=False)
    return f'<c r="{place}"{style} t="inlineStr"><is><t xml:space="preserve">{safe}</t></is></c>'


def column_letters(number: int) -> str:
    """The letters of a column number: 1 is A, 27 is AA."""
    letters = ""
    while number:
        number, rest = divmod(number - 1, 26)
        letters = chr(65 + rest) + letters
    return letters
