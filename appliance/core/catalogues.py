"""Translation catalogues: gettext `.po` files, read and validated when first needed."""

import codecs
import io
import logging
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from gettext import NullTranslations, c2py
from pathlib import Path

from babel import Locale, UnknownLocaleError
from babel.messages.catalog import Catalog, Message
from babel.messages.pofile import PoFileError, read_po

from appliance.core.sentences import PLACEHOLDER, Sentence

from .errors import ConfigInvalid
from .texts import ENGLISH, Language

log = logging.getLogger(__name__)

FOLDER = "translations"
# Babel accepts an unterminated string silently; check each line so that translators see the mistake.
_LINE = re.compile(r'\s*(?:#.*|(?:msg(?:ctxt|id|id_plural|str(?:\[\d+\])?)\s+)?"(?:[^"\\]|\\.)*"\s*)?')
_TAG = re.compile(r"<(/?[a-zA-Z][^<>]*)>")
_NUMBERS_TRIED = 201  # Plural rules depend on the last two digits and on whether there are more.
_LANGUAGE_RANGE = re.compile(r"\s*([A-Za-z0-9-]{1,35}|\*)\s*(?:;\s*q\s*=\s*([01](?:\.\d{0,3})?)\s*)?")


class CatalogueInvalid(ConfigInvalid):
    """A translation file cannot be used; the message names the file, the line and what to do."""


@dataclass(frozen=True)
class Reading:
    """A translation file with the problems of single messages; `sound` is the catalogue without those messages."""

    path: Path
    language: Language
    catalogue: Catalog
    sound: Catalog
    problems: tuple[str, ...]


def read_catalogue(path: Path) -> Reading:
    """Read a translation file; its name is its language.  CatalogueInvalid when none of it can be used."""
    locale = locale_of(path)
    catalogue = _parsed(path, locale)
    sound, problems = Catalog(), []
    try:
        sound.mime_headers = catalogue.mime_headers
        for message in [each for each in catalogue if each.id]:
            fault = find_fault(message) if message.string and not message.fuzzy else ""
            if fault:
                problems.append(f"{path}, line {message.lineno or 0}: {fault}; the English text is shown until this is fixed")
            elif is_whole(message):
                sound[message.id] = message
        codecs.lookup(sound.charset)  # The file is read as UTF-8, but a header that names no encoding is a mistake.
        _try_plurals(sound)
        texts = Translations(sound)
    except (ValueError, LookupError, AttributeError, ArithmeticError) as error:
        reason = Sentence("its header cannot be used (%(error)s); see Content-Type and Plural-Forms in it", error=_cause(error))
        raise CatalogueInvalid(Sentence("%(path)s: %(reason)s", path=path, reason=reason)) from error
    return Reading(path, _language(locale, texts), catalogue, sound, tuple(problems))


def read_text(path: Path) -> str:
    """The text of a translation file; CatalogueInvalid when it cannot be read."""
    try:
        return path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise CatalogueInvalid(Sentence(
            "%(path)s cannot be read (%(strerror)s); check its permissions, or remove it",
            path=path, strerror=error.strerror or error,
        )) from error
    except UnicodeDecodeError as error:
        raise CatalogueInvalid(
            Sentence("%(path)s is not UTF-8 text (%(error)s); save it as UTF-8", path=path, error=_cause(error))
        ) from error


def _parsed(path: Path, locale: Locale) -> Catalog:
    text = read_text(path)
    for number, line in enumerate(text.splitlines(), 1):
        if not _LINE.fullmatch(line):
            fault = Sentence("%(line)s is not a line of a catalogue; fix the file, or remove it", line=repr(line.strip()[:60]))
            raise CatalogueInvalid(Sentence("%(path)s, line %(number)s: %(fault)s", path=path, number=number, fault=fault))
    try:
        catalogue = read_po(io.StringIO(text), locale=locale, abort_invalid=True)
    except PoFileError as error:
        raise CatalogueInvalid(Sentence(
            "%(path)s, line %(lineno)s: %(error)s; fix the file, or remove it",
            path=path, lineno=error.lineno, error=_cause(error),
        )) from error
    except (LookupError, ValueError) as error:
        raise CatalogueInvalid(Sentence(
            "%(path)s cannot be read as a catalogue (%(error)s); fix the file, or remove it", path=path, error=_cause(error)
        )) from error
    catalogue.locale = locale  # The file name takes precedence over the header.
    return catalogue


def is_whole(message: Message) -> bool:
    """Whether every plural form is translated; the compiler would fill missing ones with English."""
    forms = message.string if isinstance(message.string, tuple | list) else (message.string,)
    return bool(forms) and all(forms)


def _try_plurals(catalogue: Catalog) -> None:
    """Raise ValueError or ArithmeticError if the plural rule fails for a number or selects a form that does not exist."""
    form_of, forms = c2py(catalogue.plural_expr), catalogue.num_plurals
    for number in range(_NUMBERS_TRIED):
        if not 0 <= (form := form_of(number)) < forms:
            raise ValueError(f"the plural form of {number} is {form}, but there are only {forms} forms")


def _cause(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__


def locale_of(path: Path) -> Locale:
    """The language in the name of a file; CatalogueInvalid when it is not a language."""
    try:
        return Locale.parse(path.stem.replace("-", "_"))
    except (UnknownLocaleError, ValueError) as error:
        raise CatalogueInvalid(
            Sentence(
                "%(path)s: %(stem)s is not a language; name the file like de.po or pt-BR.po", path=path, stem=repr(path.stem)
            )
        ) from error


class Translations(NullTranslations):
    """The texts of a catalogue, without the detour over a compiled file, which costs 40 ms at every start."""

    def __init__(self, catalogue: Catalog) -> None:
        super().__init__()
        self._form_of = c2py(catalogue.plural_expr)
        self._texts: dict[tuple[str | None, str], tuple[str, ...]] = {}
        for message in catalogue:
            key = message.id if isinstance(message.id, str) else message.id[0]
            if key and message.string and not message.fuzzy:
                self._texts[message.context, key] = (message.string,) if isinstance(message.string, str) else tuple(message.string)

    def gettext(self, message: str) -> str:
        texts = self._texts.get((None, message))
        return super().gettext(message) if texts is None else texts[0]

    def ngettext(self, msgid1: str, msgid2: str, n: int) -> str:
        texts = self._texts.get((None, msgid1))
        return super().ngettext(msgid1, msgid2, n) if texts is None else texts[self._form_of(n)]

    def pgettext(self, context: str, message: str) -> str:
        texts = self._texts.get((context, message))
        return super().pgettext(context, message) if texts is None else texts[0]

    def npgettext(self, context: str, msgid1: str, msgid2: str, n: int) -> str:
        texts = self._texts.get((context, msgid1))
        return super().npgettext(context, msgid1, msgid2, n) if texts is None else texts[self._form_of(n)]


def _language(locale: Locale, texts: NullTranslations) -> Language:
    tag, name = str(locale).replace("_", "-"), locale.get_display_name(locale) or str(locale)
    decimal = locale.number_symbols["latn"]["decimal"]
    return Language(tag, name[:1].upper() + name[1:], locale.text_direction, str(decimal), texts)


def find_fault(message: Message) -> str:
    """Why this translation would break a page; empty when it would not."""
    own = message.id if isinstance(message.id, tuple | list) else (message.id,)
    expected = {name for text in own for name in PLACEHOLDER.findall(text)}
    tags = sorted(_TAG.findall(own[-1]))
    for text in message.string if isinstance(message.string, tuple | list) else (message.string,):
        if not text:
            continue
        names = set(PLACEHOLDER.findall(text))
        if unknown := names - expected:
            return f"the translation uses %({min(unknown)})s, which the text {own[0][:60]!r} does not contain"
        if missing := expected - names - {"num"}:
            return f"the translation does not contain %({min(missing)})s of the text {own[0][:60]!r}"
        if "%" in PLACEHOLDER.sub("", text).replace("%%", ""):
            return f"the translation of {own[0][:60]!r} contains a single percent sign; write it as %%"
        if sorted(_TAG.findall(text)) != tags or text.count('"') != own[-1].count('"'):
            return f"the translation of {own[0][:60]!r} has different HTML tags or straight quotation marks than the text"
    return ""


class Languages:
    """The languages of this appliance; English is always one of them.  `load` returns the others when they are first needed."""

    def __init__(self, load: Callable[[], Sequence[Language]], default: str = ENGLISH.tag) -> None:
        """`default` is used when no requested language is available; ConfigInvalid when it is not available itself."""
        self._load, self._default = load, default
        if default != ENGLISH.tag:
            _ = self.default
        self._negotiate = lru_cache(maxsize=256)(self._best)

    @cached_property
    def _languages(self) -> dict[str, Language]:
        return {ENGLISH.tag: ENGLISH, **{each.tag: each for each in self._load()}}

    @cached_property
    def default(self) -> Language:
        language = self.get(self._default)
        if language is None:
            message = Sentence(
                "there is no catalogue for the language %(default)s; use one of %(known)s",
                default=repr(self._default), known=", ".join(sorted(self._languages)),
            )
            raise ConfigInvalid(Sentence("console.language: %(reason)s", reason=message), pointer="/console/language")
        return language

    def __iter__(self) -> Iterator[Language]:
        return iter(sorted(self._languages.values(), key=lambda each: each.name))

    def get(self, tag: str) -> Language | None:
        """The language with this tag, or with the tag without its region."""
        normalized = tag.replace("_", "-").lower()
        by_tag = {each.tag.lower(): each for each in self._languages.values()}
        return by_tag.get(normalized) or by_tag.get(normalized.partition("-")[0])

    def choose(self, own: str, accept: str = "") -> Language:
        """The language for a user: their own choice, else the best match for `Accept-Language` (empty for e-mail), else the
        default."""
        return (self.get(own) if own else None) or self._negotiate(accept[:200])

    def _best(self, accept: str) -> Language:
        matches = [match for part in accept.split(",") if (match := _LANGUAGE_RANGE.fullmatch(part))]
        ranges = [match for match in matches if match[2] not in ("0", "0.", "0.0")]
        for language_range in sorted(ranges, key=lambda match: float(match[2] or 1), reverse=True):
            if (language := self.get(language_range[1])) is not None:
                return language
        return self.default


def survey(folders: Sequence[Path]) -> Iterator[Reading | CatalogueInvalid]:
    """Read every translation file in these folders; yields the error for one that cannot be used."""
    for folder in folders:
        for path in sorted(folder.glob("*.po")):
            try:
                yield read_catalogue(path)
            except CatalogueInvalid as error:
                yield error


def load_languages(folders: Sequence[Path], default: str, of_connectors: Callable[[], Sequence[Path]] = list) -> Languages:
    """The languages of these folders, read when first needed.  Of two files of one language, messages in the later one take
    precedence.

    Catalogues of connectors have the lowest precedence and do not add languages.  A file or message that cannot be used is
    skipped with a log entry, so that a translator's mistake does not stop the appliance.
    """

    def read() -> Sequence[Language]:
        languages = _read_languages(folders)
        for tag, language in _read_languages(of_connectors()).items():
            if tag in languages:
                languages[tag].catalogue.add_fallback(language.catalogue)
        return list(languages.values())

    return Languages(read, default)


def _read_languages(folders: Sequence[Path]) -> dict[str, Language]:
    languages: dict[str, Language] = {}
    for result in survey(folders):
        if isinstance(result, CatalogueInvalid):
            log.error("a translation file was skipped: %s", result.message)
            continue
        for problem in result.problems:
            log.warning("a translated message was skipped: %s", problem)
        language = result.language
        if (before := languages.get(language.tag)) is not None:
            language.catalogue.add_fallback(before.catalogue)
        languages[language.tag] = language
    return languages
