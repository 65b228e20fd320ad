"""XLSX: the rows of one sheet, formulas as the values they last had, dates as ISO 8601."""

import datetime
import errno
import math
import zipfile
import zlib
from collections.abc import Iterator
from typing import Any

from . import encodings
from .encryption import refuse_encrypted_package
from .failing import ContentInvalid, ContentTooLarge
from .request import Records, Request
from .rows import column_names, exact, make_row

MOST_CELL = 1 << 20  # bytes between two tags: spreadsheets allow 32,767 characters in a cell
CHUNK = 1 << 20
_BROKEN = (zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError, RuntimeError)
_ERRORS = frozenset({"#DIV/0!", "#N/A", "#NAME?", "#NULL!", "#NUM!", "#REF!", "#VALUE!"})


def load() -> None:
    encodings.load()
    import defusedxml.ElementTree  # noqa: F401
    import openpyxl.reader.excel  # noqa: F401


def parse(request: Request) -> dict[str, Any]:
    """A record per row of the chosen sheet; rows without any value are left out."""
    import openpyxl

    _refuse_bomb(request)
    try:
        book = openpyxl.load_workbook(request.content, read_only=True, data_only=True, keep_links=False)
        sheet = _choose(book, request.options.get("sheet"))
        sheet.reset_dimensions()  # what the file says of its size need not be true
        facts = _rows_of(sheet, request)
    except (ContentInvalid, ContentTooLarge, MemoryError):
        raise
    except Exception as error:  # openpyxl lets out whatever its readers of XML, numbers and dates raise
        if isinstance(error, OSError) and error.errno == errno.EFBIG:
            raise
        raise ContentInvalid(
            f"the content cannot be read as XLSX ({type(error).__name__}: {str(error)[:120]}); save it anew"
        ) from error
    return facts | {"sheet": sheet.title, "sheets": book.sheetnames}


def _refuse_bomb(request: Request) -> None:
    """Sizes as the archive declares them: its reader gives no more of a member than that."""
    refuse_encrypted_package(request.content)
    try:
        with zipfile.ZipFile(request.content) as archive:
            members = archive.infolist()
            if len(members) > request.limits.files:
                raise ContentTooLarge(f"the workbook has more than {request.limits.files} parts")
            if sum(member.file_size for member in members) > request.limits.bytes:
                raise ContentTooLarge(f"the workbook has more than {request.limits.bytes >> 20} MB unpacked")
            for member in members:
                if member.filename.startswith("xl/") and member.filename.endswith(".xml"):
                    _refuse_huge_cell(archive, member)
    except _BROKEN as error:
        raise ContentInvalid("the content is no XLSX file (older .xls files must be saved as .xlsx)") from error
    request.content.seek(0)


def _refuse_huge_cell(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> None:
    """Readers of XML hold a text several times, and an attribute's end they look for again with every piece."""
    length = 0
    with archive.open(member) as part:
        while chunk := part.read(CHUNK):
            tag = chunk.find(b"<")
            length += len(chunk) if tag < 0 else tag
            if length > MOST_CELL:
                raise ContentTooLarge(
                    f"the workbook's part {member.filename[:60]} has a cell of more than {MOST_CELL >> 20} MB; "
                    "a cell may hold 32,767 characters"
                )
            if tag >= 0:
                length = len(chunk) - chunk.rfind(b"<") - 1


def _choose(book: Any, wanted: str | int | None) -> Any:
    """The sheet of this name or number (the first is 1); the first one when none is asked for."""
    sheets = {sheet.title: sheet for sheet in book.worksheets}
    if wanted is None:
        wanted = 1
    if isinstance(wanted, int) and 1 <= wanted <= len(sheets):
        return book.worksheets[wanted - 1]
    if wanted in sheets:
        return sheets[wanted]
    names = ", ".join(sheets)[:300] or "none that holds cells"
    raise ContentInvalid(f"there is no sheet {str(wanted)[:60]!r}; there are: {names}")


def _rows_of(sheet: Any, request: Request) -> dict[str, Any]:
    header, types = request.option("header", True), request.option("types", {})
    records = Records(request.output)
    columns: list[str] | None = None
    for number, cells in _filled_rows(sheet):
        if columns is None and header is not False:
            columns = column_names(cells if header is True else header)
            if header is True:
                continue
        if columns is None:
            records.add(cells)
            continue
        if len(cells) > len(columns):
            raise ContentInvalid(f"row {number} has {len(cells)} cells and the header {len(columns)}; name the further columns")
        full = cells + [None] * (len(columns) - len(cells))
        records.add(make_row(columns, full, types, f"row {number}"))
    return {"columns": columns or [], "count": records.count}


def _filled_rows(sheet: Any) -> Iterator[tuple[int, list[Any]]]:
    """Number and cells of each row, without the empty cells at its end."""
    for number, values in enumerate(sheet.iter_rows(values_only=True), 1):
        cells = [_value(value) for value in values]
        while cells and cells[-1] is None:
            cells.pop()
        if cells:
            yield number, cells


def _value(value: Any) -> Any:
    """A cell as JSON: dates and times as ISO 8601, durations as seconds, errors as null."""
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, str):
        return None if value in _ERRORS or value == "" else value.replace("\x00", "")
    if isinstance(value, int):
        return exact(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            return None
        return exact(int(value)) if value.is_integer() and abs(value) < 1e15 else value
    if isinstance(value, datetime.datetime):
        is_day = value.time() == datetime.time(0)
        return value.date().isoformat() if is_day else value.isoformat(timespec="milliseconds" if value.microsecond else "seconds")
    if isinstance(value, datetime.timedelta):
        return value.total_seconds()
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    return str(value)
