"""The language that is spoken now, and texts in it; English is what the texts are written in."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cached_property
from gettext import NullTranslations
from typing import Any

from .sentences import Sentence

ERROR = "error"  # the context of the sentences of coded errors in a catalogue
NAMED = re.compile(r"%\((\w+)\)s")
_MEASURE = re.compile(r"\d{1,15}\.\d{1,6}( (?:ms|s|min|h|d|kB|MB|GB|TB))?")
_MOST_PARTS = 5  # of a list in a sentence that are looked at one by one
THIN_SPACE = "\u202f"


@dataclass(frozen=True)
class Language:
    """A language with its catalogue; `patterns` are sentences of coded errors that hold values, in English."""

    tag: str
    name: str
    direction: str = "ltr"
    decimal: str = "."
    catalogue: NullTranslations = field(default_factory=NullTranslations, compare=False)
    patterns: tuple[str, ...] = field(default=(), compare=False)

    @cached_property
    def _readers(self) -> list[tuple[str, re.Pattern[str], str]]:
        """How each pattern begins and is recognised; those with most words of their own first, so that the closest one wins."""
        ordered = sorted(self.patterns, key=lambda pattern: len(NAMED.sub("", pattern)), reverse=True)
        return [(NAMED.split(pattern)[0].replace("%%", "%"), _reader(pattern), pattern) for pattern in ordered]

    def tell(self, sentence: str) -> str:
        """The sentence of a coded error in this language, its full stop kept; as it is when no translation is known."""
        if isinstance(sentence, Sentence) and sentence.values:
            return self._render(sentence)
        found = self.catalogue.pgettext(ERROR, sentence) if sentence else ""
        if found != sentence or not self.patterns:
            return found
        for beginning, reader, pattern in self._readers:
            if sentence.startswith(beginning) and (match := reader.fullmatch(sentence)):
                values = {name: self._value(name, value) for name, value in match.groupdict().items()}
                return self.catalogue.pgettext(ERROR, pattern) % values
        return f"{self.tell(sentence[:-1])}." if sentence.endswith(".") else sentence

    def _render(self, sentence: Sentence) -> str:
        pattern = self.catalogue.pgettext(ERROR, sentence.id)
        return pattern % {name: self._value(name, value) for name, value in sentence.values.items()}

    def _value(self, name: str, value: str) -> str:
        """What stands in a sentence: a measure with the decimal sign of this language, a quoted error or a list of such, told."""
        if isinstance(value, Sentence) and value.values:
            return self._render(value)
        if _MEASURE.fullmatch(value) and "version" not in name:
            return value.replace(".", self.decimal)
        parts = value.split(", ", _MOST_PARTS)
        told = [self.tell(part) for part in parts] if 1 < len(parts) <= _MOST_PARTS else []
        return ", ".join(told) if told and all(map(str.__ne__, told, parts)) else self.tell(value)


def _reader(pattern: str) -> re.Pattern[str]:
    """A value at an edge holds no semicolon, or it would swallow every longer sentence that begins or ends like this one."""
    pieces = NAMED.split(pattern)
    edges = {1 if not pieces[0] else 0, len(pieces) - 2 if not pieces[-1] else 0}
    read = []
    for index, piece in enumerate(pieces):
        if index % 2 == 0:
            read.append(re.escape(piece.replace("%%", "%")))
        elif piece in pieces[1:index:2]:
            read.append(f"(?P={piece})")
        else:
            read.append(f"(?P<{piece}>{'[^;]*?' if index in edges else '.*?'})")
    return re.compile("".join(read), re.DOTALL)


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


def mark_error(sentence: str) -> str:
    """The same for a sentence that pages show as that of a coded error: with `tell`."""
    return sentence


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
