"""Sentences that can be read in another language later, because they keep what they were made of."""

import functools
import re
from collections.abc import Iterable, Mapping
from typing import Any, Self

NAMED = re.compile(r"%\((\w+)\)s")
"""The place of a value in an id."""
Value = str | float


class Sentence(str):
    """A sentence in English, made of `id`, in which `%(name)s` stands for each of `values`.

    Programs use it as the `str` that it is; `texts.tell` renders it in another language, whose catalogue knows it by its id.
    A value may be a Sentence itself, or a float, which is written with the decimal sign of the reader; of any other value the
    text is kept.  A percent sign in an id with values is written `%%`.
    """

    __slots__ = ("id", "values")

    id: str
    values: Mapping[str, Value]

    def __new__(cls, id: str, /, **values: object) -> Self:  # noqa: A002 - the term of catalogues
        kept = {name: value if isinstance(value, Sentence | float) else f"{value}" for name, value in values.items()}
        texts = {name: f"{value:.15g}" if isinstance(value, float) else value for name, value in kept.items()}
        self = super().__new__(cls, id % texts if texts else id)
        self.id, self.values = id, kept
        return self

    @classmethod
    def joined(cls, parts: Iterable[str], separator: str = ", ") -> Self:
        """The parts one after the other; each is rendered by itself."""
        values = {f"part{number}": part for number, part in enumerate(parts)}
        return cls(separator.join(f"%({name})s" for name in values), **values)

    def __mod__(self, values: Any) -> "Sentence":
        """The sentence with its values, where this is one that has none yet: `PATTERN % {"name": name}`; others are left out."""
        return Sentence(self.id, **{name: values[name] for name in dict.fromkeys(NAMED.findall(self.id))})

    def __str__(self) -> Self:
        """Itself, so that the text of an exception is still a Sentence."""
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return functools.partial(Sentence, self.id, **self.values), ()


# -- as JSON, for the database: a Sentence without values is its own id, and is written as the text that it is


def pack(sentence: Sentence) -> dict[str, Any]:
    """What a Sentence was made of, as JSON."""
    values = {name: pack(value) if isinstance(value, Sentence) else value for name, value in sentence.values.items()}
    return {"id": sentence.id, "values": values}


def unpack(packed: Mapping[str, Any]) -> Sentence:
    """The Sentence that was packed."""
    values = {name: unpack(value) if isinstance(value, dict) else value for name, value in packed["values"].items()}
    return Sentence(packed["id"], **values)


def find_sentences(value: Any, pointer: str = "") -> dict[str, Sentence]:
    """The Sentences with values anywhere in JSON data, by their places as JSON pointers (RFC 6901)."""
    if isinstance(value, Sentence):
        return {pointer: value} if value.values else {}
    found: dict[str, Sentence] = {}
    if isinstance(value, dict):
        for name, member in value.items():
            found |= find_sentences(member, f"{pointer}/{str(name).replace('~', '~0').replace('/', '~1')}")
    elif isinstance(value, list | tuple):
        for index, member in enumerate(value):
            found |= find_sentences(member, f"{pointer}/{index}")
    return found


def restore_sentences(value: Any, packed: Mapping[str, Any]) -> Any:
    """Put Sentences that were packed, by their places, back into the JSON data that they were found in; answers the data."""
    for pointer, each in packed.items():
        *way, last = [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:]]
        place = value
        for part in way:
            place = place[int(part) if isinstance(place, list) else part]
        place[int(last) if isinstance(place, list) else last] = unpack(each)
    return value
