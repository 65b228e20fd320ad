"""`gos translation` never loses what a translator has written, even if it is wrong."""

import json
from functools import cache
from pathlib import Path

import pytest

from appliance import cli
from appliance.console import extraction

FRENCH = """\
# Textes des pages, VERSION libre.
# Licence: CC0
#
# Ada <ada@polyglot.test>
msgid ""
msgstr ""
"Project-Id-Version: Notre GOS 3\\n"
"PO-Revision-Date: 2025-05-05 05:05+0000\\n"
"Last-Translator: Ada <ada@polyglot.test>\\n"
"Language-Team: les nôtres\\n"
"Plural-Forms: nplurals=2; plural=(n > 1);\\n"
"Content-Type: text/plain; charset=utf-8\\n"

# À vérifier
msgid "Sign out"
msgstr "Se déconnecter 100 %"

msgid "Sign in"
msgstr "Se connecter"
"""

EXTRACT = extraction.extract


@cache
def texts() -> tuple[extraction.Text, ...]:
    """Every text of the pages, found once."""
    return tuple(EXTRACT())


@pytest.fixture(autouse=True)
def extract_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extraction, "extract", lambda: iter(texts()))


def test_an_update_keeps_faulty_translations_and_the_header_and_names_the_faults(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "fr.po"
    path.write_text(FRENCH, "utf8")
    assert cli.main(["translation", "update", str(path)]) == 0
    out, written = capsys.readouterr().out, path.read_text("utf8")
    assert f"{path}, line 15: the translation of 'Sign out' contains a single percent sign; write it as %%" in out
    assert written.startswith(FRENCH.partition("msgid")[0])
    for line in ("Project-Id-Version: Notre GOS 3", "PO-Revision-Date: 2025-05-05 05:05+0000", "Language-Team: les nôtres"):
        assert f'"{line}\\n"' in written
    assert '"Last-Translator: Ada <ada@polyglot.test>\\n"' in written
    assert 'msgid "Sign out"\nmsgstr "Se déconnecter 100 %"' in written
    assert "# À vérifier" in written
    assert cli.main(["translation", "update", "--json", str(path)]) == 0
    assert len(json.loads(capsys.readouterr().out)["faults"]) == 1
    assert path.read_text("utf8") == written


def test_a_new_file_has_a_header_of_ours_and_every_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "pt-BR.po"
    assert cli.main(["translation", "update", str(path)]) == 0
    written = path.read_text("utf8")
    assert written.startswith("# Texts of the pages in Portuguese (Brazil). Maintained with `gos translation update`")
    assert '"Last-Translator: \\n"' in written
    assert 'msgid "Sign out"\nmsgstr ""' in written
    assert "are not translated yet" in capsys.readouterr().out


def test_an_update_keeps_the_texts_of_a_connector_that_is_not_installed_here(tmp_path: Path) -> None:
    path = tmp_path / "fr.po"
    assert cli.main(["translation", "update", str(path)]) == 0
    added = 'msgctxt "connector"\nmsgid "Depth of the well"\nmsgstr "Profondeur du puits"\n'
    path.write_text(f"{path.read_text('utf8')}\n{added}", "utf8")
    assert cli.main(["translation", "update", str(path)]) == 0
    updated = path.read_text("utf8")
    assert added in updated
    assert 'msgctxt "connector"\nmsgid "Base address"\nmsgstr ""\n' in updated
