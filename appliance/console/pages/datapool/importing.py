"""Pages on which a file becomes entities: choose it, say which column is which field, try it out, import it."""

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
from appliance.formats import DELIMITERS, KNOWN

SHOWN_ERRORS = 50
DELIMITER_WORDS = {",": mark("comma"), ";": mark("semicolon"), "\t": mark("tab"), "|": mark("pipe")}
FORMULA = ("=", "+", "-", "@")


@page("GET", "/datapool/<collection>/import", scope="entities.write")
def show_file_choice(visit: Visit, collection: str) -> Answer:
    """Where a file is chosen."""
    return _choice_page(visit, collection)


def _choice_page(visit: Visit, collection: str, problem: ApplianceError | None = None) -> Page:
    values = {
        "collection": datapool.get_collection(visit.scope, collection), "problem": problem,
        "most_mb": visit.services.config.limits.upload_mb,
    }  # fmt: skip
    return Page("import_new.html", values, problem.status if problem else 200)


@page("POST", "/datapool/<collection>/import", scope="entities.write", takes_files=True)
def choose_file(visit: Visit, collection: str) -> Answer:
    """Look at the file that was sent."""
    datapool.get_collection(visit.scope, collection)
    sent = visit.asked.file("file")
    try:
        if sent is None or not sent.received.size:
            raise ValidationFailed("choose a file that is not empty", pointer="/file")
        found = visit.services.imports.begin(visit.scope, collection, sent.name, sent.received.open())
    except ApplianceError as error:
        return _choice_page(visit, collection, error)
    return Redirect(_address(found))


def _address(found: FileImport) -> str:
    return f"/console/datapool/{found.collection}/import/{found.id}"


@page("GET", "/datapool/<collection>/import/<import_id>", scope="entities.write")
def show_import(visit: Visit, collection: str, import_id: str) -> Answer:
    """The first rows and what becomes of the columns; then how the import goes and what came of it."""
    return _import_page(visit, _find(visit, collection, import_id))


def _find(visit: Visit, collection: str, import_id: str) -> FileImport:
    found = visit.services.imports.get(visit.scope, import_id)
    if found.collection != collection:
        raise NotFound("this import is of another collection; choose the file again")
    return found


def _import_page(visit: Visit, found: FileImport, problem: ApplianceError | None = None) -> Page:
    definition = datapool.get_collection(visit.scope, found.collection)
    names = [field["name"] for field in definition["fields"]]
    known = found.options.fields
    mapping = known if known is not None else guess(found.columns, names)
    unique = [field["name"] for field in definition["fields"] if field["unique"] and field["name"] in mapping]
    report = found.report
    values = {
        "collection": definition, "found": found, "here": _address(found), "problem": problem, "mapping": mapping, "names": names,
        "keys": found.options.key if known is not None else unique[:1], "sample": found.sample[:SAMPLE_ROWS],
        "encodings": sorted(set(KNOWN)), "delimiters": {each: _(DELIMITER_WORDS[each]) for each in DELIMITERS},
        "errors": report.errors[:SHOWN_ERRORS] if report and not found.is_busy else [], "report": report,
        "needed": [f["name"] for f in definition["fields"] if f["required"] and f["default"] is None],
    }  # fmt: skip
    template = "import_live.html" if visit.asked.is_fragment else "import.html"
    return Page(template, values, problem.status if problem else 200)


def guess(columns: Sequence[str], names: Sequence[str]) -> tuple[str, ...]:
    """The field that each column seems to be, or none: the same but for capitals, spaces and signs; each field once."""
    plain = {re.sub(r"[\W_]", "", name.casefold()): name for name in names}
    # Taken out when it is found, so that a second column of the name leads nowhere until somebody says so.
    return tuple(plain.pop(re.sub(r"[\W_]", "", column.casefold()), "") for column in columns)


@page("POST", "/datapool/<collection>/import/<import_id>/look", scope="entities.write")
def look_again(visit: Visit, collection: str, import_id: str) -> Answer:
    """Read the file with another delimiter or encoding."""
    found = _find(visit, collection, import_id)
    delimiter = visit.asked.field("delimiter")
    try:
        if delimiter not in DELIMITERS:
            raise ValidationFailed("choose what stands between the cells", pointer="/delimiter")
        visit.services.imports.look_again(visit.scope, import_id, delimiter, visit.asked.field("encoding"))
    except ApplianceError as error:
        return _import_page(visit, found, error)
    found.options = ImportOptions()
    return Redirect(_address(found))


@page("POST", "/datapool/<collection>/import/<import_id>/try", scope="entities.write")
def try_import(visit: Visit, collection: str, import_id: str) -> Answer:
    """Read every row with these columns and store none."""
    found = _find(visit, collection, import_id)
    definition = datapool.get_collection(visit.scope, collection)
    try:
        visit.services.imports.try_out(visit.scope, import_id, _options(visit, definition, found))
    except ApplianceError as error:
        return _import_page(visit, found, error)
    return Redirect(_address(found))


def _options(visit: Visit, definition: Mapping[str, Any], found: FileImport) -> ImportOptions:
    asked, names = visit.asked, [field["name"] for field in definition["fields"]]
    chosen = tuple(asked.field(f"m{number}") for number in range(len(found.columns)))
    times = Counter(chosen)
    for number, (column, name) in enumerate(zip(found.columns, chosen, strict=True)):
        if name and name not in names:
            raise ValidationFailed(
                Sentence("%(name)s is no field of %(name2)s; choose one", name=repr(name[:60]), name2=definition["name"]),
                pointer=f"/m{number}",
            )
        if name and times[name] > 1:
            raise ValidationFailed(
                Sentence("two columns lead to %(name)s, one is %(column)s; leave one out", name=name, column=repr(column[:60])),
                pointer=f"/m{number}",
            )
    if not any(chosen):
        raise ValidationFailed("say of at least one column which field it is", pointer="/m0")
    key = tuple(name for name in names if asked.field(f"key.{name}"))
    if missing := [name for name in key if name not in chosen]:
        raise ValidationFailed(
            Sentence("%(missing)s tells entities apart, so a column must lead to it", missing=missing[0]),
            pointer=f"/key.{missing[0]}",
        )
    decimal = asked.field("decimal") if found.has_texts else ""
    if decimal not in ("", ".", ","):
        raise ValidationFailed("choose the decimal sign: a point or a comma", pointer="/decimal")
    columns = {column: name for column, name in zip(found.columns, chosen, strict=True) if name}
    return ImportOptions(
        found.form, key, delimiter=found.delimiter if found.form == "csv" else "", columns=columns, fields=chosen,
        encoding=found.encoding, empty=asked.field("empty"), decimal="," if decimal == "," else ".",
    )  # fmt: skip


@page("POST", "/datapool/<collection>/import/<import_id>/run", scope="entities.write")
def run_import(visit: Visit, collection: str, import_id: str) -> Answer:
    """Store the rows that are good."""
    found = _find(visit, collection, import_id)
    try:
        visit.services.imports.run(visit.scope, import_id)
    except ApplianceError as error:
        return _import_page(visit, found, error)
    return Redirect(_address(found))


@page("GET", "/datapool/<collection>/import/<import_id>/errors", scope="entities.write")
def download_errors(visit: Visit, collection: str, import_id: str) -> Answer:
    """What is wrong with which line, as CSV; a text that a spreadsheet would execute gets an apostrophe."""
    found = _find(visit, collection, import_id)
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(["line", "field", "code", "message"])
    for error in found.report.errors if found.report else []:
        cells = [str(error["line"]), error["field"] or "", error["code"], error["message"]]
        writer.writerow([f"'{cell}" if cell.startswith(FORMULA) else cell for cell in cells])
    return Download(f"{collection} errors.csv", text.getvalue().encode(), "text/csv; charset=utf-8")
