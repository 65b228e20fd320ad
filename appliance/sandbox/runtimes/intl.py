"""Packs what `Intl` in a step needs: FormatJS bundled with our own parts, and the data of languages and time zones."""

from __future__ import annotations

import io
import json
import re
import subprocess
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import wasmtime

from appliance.sandbox import intl
from appliance.sandbox.runtimes import digest, replace
from appliance.sandbox.runtimes.editor import find_bundler, find_node
from appliance.sandbox.runtimes.entrypoints import add_entrypoints
from appliance.sandbox.worker.engine import Engine
from appliance.sandbox.worker.freezer import NOBODY
from appliance.sandbox.worker.locales import BYTECODE, SOURCE
from appliance.sandbox.worker.vm import TYPE_SCRIPT, VM

SOURCES = Path(intl.__file__).parent
# The official languages of the European Union and those most asked for beside them, with the regions that write otherwise.
LANGUAGES = (
    *("ar", "bg", "bs", "ca", "cs", "cy", "da", "de", "de-AT", "de-CH", "de-LI", "el", "en", "en-AU"),
    *("en-CA", "en-GB", "en-IE", "en-IN", "en-NZ", "en-ZA", "es", "es-MX", "et", "fi", "fr", "fr-BE", "fr-CA", "fr-CH"),
    *("ga", "he", "hi", "hr", "hu", "id", "is", "it", "it-CH", "ja", "ko", "lb", "lt", "lv"),
    *("mk", "mt", "nb", "nl", "nl-BE", "pl", "pt", "pt-PT", "ro", "ru", "sk", "sl", "sq", "sr"),
    *("sv", "th", "tr", "uk", "vi", "zh", "zh-Hant"),
)
# Tags that have the data of another.
ALIASES = {
    **{f"{each}-{each.upper()}": each for each in LANGUAGES if len(each) == 2 and each not in ("ar", "en", "zh")},
    "cs-CZ": "cs", "da-DK": "da", "el-GR": "el", "en-US": "en", "et-EE": "et", "ga-IE": "ga", "he-IL": "he", "hi-IN": "hi",
    "ja-JP": "ja", "ko-KR": "ko", "nb-NO": "nb", "no": "nb", "no-NO": "nb", "pt-BR": "pt", "sl-SI": "sl", "sq-AL": "sq",
    "sr-RS": "sr", "sv-SE": "sv", "uk-UA": "uk", "vi-VN": "vi", "zh-CN": "zh", "zh-SG": "zh", "zh-TW": "zh-Hant",
}
_DATA = re.compile(r"__addLocaleData\((\{.*?\})\)\s*\} else", re.DOTALL)
_TEXT = re.compile(r"JSON\.parse\((\".*\")\)\)", re.DOTALL)
_PARSE_ALL = b"""
const parsed = {};
for (const [tag, entry] of Object.entries(JSON.parse(require("fs").readFileSync(0, "utf8")))) {
  __parseDates(entry);
  parsed[tag] = __parsed;
}
process.stdout.write(JSON.stringify(parsed));
"""
_ZONES = re.compile(r"__addTZData\((\{.*?\})\)", re.DOTALL)


class DataMalformed(Exception):
    """The package is not as this release expects; is it the version that the lock names?"""


def pack(modules: Path, quickjs: bytes) -> Iterator[tuple[str, bytes]]:
    """Everything by name: the code as text and compiled, an index, and the data of each language and zone."""
    source = _bundle(modules, "intl.js")
    yield SOURCE, source
    binary = add_entrypoints(quickjs)
    engine = Engine(lambda wasm: wasmtime.Module(wasm, binary))
    with _started(engine) as vm:
        yield BYTECODE, vm.compile(source, "<intl>", TYPE_SCRIPT)
    for tag, parsed in _parse_dates(modules).items():
        yield f"date/{tag}", parsed.encode()
    zones = {name: [[None, "UTC", 0, False]] for name in ("GMT", "Etc/GMT", "UTC", "Etc/UTC")} | dict(_read_zones(modules))
    tags = ALIASES | {tag: tag for tag in LANGUAGES}
    yield "index", _json({"locales": dict(sorted(tags.items())), "zones": sorted(zones)})
    for name, rows in zones.items():
        yield f"zone/{name}", _json(rows)
    for tag in LANGUAGES:
        for kind, package in (("number", "numberformat"), ("list", "listformat"), ("relative", "relativetimeformat")):
            yield f"{kind}/{tag}", _json(json.loads(_read_data(modules, package, tag)))
        yield f"plural/{tag}", _read_plurals(modules, tag).encode()


def prune(modules: Path) -> None:
    """Remove the data of languages that are not packed: most of the packages' bytes."""
    names = {f"{tag}.js" for tag in LANGUAGES}
    for path in modules.glob("@formatjs/*/locale-data/*"):
        if path.name not in names:
            path.unlink()


def write(path: Path, entries: Iterator[tuple[str, bytes]]) -> None:
    """The entries as one archive; equal entries give equal bytes."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, data in entries:
            archive.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED)
    replace(path, packed.getvalue())


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


@contextmanager
def _started(engine: Engine) -> Iterator[VM]:
    """A plain QuickJS without anything of a step."""
    with engine.ticker, VM(engine, NOBODY) as vm:
        vm.call("_initialize")
        vm.call("qjs_init")
        yield vm


def _bundle(modules: Path, name: str) -> bytes:
    command = [
        find_bundler(modules), str(SOURCES / name), "--bundle", "--minify", "--format=iife", "--target=es2022", "--charset=utf8",
        "--legal-comments=none", "--log-level=error", "--define:Intl=services", f"--inject:{SOURCES / 'services.js'}",
    ]  # fmt: skip
    done = subprocess.run(command, env={"NODE_PATH": str(modules)}, capture_output=True, check=False)  # noqa: S603
    if done.returncode:
        raise DataMalformed(f"Intl could not be bundled: {done.stderr.decode(errors='replace').strip()[-600:]}")
    return done.stdout


def _locale_file(modules: Path, package: str, tag: str) -> str:
    return (modules / f"@formatjs/intl-{package}" / "locale-data" / f"{tag}.js").read_text()


def _read_data(modules: Path, package: str, tag: str) -> str:
    match = _DATA.search(_locale_file(modules, package, tag))
    if match is None:
        raise DataMalformed(f"@formatjs/intl-{package} has no data of {tag} in the form that is expected")
    return match[1]


def _read_plurals(modules: Path, tag: str) -> str:
    """JavaScript, since the rules are functions; a region has the rules of its language unless it has its own."""
    language = tag.split("-", maxsplit=1)[0]
    folder = modules / "@formatjs/intl-pluralrules" / "locale-data"
    if (folder / f"{tag}.js").is_file():
        return _read_data(modules, "pluralrules", tag)
    return _read_data(modules, "pluralrules", language).replace(f'"locale":"{language}"', f'"locale":"{tag}"')


def _read_dates(modules: Path, tag: str) -> Any:
    match = _TEXT.search(_locale_file(modules, "datetimeformat", tag))
    if match is None:
        raise DataMalformed(f"@formatjs/intl-datetimeformat has no data of {tag} in the form that is expected")
    value = json.loads(json.loads(match[1]))
    # What a range may leave out ("3. to 5. Mai") is most of the data: a range shows both of its ends in full.
    value["data"]["intervalFormats"] = {"intervalFormatFallback": value["data"]["intervalFormats"]["intervalFormatFallback"]}
    return value


def _parse_dates(modules: Path) -> dict[str, str]:
    """By language what steps load of its dates, as JSON; in Node.js, because QuickJS takes ten times as long.

    The result stays beside the packages: an image has those, and no Node.js.
    """
    script = _bundle(modules, "dates.js") + _PARSE_ALL
    languages = {tag: _read_dates(modules, tag) for tag in LANGUAGES}
    stored = modules.parent / f"dates-{digest(script + _json(languages))[:16]}.json"
    if not stored.is_file():
        replace(stored, _run_node(script, _json(languages)))
    parsed: dict[str, str] = json.loads(stored.read_bytes())
    return parsed


def _run_node(script: bytes, languages: bytes) -> bytes:
    with tempfile.NamedTemporaryFile(suffix=".cjs") as file:
        file.write(script)
        file.flush()
        done = subprocess.run([find_node(), file.name], input=languages, capture_output=True, check=False)  # noqa: S603
    if done.returncode:
        raise DataMalformed(f"the patterns of dates could not be parsed: {done.stderr.decode(errors='replace').strip()[-600:]}")
    return done.stdout


def _read_zones(modules: Path) -> Iterator[tuple[str, list[list[Any]]]]:
    """Of each zone when (seconds, None for ever before) which abbreviation, offset and daylight saving began."""
    match = _ZONES.search((modules / "@formatjs/intl-datetimeformat" / "add-all-tz.js").read_text())
    if match is None:
        raise DataMalformed("@formatjs/intl-datetimeformat has no time zones in the form that is expected")
    data = json.loads(match[1])
    names, offsets = data["abbrvs"].split("|"), [int(each, 36) for each in data["offsets"].split("|")]
    for packed in data["zones"]:
        zone, *rows = packed.split("|")
        parts = [row.split(",") for row in rows]
        yield zone, [
            [int(at, 36) if at else None, names[int(name)], offsets[int(offset)], dst == "1"] for at, name, offset, dst in parts
        ]
