"""Pages of a file import: choose a file, map its columns to fields, run a trial, import the rows."""

import csv
import io
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from appliance.console.frame.routing import Answer, Download, Page, Redirect, Visit, page
from appliance.core.errors import ApplianceError, NotFound, ValidationFailed
from appliance.core.sentences import Sentence
from appliance.core.texts import gettext as _
from appliance.core.texts import mark
from appliance.datapool import SAMPLE_ROWS, FileImport, ImportOptions
from appliance.datapool import service as datapool
from appliance.formats import DELIMITERS, ENCODINGS

SHOWN_ERRORS = 50
DELIMITER_WORDS = {",": mark("comma"), ";": mark("semicolon"), "\t": mark("tab"), "|": mark("pipe")}
FORMULA = ("=", "+", "-", "@")


@page("GET", "/datapool/<collection>/import", scope="entities.write")
def show_file_choice(visit: Visit, collection: str) -> Answer:
    """The form to choose a file."""
    return _choice_page(visit, collection)


def _choice_page(visit: Visit, collection: str, problem: ApplianceError | None = None) -> Page:
    values = {
        "collection": datapool.get_collection(visit.scope, collection), "problem": problem,
        "most_mb": visit.services.config.limits.upload_mb,
    }  # fmt: skip
    return Page("import_new.html", values, problem.status if problem else 200)


@page("POST", "/datapool/<collection>/import", scope="entities.write", takes_files=True)
def choose_file(visit: Visit, collection: str) -> Answer:
    """Start an import with the uploaded file, and show its first rows."""
    datapool.get_collection(visit.scope, collection)
    sent = visit.request.file("file")
    try:
        if sent is None or not sent.received.size:
            raise ValidationFailed("choose a file that is not empty", pointer="/file")
        file_import = visit.services.imports.begin(visit.scope, collection, sent.name, sent.received.open())
    except ApplianceError as error:
        return _choice_page(visit, collection, error)
    return Redirect(_address(file_import))


def _address(file_import: FileImport) -> str:
    return f"/console/datapool/{file_import.collection}/import/{file_import.id}"


@page("GET", "/datapool/<collection>/import/<import_id>", scope="entities.write")
def show_import(visit: Visit, collection: str, import_id: str) -> Answer:
    """The first rows and the column mapping; later the progress and the report."""
    return _import_page(visit, _find(visit, collection, import_id))


def _find(visit: Visit, collection: str, import_id: str) -> FileImport:
    file_import = visit.services.imports.get(visit.scope, import_id)
    if file_import.collection != collection:
        raise NotFound("this import belongs to another collection; choose the file again")
    return file_import


def _import_page(visit: Visit, file_import: FileImport, problem: ApplianceError | None = None) -> Page:
    definition = datapool.get_collection(visit.scope, file_import.collection)
    names = [field["name"] for field in definition["fields"]]
    chosen_fields = file_import.options.fields
    mapping = chosen_fields if chosen_fields is not None else guess(file_import.columns, names)
    unique = [field["name"] for field in definition["fields"] if field["unique"] and field["name"] in mapping]
    report = file_import.report
    values = {
        "collection": definition, "file_import": file_import, "here": _address(file_import), "problem": problem, "mapping": mapping,
        "names": names, "sample": file_import.sample[:SAMPLE_ROWS],
        "keys": file_import.options.key if chosen_fields is not None else unique[:1],
        "encodings": sorted(set(ENCODINGS)), "delimiters": {each: _(DELIMITER_WORDS[each]) for each in DELIMITERS},
        "errors": report.errors[:SHOWN_ERRORS] if report and not file_import.is_busy else [], "report": report,
        "needed": [f["name"] for f in definition["fields"] if f["required"] and f["default"] is None],
    }  # fmt: skip
    template = "import_live.html" if visit.request.is_fragment else "import.html"
    return Page(template, values, problem.status if problem else 200)


def guess(columns: Sequence[str], names: Sequence[str]) -> tuple[str, ...]:
    """The field that each column probably holds, by name regardless of case, spaces and punctuation; empty for no match."""
    plain = {re.sub(r"[\W_]", "", name.casefold()): name for name in names}
    # A matched field is removed, so that a second column of the same name stays unmapped.
    return tuple(plain.pop(re.sub(r"[\W_]", "", column.casefold()), "") for column in columns)


@page("POST", "/datapool/<collection>/import/<import_id>/look", scope="entities.write")
def look_again(visit: Visit, collection: str, import_id: str) -> Answer:
    """Read the file again with another delimiter or encoding."""
    file_import = _find(visit, collection, import_id)
    delimiter = visit.request.field("delimiter")
    try:
        if delimiter not in DELIMITERS:
            raise ValidationFailed("choose a delimiter from the list", pointer="/delimiter")
        visit.services.imports.inspect_again(visit.scope, import_id, delimiter, visit.request.field("encoding"))
    except ApplianceError as error:
        return _import_page(visit, _find(visit, collection, import_id), error)
    return Redirect(_address(file_import))


@page("POST", "/datapool/<collection>/import/<import_id>/try", scope="entities.write")
def try_import(visit: Visit, collection: str, import_id: str) -> Answer:
    """Check every row with this mapping without storing any."""
    file_import = _find(visit, collection, import_id)
    definition = datapool.get_collection(visit.scope, collection)
    try:
        visit.services.imports.start_dry_run(visit.scope, import_id, _options(visit, definition, file_import))
    except ApplianceError as error:
        return _import_page(visit, _find(visit, collection, import_id), error)
    return Redirect(_address(file_import))


def _options(visit: Visit, definition: Mapping[str, Any], file_import: FileImport) -> ImportOptions:
    request, names = visit.request, [field["name"] for field in definition["fields"]]
    chosen = tuple(request.field(f"m{number}") for number in range(len(file_import.columns)))
    times = Counter(chosen)
    for number, (column, name) in enumerate(zip(file_import.columns, chosen, strict=True)):
        if name and name not in names:
            raise ValidationFailed(
                Sentence("%(name2)s has no field %(name)s; choose one", name=repr(name[:60]), name2=definition["name"]),
                pointer=f"/m{number}",
            )
        if name and times[name] > 1:
            raise ValidationFailed(
                Sentence(
                    "several columns, such as %(column)s, are mapped to %(name)s; map only one", name=name, column=repr(column[:60])
                ),
                pointer=f"/m{number}",
            )
    if not any(chosen):
        raise ValidationFailed("map at least one column to a field", pointer="/m0")
    key = tuple(name for name in names if request.field(f"key.{name}"))
    if missing := [name for name in key if name not in chosen]:
        raise ValidationFailed(
            Sentence("%(missing)s identifies the entities, so a column must be mapped to it", missing=missing[0]),
            pointer=f"/key.{missing[0]}",
        )
    decimal = request.field("decimal") if file_import.has_text_cells else ""
    if decimal not in ("", ".", ","):
        raise ValidationFailed("choose the decimal separator: a point or a comma", pointer="/decimal")
    columns = {column: name for column, name in zip(file_import.columns, chosen, strict=True) if name}
    return ImportOptions(
        file_import.form, key, delimiter=file_import.delimiter if file_import.form == "csv" else "", columns=columns, fields=chosen,
        encoding=file_import.encoding, empty=request.field("empty"), decimal="," if decimal == "," else ".",
    )  # fmt: skip


@page("POST", "/datapool/<collection>/import/<import_id>/run", scope="entities.write")
def run_import(visit: Visit, collection: str, import_id: str) -> Answer:
    """Import the valid rows."""
    file_import = _find(visit, collection, import_id)
    try:
        visit.services.imports.start_import(visit.scope, import_id)
    except ApplianceError as error:
        return _import_page(visit, _find(visit, collection, import_id), error)
    return Redirect(_address(file_import))


@page("GET", "/datapool/<collection>/import/<import_id>/errors", scope="entities.write")
def download_errors(visit: Visit, collection: str, import_id: str) -> Answer:
    """The errors by line as CSV; a text that a spreadsheet would run as a formula is prefixed with an apostrophe."""
    file_import = _find(visit, collection, import_id)
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(["line", "field", "code", "message"])
    for error in file_import.report.errors if file_import.report else []:
        cells = [str(error["line"]), error["field"] or "", error["code"], error["message"]]
        writer.writerow([f"'{cell}" if cell.startswith(FORMULA) else cell for cell in cells])
    return Download(f"{collection} errors.csv", text.getvalue().encode(), "text/csv; charset=utf-8")
