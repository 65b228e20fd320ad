"""Translation of texts into the current language; the source language is English."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from gettext import NullTranslations
from typing import Any

from markupsafe import Markup, escape

from .sentences import Sentence, Value

ERROR = "error"  # The context (msgctxt) of error messages in a catalogue.
THIN_SPACE = "\u202f"
LONG = 200  # Characters from which `escape`, which is written in C, is faster than the search for something to escape.
_find_special = re.compile("[&<>'\"]").search


@dataclass(frozen=True)
class Language:
    """A language with its catalogue."""

    tag: str
    name: str
    direction: str = "ltr"
    decimal: str = "."
    catalogue: NullTranslations = field(default_factory=NullTranslations, compare=False)

    def translate(self, sentence: str) -> str:
        """Translate a sentence, which is looked up by its id; without a translation, it is returned unchanged."""
        if isinstance(sentence, Sentence) and sentence.values:
            values = {name: self._render(value) for name, value in sentence.values.items()}
            return self.catalogue.pgettext(ERROR, sentence.id) % values
        return self.catalogue.pgettext(ERROR, sentence) if sentence else ""

    def _render(self, value: Value) -> str:
        return f"{value:.15g}".replace(".", self.decimal) if isinstance(value, float) else self.translate(value)


ENGLISH = Language("en", "English")
_current: ContextVar[Language] = ContextVar("language", default=ENGLISH)


def current_language() -> Language:
    """The current language of this thread or task."""
    return _current.get()


@contextmanager
def use_language(new_language: Language) -> Iterator[None]:
    """Set the current language inside the block, for this thread or task only."""
    token = _current.set(new_language)
    try:
        yield
    finally:
        _current.reset(token)


def gettext(message: str, **values: Any) -> str:
    """Translate a text and fill in its `%(name)s`; a percent sign is written `%%`."""
    return _gettext(message) % values


def ngettext(one: str, many: str, number: int, **values: Any) -> str:
    """Translate a text in the plural form for a number; the number itself is `%(num)s`."""
    return _ngettext(one, many, number) % values


def pgettext(context: str, message: str, **values: Any) -> str:
    """Translate a text whose translation depends on the context."""
    return _pgettext(context, message) % values


def mark(message: str) -> str:
    """Mark a text in a table for extraction into the catalogues; it is translated with `gettext` when it is shown."""
    return message


def mark_in(context: str, message: str) -> str:
    """Mark a text for extraction like `mark`; it is translated with `pgettext` when it is shown."""
    return message


def mark_error(sentence: str) -> Sentence:
    """Mark a sentence that pages translate with `tell`; `mark_error("%(name)s failed") % {"name": name}` fills it."""
    return Sentence(sentence)


def translate(sentence: str) -> str:
    """Translate the message of an error into the current language; programs get it in English."""
    return _current.get().translate(sentence)


def format_grouped(value: float) -> str:
    """Format a number with thin spaces between thousands and the decimal sign of the current language."""
    return f"{value:,}".replace(",", THIN_SPACE).replace(".", _current.get().decimal)


def format_fixed(value: float, places: int) -> str:
    """Format a number like `grouped`, with a fixed number of decimal places, for money and percentages."""
    return f"{value:,.{places}f}".replace(",", THIN_SPACE).replace(".", _current.get().decimal)


def format_decimal(text: str) -> str:
    """Replace the point in the text of a number by the decimal sign of the current language."""
    return text.replace(".", _current.get().decimal)


def _gettext(message: str) -> str:
    return _current.get().catalogue.gettext(message) if message else ""


def _ngettext(one: str, many: str, number: int) -> str:
    return _current.get().catalogue.ngettext(one, many, number).replace("%(num)s", format_grouped(number))


def _pgettext(context: str, message: str) -> str:
    return _current.get().catalogue.pgettext(context, message) if message else ""


def _npgettext(context: str, one: str, many: str, number: int) -> str:
    return _current.get().catalogue.npgettext(context, one, many, number).replace("%(num)s", format_grouped(number))


def install_translations(environment: Any) -> None:
    """Add `_`, `ngettext`, `pgettext` and `{% trans %}` to templates that escape HTML.

    They use the current language at the time of rendering.
    """
    environment.add_extension("jinja2.ext.i18n")
    environment.policies["ext.i18n.trimmed"] = True
    environment.install_gettext_callables(_gettext, _ngettext, newstyle=True, pgettext=_pgettext, npgettext=_npgettext)
    # Jinja's own functions for a text call four others; pages have hundreds of texts.
    environment.globals |= {
        "_": gettext_in_html, "gettext": gettext_in_html, "ngettext": _ngettext_in_html, "pgettext": _pgettext_in_html,
        "npgettext": _npgettext_in_html, "speech": current_language,
    }  # fmt: skip


def gettext_in_html(message: str, /, **values: Any) -> Markup:
    """Translate a text and fill in values, which are escaped; texts and translations are our own and may have HTML."""
    return _fill_in_html(_gettext(message), values)


def _ngettext_in_html(one: str, many: str, number: int, /, **values: Any) -> Markup:
    return _fill_in_html(_ngettext(one, many, number), {"num": number, **values})


def _pgettext_in_html(context: str, message: str, /, **values: Any) -> Markup:
    return _fill_in_html(_pgettext(context, message), {"context": context, **values})


def _npgettext_in_html(context: str, one: str, many: str, number: int, /, **values: Any) -> Markup:
    return _fill_in_html(_npgettext(context, one, many, number), {"context": context, "num": number, **values})


def _fill_in_html(text: str, values: dict[str, Any]) -> Markup:
    filled = text % {name: to_html(value) for name, value in values.items()} if "%" in text else text
    return Markup(filled)  # noqa: S704  # texts of our own and their translations, with escaped values


def to_html(value: Any) -> Any:
    """The text of `escape(value)` in fewer steps, a `str`: if there is nothing to escape, it is a plain text and no `Markup`.

    A page has a thousand values.
    """
    kind = type(value)
    if kind is str and len(value) < LONG:
        return escape(value) if _find_special(value) else value
    if kind is Markup:
        return value
    return str(value) if kind is int or kind is float else escape(value)
