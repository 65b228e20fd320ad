"""Templates render to the same with the console's compiler as with Jinja's own."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from jinja2 import Environment, FileSystemLoader, StrictUndefined, TemplateAssertionError, UndefinedError
from markupsafe import Markup, escape

from appliance.console.frame.templates import Templates
from appliance.core import texts
from appliance.core.catalogues import read_catalogue
from appliance.core.texts import ENGLISH, LONG, Language, to_html

FILES = {
    "frame.html": "{% from 'parts.html' import icon, box %}<title>{% block title %}{{ _('Console') }}{% endblock %}</title>"
    "{% block content %}nothing{% endblock %}{{ icon('end') }} {{ _(name|string) or _('Console') }}",
    "parts.html": "{% set paths = {'end': '<path/>'} %}{% macro icon(name) %}<svg>{{ paths[name]|safe }}</svg>{% endmacro %}"
    "{% macro box(title, wide=false) %}<h2{% if wide %} wide{% endif %}>{{ title }}</h2>{{ caller() }}{% endmacro %}",
    "part.html": "{% for each in rows %}{{ loop.index }}:{{ each.name }}={{ each.size }};{% else %}{{ _('Nothing') }}{% endfor %}",
    "page.html": "{% extends 'frame.html' %}{% from 'parts.html' import box %}{% block title %}"
    "{{ super() }}, {{ name }}{% endblock %}"
    "{% block content %}{% set label = _('A & <b>B</b>') %}{{ label }} {{ _('Nothing') ~ name }}"
    "{% include 'part.html' %}{% if rows %}{% call box(name, wide=true) %}<p>{{ rows|length }}</p>{% endcall %}{% endif %}"
    "{{ _('%(who)s has 100%%', who=name) }} {% trans who=name %}Hello <i>{{ who }}</i>{% endtrans %} "
    "{% trans %}100% sure{% endtrans %}"
    "{{ ngettext('%(num)s row', '%(num)s rows', rows|length) }} {{ pgettext('verb', 'Run') }} {{ names.get('x', name) }}"
    "{{ names.items()|list }}{{ dict(a=1, **names) }} {{ _('Console') if rows else _('Nothing') }} {{ markup }} {{ none }}"
    "{% for each in rows if each.size > 1 %}{{ each.name|upper }}{% endfor %}"
    "{% filter upper %}{{ name }}{% endfilter %}{% endblock %}",
}  # fmt: skip
ROWS = [{"name": "<one>", "size": 1}, {"name": "two & 'three'", "size": 2.5}]


class ObjectWithText:
    def __str__(self) -> str:
        return "<shown>"


class ObjectWithHtml:
    def __html__(self) -> str:
        return "<b>shown</b>"


NAMES = ["plain", "<script>'\"&", "<" * LONG, "ü" * (LONG + 1), Markup("<em>it</em>"), 1_000, 2.5, None, ObjectWithText()]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("templates")
    for name, source in FILES.items():
        (folder / name).write_text(source, "utf8")
    return folder


@pytest.fixture(scope="module")
def german(tmp_path_factory: pytest.TempPathFactory) -> Language:
    path = tmp_path_factory.mktemp("translations") / "de.po"
    path.write_text(
        'msgid ""\nmsgstr ""\n"Content-Type: text/plain; charset=utf-8\\n"\n"Plural-Forms: nplurals=2; plural=(n != 1);\\n"\n\n'
        'msgid "Console"\nmsgstr "Konsole"\n\nmsgid "A & <b>B</b>"\nmsgstr "Ä & <b>B</b>"\n\n'
        'msgid "%(who)s has 100%%"\nmsgstr "100%% hat %(who)s"\n\nmsgid "Hello <i>%(who)s</i>"\nmsgstr "Hallo <i>%(who)s</i>"\n\n'
        'msgid "%(num)s row"\nmsgid_plural "%(num)s rows"\nmsgstr[0] "%(num)s Zeile"\nmsgstr[1] "%(num)s Zeilen"\n\n'
        'msgctxt "verb"\nmsgid "Run"\nmsgstr "Starten"\n',
        "utf8",
    )
    return read_catalogue(path).language


def jinja(folder: Path) -> Environment:
    """Jinja itself, with the settings of `Templates`."""
    environment = Environment(
        loader=FileSystemLoader(folder), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    texts.install_translations(environment)
    return environment


@pytest.mark.parametrize("rows", [ROWS, []], ids=["rows", "no rows"])
@pytest.mark.parametrize("name", NAMES)
def test_a_page_is_the_same_as_with_jinjas_compiler(folder: Path, german: Language, rows: list[Any], name: Any) -> None:
    values: Mapping[str, Any] = {"rows": rows, "name": name, "names": {"y": "<y>"}, "markup": ObjectWithHtml(), "none": None}
    pages = {}
    for language in (ENGLISH, german):
        with texts.use_language(language):
            pages[language.tag] = Templates(str(folder)).get_template("page.html").render(values)
            assert pages[language.tag] == jinja(folder).get_template("page.html").render(values)
    assert "<title>Console," in pages["en"]
    assert "<title>Konsole," in pages["de"]
    assert "Ä & <b>B</b>" in pages["de"]
    assert "Starten" in pages["de"]


def test_a_missing_value_is_an_error(folder: Path) -> None:
    with pytest.raises(UndefinedError, match="'rows' is undefined"):
        Templates(str(folder)).get_template("part.html").render()


def test_an_include_without_context_is_refused(tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text("{% include 'other.html' without context %}", "utf8")
    with pytest.raises(TemplateAssertionError, match="include without context"):
        Templates(str(tmp_path)).get_template("page.html")


def test_no_function_of_templates_takes_the_context(folder: Path) -> None:
    """Because templates call them directly."""
    environment = Templates(str(folder))
    assert [name for name, value in environment.globals.items() if hasattr(value, "jinja_pass_arg")] == []


@pytest.mark.parametrize("value", [*NAMES, "", "a&b", -2.5e-20, 10**20, float("nan"), True, ObjectWithHtml()])
def test_values_are_escaped_as_by_markupsafe(value: Any) -> None:
    assert to_html(value) == str(escape(value))
