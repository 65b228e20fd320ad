"""`gos translation`: begin a translation of the pages, bring it up to date, check it."""

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

from .output import add_json, say, show

HEADER = "# Texts of the pages in {language}. Kept up by `gos translation update`; see docs/translation.md.\n"
# A date that changes with every run would be a change in every run.
_EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
# What stands in a header that says nothing of it.
_HEADER_VALUES = {
    "project": "GOS", "version": "1", "msgid_bugs_address": "", "revision_date": _EPOCH, "last_translator": "", "language_team": "",
}  # fmt: skip
_ABOVE_HEADER = re.compile(r'((?:[ \t]*(?:#.*)?\r?\n)*)msgid[ \t]+""[ \t]*\r?\n[ \t]*msgstr')


def add_commands(commands: Any) -> None:
    translation = commands.add_parser("translation", help="translate the pages into another language")
    what = translation.add_subparsers(dest="what", required=True)
    listing = what.add_parser("list", help="the languages that the pages can be read in, and how much of each is done")
    update = what.add_parser("update", help="begin a file of translations, or add what is new and drop what has gone")
    check = what.add_parser("check", help="say what is wrong and what is missing in a file of translations")
    for parser in (update, check):
        parser.add_argument("file", type=Path, help="named by its language, such as fr.po")
    for parser, run in ((listing, run_list), (update, run_update), (check, run_check)):
        add_json(parser)
        parser.set_defaults(run=run)


def run_list(args: argparse.Namespace) -> int:
    config: Config = args.load()
    wanted = _wanted()
    rows = []
    for found in catalogues.survey([folder / catalogues.FOLDER for folder in (ui_folder(), config.data)]):
        if isinstance(found, CatalogueInvalid):
            rows.append({"language": "", "texts": "", "file": found.message})
        else:
            missing = missing_of(found.sound, wanted)
            count = sum(1 for each in wanted if each.id)
            rows.append({"language": found.language.name, "texts": f"{count - len(missing)} of {count}", "file": str(found.path)})
    show(args, rows)
    return 0


def run_update(args: argparse.Namespace) -> int:
    path: Path = args.file
    locale = locale_of(path)
    if path.exists():
        found = read_catalogue(path)
        catalogue, problems, comment = found.catalogue, found.problems, _header_comment(read_text(path))
    else:
        catalogue, problems, comment = Catalog(locale=locale, fuzzy=False), (), ""
    wanted = _wanted()
    of_connectors = [each for each in catalogue if each.context == CONTEXT and each.string]
    catalogue.update(wanted, no_fuzzy_matching=True)
    for each in of_connectors:  # one that is not installed here says them elsewhere
        if catalogue.get(each.id, CONTEXT) is None:
            catalogue.add(each.id, each.string, context=CONTEXT, locations=each.locations)
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(".po.new")
    fresh.write_bytes(as_file(catalogue, comment))
    fresh.replace(path)
    missing = len(missing_of(catalogue, wanted))
    told = f"{path} has every text; {missing} of them wait for a translation"
    say(args, "\n".join((*problems, told)), file=str(path), missing=missing, faults=list(problems))
    return 0


def run_check(args: argparse.Namespace) -> int:
    found = read_catalogue(args.file)
    missing = missing_of(found.catalogue, _wanted())
    if args.json:
        show(args, [*({"fault": each} for each in found.problems), *({"missing": each} for each in missing)])
    else:
        for problem in found.problems:
            print(problem)
        for text in missing:
            print(f"not translated: {text}")
        print(f"{len(found.problems)} faults, {len(missing)} texts without a translation")
    return int(bool(found.problems))


def as_file(catalogue: Catalog, comment: str = "") -> bytes:
    """The file of a catalogue, the same for the same texts; what its header says of translators stays, and so its comment."""
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
    """What stands above the header of a file: who has translated it, and under which licence."""
    found = _ABOVE_HEADER.match(text)
    lines = found[1].splitlines() if found else []
    return "".join(f"{line.rstrip()}\n" for line in lines if re.match(r"#(\s|$)", line))


def missing_of(catalogue: Catalog, wanted: Catalog) -> list[str]:
    """The texts that have no translation and should, coded errors aside."""
    from appliance.console import WAITS

    missing = []
    for each in wanted:
        if each.id and WAITS not in each.auto_comments:
            known = catalogue.get(each.id, each.context)
            text = "" if known is None or known.fuzzy else known.string
            if not text or not all(text if isinstance(text, tuple | list) else (text,)):
                missing.append(each.id if isinstance(each.id, str) else each.id[0])
    return missing


def _wanted() -> Catalog:
    from appliance.console import extract, needed

    return needed(extract())
