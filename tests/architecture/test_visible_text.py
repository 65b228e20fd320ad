"""Every visible text is in a catalogue, and the German catalogue is complete."""

from pathlib import Path

import pytest

from appliance.cli.translation import missing_of
from appliance.console import extract, needed
from appliance.core.catalogues import read_catalogue
from appliance.core.texts import ERROR
from tests.architecture.source_tree import ROOT, name_of, project_files
from tests.architecture.visible_text import in_python, in_template

TEMPLATES = ROOT / "ui" / "templates"
CONSOLE = ROOT / "appliance" / "console"
# Pages whose texts are not in the catalogues yet. This list only ever gets shorter.
NOT_YET: set[str] = set()
# Not translated: the API explorer is English like the API, the extraction is for translators, and the compiler of templates writes
# Python.
ENGLISH = {"ui/templates/docs/explorer.html", "appliance/console/extraction.py", "appliance/console/frame/templates.py"}

# Errors that only `gos` and the start of the appliance print, and those of programs: provisioning by SCIM, a provider's sign-out.
COMMANDS_AND_PROGRAMS = (
    "backups/moving/", "connectors/development/", "console/provider_logout.py", "core/catalogues.py", "core/config/",
    "sandbox/evaluation/expressions.py", "sandbox/runtimes/", "scim/", "tenants/provisioning/",
)  # fmt: skip
# What stands between the parts of a list.
BETWEEN = {" and ", " or "}

PAGES = [path for path in project_files() if path.is_relative_to(TEMPLATES) and path.suffix == ".html"]
MODULES = [path for path in project_files() if path.is_relative_to(CONSOLE) and path.suffix == ".py"]


def find_texts(path: Path) -> list[str]:
    text = path.read_text("utf8")
    matches = in_template(text) if path.suffix == ".html" else in_python(text)
    return [f"{name_of(path)}:{line}: {what}" for line, what in matches]


@pytest.mark.parametrize("path", [path for path in PAGES + MODULES if name_of(path) not in NOT_YET | ENGLISH], ids=name_of)
def test_every_text_is_in_a_catalogue(path: Path) -> None:
    assert find_texts(path) == [], "mark it with _() or {% trans %}: docs/translation.md, “Writing texts”"


def test_every_exemption_is_still_needed() -> None:
    names = {name_of(path) for path in PAGES + MODULES}
    assert names >= NOT_YET | ENGLISH
    assert [name for name in sorted(NOT_YET) if not find_texts(ROOT / name)] == []


def test_german_has_every_text_and_each_of_them_is_sound() -> None:
    """If it fails, run `gos translation update ui/translations/de.po` and fill in the empty texts."""
    german = read_catalogue(ROOT / "ui" / "translations" / "de.po")
    assert missing_of(german.catalogue, needed(extract())) == []
    assert [str(each.id) for each in german.catalogue if each.fuzzy and each.id] == []
    assert german.problems == ()


def test_an_error_that_a_person_may_read_has_german() -> None:
    """Programs and the command line are English, everything else is translated.  This list only ever gets shorter."""
    german = read_catalogue(ROOT / "ui" / "translations" / "de.po").catalogue
    places: dict[str, str] = {}
    for each in extract():
        message = german.get(each.message, ERROR) if each.context == ERROR else None
        if each.context == ERROR and (message is None or not message.string):
            places.setdefault(each.message, each.place)
    unread = {text: place for text, place in places.items() if not place.startswith(COMMANDS_AND_PROGRAMS)}
    assert unread == {}
    assert [each for each in COMMANDS_AND_PROGRAMS if not any(place.startswith(each) for place in places.values())] == []


def test_a_clause_before_a_semicolon_is_translated() -> None:
    """A pattern that matches any first clause also matches this sentence, whose first clause is not in a catalogue."""
    german = read_catalogue(ROOT / "ui" / "translations" / "de.po").language
    translated = german.translate(
        "invitations are turned off; ask the operator of this appliance to create the account with `gos user add LOGIN`"
    )
    assert (
        translated
        == "Einladungen sind abgeschaltet; bitten Sie den Betreiber dieser Appliance, das Konto mit `gos user add LOGIN` anzulegen"
    )


def test_no_template_writes_a_number_by_itself() -> None:
    """`number` and `fixed` know the decimal sign of the reader, a format of Python does not."""
    assert [name_of(path) for path in PAGES if "|format(" in path.read_text("utf8")] == []


def test_no_text_is_concatenated() -> None:
    """A text that ends with a space is concatenated, which does not work with the word order of other languages."""
    assert [each for each in extract(with_domains=False) if each.message.endswith(" ") and each.message not in BETWEEN] == []


@pytest.mark.parametrize(
    "source",
    [
        "<p>Hello</p>",
        '<input placeholder="Search">',
        '<a title="{{ name }} is open">{{ name }}</a>',
        '{{ "Not yet" if late }}',
        "{% call empty('check', 'Nothing here') %}{% endcall %}",
        '{% set title = "Draft of " ~ name %}',
        '{{ _("Members") }} of {{ name }}',
        "<option>{{ text }} days</option>",
        '<dd>{{ role|state_name }}{{ ", approver" if row.approver }}</dd>',
        '<td>{{ value or "(empty)" }}</td>',
    ],
)
def test_a_text_of_a_page_that_is_not_marked_is_found(source: str) -> None:
    assert list(in_template(source))


@pytest.mark.parametrize(
    "source",
    [
        "{# a comment #}<p>{{ name }}</p>",
        '<p class="quiet {{ "bad" if late }}" data-testid="row">{{ _("Hello") }} · 12</p>',
        "{% trans name=row.name %}Members of {{ name }}{% endtrans %}",
        '{% if state == "timed_out" %}<code>gos serve</code>{% endif %}',
        '{{ count|count_of("rule") }}',
        '{{ icon("check" if good else "failure") }}{{ "secrets." ~ name }}<option{{ " selected" if name }}></option>',
        '<a href="/console/">openapi.json</a>',
        '{% macro common(field) %}id="{{ field.name }}" name="{{ field.name }}"{% endmacro %}',
    ],
)
def test_marked_text_and_non_text_pass(source: str) -> None:
    assert list(in_template(source)) == []


def test_texts_of_python_are_found_unless_they_are_marked() -> None:
    unmarked = 'TITLES = {404: "Not found"}\ndef f(n):\n    return f"at most {n} calls"\n'
    assert [line for line, _ in in_python(unmarked)] == [3, 1]
    marked = (
        '"""A docstring of words."""\nTITLES = {404: mark("Not found")}\n'
        'def f(n):\n    if n: raise NotFound(f"there is no {n}; choose one")\n    return _("at most %(n)s calls", n=n)\n'
    )
    assert list(in_python(marked)) == []
