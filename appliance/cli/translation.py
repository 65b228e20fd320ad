"""`gos translation`: create, update and check translations of the pages."""

import argparse
import io
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from babel.messages.catalog import Catalog
from babel.messages.pofile import write_po

from appliance.connectors import CONTEXT
from appliance.core import catalogues
from appliance.core.catalogues import CatalogueInvalid, locale_of, read_catalogue, read_text
from appliance.core.config import Config
from appliance.core.interface import ui_folder

from .output import add_json, print_result, print_rows

HEADER = "# Texts of the pages in {language}. Maintained with `gos translation update`; see docs/translation.md.\n"
# A fixed date, so that a run without changes leaves the file unchanged.
_EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
# Header values for fields that a file leaves empty.
_HEADER_VALUES = {
    "project": "GOS", "version": "1", "msgid_bugs_address": "", "revision_date": _EPOCH, "last_translator": "", "language_team": "",
}  # fmt: skip
_ABOVE_HEADER = re.compile(r'((?:[ \t]*(?:#.*)?\r?\n)*)msgid[ \t]+""[ \t]*\r?\n[ \t]*msgstr')


def add_commands(commands: Any) -> None:
    translation = commands.add_parser("translation", help="translate the pages into another language")
    what = translation.add_subparsers(dest="what", required=True)
    listing = what.add_parser("list", help="list the languages of the pages, and how much of each is translated")
    update = what.add_parser("update", help="create a translation file, or add new texts and remove obsolete ones")
    check = what.add_parser("check", help="report errors and missing texts in a translation file")
    for parser in (update, check):
        parser.add_argument("file", type=Path, help="a file named after its language, such as fr.po")
    for parser, run in ((listing, run_list), (update, run_update), (check, run_check)):
        add_json(parser)
        parser.set_defaults(run=run)


def run_list(args: argparse.Namespace) -> int:
    config: Config = args.load()
    texts = _extract_texts()
    rows = []
    for reading in catalogues.survey([folder / catalogues.FOLDER for folder in (ui_folder(), config.data)]):
        if isinstance(reading, CatalogueInvalid):
            rows.append({"language": "", "texts": "", "file": reading.message})
        else:
            missing = missing_of(reading.sound, texts)
            count = sum(1 for each in texts if each.id)
            texts_done = f"{count - len(missing)} of {count}"
            rows.append({"language": reading.language.name, "texts": texts_done, "file": str(reading.path)})
    print_rows(args, rows)
    return 0


def run_update(args: argparse.Namespace) -> int:
    path: Path = args.file
    locale = locale_of(path)
    if path.exists():
        reading = read_catalogue(path)
        catalogue, problems, comment = reading.catalogue, reading.problems, _header_comment(read_text(path))
    else:
        catalogue, problems, comment = Catalog(locale=locale, fuzzy=False), (), ""
    texts = _extract_texts()
    of_connectors = [each for each in catalogue if each.context == CONTEXT and each.string]
    catalogue.update(texts, no_fuzzy_matching=True)
    for each in of_connectors:  # keep texts of connectors that are not installed here
        if catalogue.get(each.id, CONTEXT) is None:
            catalogue.add(each.id, each.string, context=CONTEXT, locations=each.locations)
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(".po.new")
    fresh.write_bytes(as_file(catalogue, comment))
    fresh.replace(path)
    missing = len(missing_of(catalogue, texts))
    summary = f"{path} has every text; {missing} of them are not translated yet"
    print_result(args, "\n".join((*problems, summary)), file=str(path), missing=missing, faults=list(problems))
    return 0


def run_check(args: argparse.Namespace) -> int:
    reading = read_catalogue(args.file)
    missing = missing_of(reading.catalogue, _extract_texts())
    if args.json:
        print_rows(args, [*({"fault": each} for each in reading.problems), *({"missing": each} for each in missing)])
    else:
        for problem in reading.problems:
            print(problem)
        for text in missing:
            print(f"not translated: {text}")
        print(f"{len(reading.problems)} errors, {len(missing)} texts without a translation")
    return int(bool(reading.problems))


def as_file(catalogue: Catalog, comment: str = "") -> bytes:
    """Render a catalogue as a file, identical for identical texts; its comment and the translators in its header are kept."""
    language = catalogue.locale.english_name if catalogue.locale else "another language"
    unset = Catalog()
    for name, ours in _HEADER_VALUES.items():
        if getattr(catalogue, name) == getattr(unset, name):
            setattr(catalogue, name, ours)
    catalogue.creation_date, catalogue.charset, catalogue.header_comment = _EPOCH, "utf-8", ""
    written = io.BytesIO()
    write_po(written, catalogue, width=120, sort_output=True, ignore_obsolete=True, include_lineno=False, omit_header=False)
    return (comment or HEADER.format(language=language)).encode() + written.getvalue().lstrip(b"\n")


def _header_comment(text: str) -> str:
    """The comment above the header of a file, such as its translators and licence."""
    match = _ABOVE_HEADER.match(text)
    lines = match[1].splitlines() if match else []
    return "".join(f"{line.rstrip()}\n" for line in lines if re.match(r"#(\s|$)", line))


def missing_of(catalogue: Catalog, texts: Catalog) -> list[str]:
    """The texts that need a translation and have none, except coded errors."""
    from appliance.console import WAITS

    missing = []
    for each in texts:
        if each.id and WAITS not in each.auto_comments:
            message = catalogue.get(each.id, each.context)
            text = "" if message is None or message.fuzzy else message.string
            if not text or not all(text if isinstance(text, tuple | list) else (text,)):
                missing.append(each.id if isinstance(each.id, str) else each.id[0])
    return missing


def _extract_texts() -> Catalog:
    from appliance.console import extract, needed

    return needed(extract())
