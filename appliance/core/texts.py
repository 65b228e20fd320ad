"""The language that is spoken now, and texts in it; English is what the texts are written in."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from gettext import NullTranslations
from typing import Any

from .sentences import Sentence, Value

ERROR = "error"  # the context of the sentences of coded errors in a catalogue
THIN_SPACE = "\u202f"


@dataclass(frozen=True)
class Language:
    """A language with its catalogue."""

    tag: str
    name: str
    direction: str = "ltr"
    decimal: str = "."
    catalogue: NullTranslations = field(default_factory=NullTranslations, compare=False)

    def tell(self, sentence: str) -> str:
        """The sentence in this language, looked up by its id; as it is when there is no translation."""
        if isinstance(sentence, Sentence) and sentence.values:
            values = {name: self._render(value) for name, value in sentence.values.items()}
            return self.catalogue.pgettext(ERROR, sentence.id) % values
        return self.catalogue.pgettext(ERROR, sentence) if sentence else ""

    def _render(self, value: Value) -> str:
        return f"{value:.15g}".replace(".", self.decimal) if isinstance(value, float) else self.tell(value)


ENGLISH = Language("en", "English")
_now: ContextVar[Language] = ContextVar("language", default=ENGLISH)


def language() -> Language:
    """The language that is spoken now."""
    return _now.get()


@contextmanager
def speaking(spoken: Language) -> Iterator[None]:
    """Have texts be in this language in the block, for this thread or task alone."""
    token = _now.set(spoken)
    try:
        yield
    finally:
        _now.reset(token)


def gettext(message: str, **values: Any) -> str:
    """A text in the language spoken now, with its `%(name)s` filled; a percent sign is written `%%`."""
    return _found(message) % values


def ngettext(one: str, many: str, number: int, **values: Any) -> str:
    """The form of a text that suits a number; the number itself is `%(num)s`."""
    return _found_for(one, many, number) % values


def pgettext(context: str, message: str, **values: Any) -> str:
    """A text that means different things in different places: `context` says where."""
    return _found_in(context, message) % values


def mark(message: str) -> str:
    """Note a text of a table for the catalogues; whoever shows it says `gettext` of it."""
    return message


def mark_in(context: str, message: str) -> str:
    """The same for `pgettext`."""
    return message


def mark_error(sentence: str) -> Sentence:
    """The same for a sentence that pages show with `tell`; `mark_error("%(name)s failed") % {"name": name}` fills it."""
    return Sentence(sentence)


def tell(sentence: str) -> str:
    """The sentence of a coded error, which is English wherever programs read it, in the language spoken now."""
    return _now.get().tell(sentence)


def grouped(value: float) -> str:
    """A number with thin spaces between its thousands and the decimal sign of the language spoken now."""
    return f"{value:,}".replace(",", THIN_SPACE).replace(".", _now.get().decimal)


def fixed(value: float, places: int) -> str:
    """The same with that many places after the decimal sign: money and percentages."""
    return f"{value:,.{places}f}".replace(",", THIN_SPACE).replace(".", _now.get().decimal)


def decimal(text: str) -> str:
    """The text of a number with the decimal sign of the language spoken now."""
    return text.replace(".", _now.get().decimal)


def _found(message: str) -> str:
    return _now.get().catalogue.gettext(message) if message else ""


def _found_for(one: str, many: str, number: int) -> str:
    return _now.get().catalogue.ngettext(one, many, number).replace("%(num)s", grouped(number))


def _found_in(context: str, message: str) -> str:
    return _now.get().catalogue.pgettext(context, message) if message else ""


def _found_for_in(context: str, one: str, many: str, number: int) -> str:
    return _now.get().catalogue.npgettext(context, one, many, number).replace("%(num)s", grouped(number))


def teach(environment: Any) -> None:
    """Give templates `_`, `ngettext`, `pgettext` and `{% trans %}`, all in the language spoken when they are rendered."""
    environment.add_extension("jinja2.ext.i18n")
    environment.policies["ext.i18n.trimmed"] = True
    environment.install_gettext_callables(_found, _found_for, newstyle=True, pgettext=_found_in, npgettext=_found_for_in)
    environment.globals["speech"] = language
