"""XLSX: reads the rows of one sheet, with the cached values of formulas and dates as ISO 8601."""

import datetime
import errno
import math
import zipfile
import zlib
from collections.abc import Iterator
from typing import Any

from . import encodings
from .encryption import check_package_not_encrypted
from .errors import ContentInvalid, ContentTooLarge
from .request import Records, Request
from .rows import build_row, column_names, to_exact_json

MAX_CELL_BYTES = 1 << 20  # Bytes between two tags; spreadsheets allow 32,767 characters in a cell.
CHUNK = 1 << 20
_READ_ERRORS = (zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError, RuntimeError)
_ERRORS = frozenset({"#DIV/0!", "#N/A", "#NAME?", "#NULL!", "#NUM!", "#REF!", "#VALUE!"})


def load() -> None:
    encodings.load()
    import defusedxml.ElementTree  # noqa: F401
    import openpyxl.reader.excel  # noqa: F401


def parse(request: Request) -> dict[str, Any]:
    """Write a record per row of the selected sheet; empty rows are skipped."""
    import openpyxl

    _check_sizes(request)
    try:
        book = openpyxl.load_workbook(request.content, read_only=True, data_only=True, keep_links=False)
        sheet = _select_sheet(book, request.options.get("sheet"))
        sheet.reset_dimensions()  # The dimensions declared in the file may be wrong.
        facts = _write_rows(sheet, request)
    except (ContentInvalid, ContentTooLarge, MemoryError):
        raise
    except Exception as error:  # openpyxl does not wrap the errors of its XML, number and date parsers.
        if isinstance(error, OSError) and error.errno == errno.EFBIG:
            raise
        raise ContentInvalid(
            f"the content cannot be read as XLSX ({type(error).__name__}: {str(error)[:120]}); save the file again"
        ) from error
    return facts | {"sheet": sheet.title, "sheets": book.sheetnames}


def _check_sizes(request: Request) -> None:
    """Reject zip bombs by the declared sizes; the reader never returns more of a member than that."""
    check_package_not_encrypted(request.content)
    try:
        with zipfile.ZipFile(request.content) as archive:
            members = archive.infolist()
            if len(members) > request.limits.files:
                raise ContentTooLarge(f"the workbook has more than {request.limits.files} parts")
            if sum(member.file_size for member in members) > request.limits.bytes:
                raise ContentTooLarge(f"the workbook unpacks to more than {request.limits.bytes >> 20} MB")
            for member in members:
                if member.filename.startswith("xl/") and member.filename.endswith(".xml"):
                    _check_cell_sizes(archive, member)
    except _READ_ERRORS as error:
        raise ContentInvalid("the content is not an XLSX file; save an older .xls file as .xlsx") from error
    request.content.seek(0)


def _check_cell_sizes(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> None:
    """Reject a cell that is too large: XML parsers copy text several times and rescan an attribute with every chunk."""
    length = 0
    with archive.open(member) as part:
        while chunk := part.read(CHUNK):
            tag = chunk.find(b"<")
            length += len(chunk) if tag < 0 else tag
            if length > MAX_CELL_BYTES:
                raise ContentTooLarge(
                    f"the workbook's part {member.filename[:60]} has a cell of more than {MAX_CELL_BYTES >> 20} MB; "
                    "a cell can have at most 32,767 characters"
                )
            if tag >= 0:
                length = len(chunk) - chunk.rfind(b"<") - 1


def _select_sheet(book: Any, selection: str | int | None) -> Any:
    """The sheet with this name or number (the first is 1); the first sheet by default."""
    sheets = {sheet.title: sheet for sheet in book.worksheets}
    if selection is None:
        selection = 1
    if isinstance(selection, int) and 1 <= selection <= len(sheets):
        return book.worksheets[selection - 1]
    if selection in sheets:
        return sheets[selection]
    names = ", ".join(sheets)[:300] or "none with cells"
    raise ContentInvalid(f"there is no sheet {str(selection)[:60]!r}; available sheets: {names}")


def _write_rows(sheet: Any, request: Request) -> dict[str, Any]:
    header, types = request.option("header", True), request.option("types", {})
    records = Records(request.output)
    columns: list[str] | None = None
    for number, cells in _iterate_rows(sheet):
        if columns is None and header is not False:
            columns = column_names(cells if header is True else header)
            if header is True:
                continue
        if columns is None:
            records.add(cells)
            continue
        if len(cells) > len(columns):
            raise ContentInvalid(
                f"row {number} has {len(cells)} cells, but the header has {len(columns)}; name the other columns in the header"
            )
        full = cells + [None] * (len(columns) - len(cells))
        records.add(build_row(columns, full, types, f"row {number}"))
    return {"columns": columns or [], "count": records.count}


def _iterate_rows(sheet: Any) -> Iterator[tuple[int, list[Any]]]:
    """The number and the cells of each non-empty row, without trailing empty cells."""
    for number, values in enumerate(sheet.iter_rows(values_only=True), 1):
        cells = [_to_json(value) for value in values]
        while cells and cells[-1] is None:
            cells.pop()
        if cells:
            yield number, cells


def _to_json(value: Any) -> Any:
    """The value of a cell as JSON: dates and times as ISO 8601, durations in seconds, errors as null."""
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, str):
        return None if value in _ERRORS or value == "" else value.replace("\x00", "")
    if isinstance(value, int):
        return to_exact_json(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            return None
        return to_exact_json(int(value)) if value.is_integer() and abs(value) < 1e15 else value
    if isinstance(value, datetime.datetime):
        is_day = value.time() == datetime.time(0)
        return value.date().isoformat() if is_day else value.isoformat(timespec="milliseconds" if value.microsecond else "seconds")
    if isinstance(value, datetime.timedelta):
        return value.total_seconds()
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    return str(value)
