"""English sentences that can be translated later, because they keep their id and values."""

import functools
import re
from collections.abc import Iterable, Mapping
from typing import Any, Self

PLACEHOLDER = re.compile(r"%\((\w+)\)s")
"""A placeholder in the id of a sentence."""
Value = str | float


class Sentence(str):
    """An English sentence, with `id` as the template, in which `%(name)s` stands for each of `values`.

    It is a `str` with the English text; `texts.translate` translates it, with `id` as the key in the catalogue.  A value may be
    another Sentence, or a float, which is formatted with the decimal sign of the language; any other value is converted to
    text.  A percent sign in an id with values is written `%%`.
    """

    __slots__ = ("id", "values")

    id: str
    values: Mapping[str, Value]

    def __new__(cls, id: str, /, **values: object) -> Self:  # noqa: A002 - the term of catalogues
        converted = {name: value if isinstance(value, Sentence | float) else f"{value}" for name, value in values.items()}
        texts = {name: f"{value:.15g}" if isinstance(value, float) else value for name, value in converted.items()}
        self = super().__new__(cls, id % texts if texts else id)
        self.id, self.values = id, converted
        return self

    @classmethod
    def joined(cls, parts: Iterable[str], separator: str = ", ") -> Self:
        """A sentence of several parts, each of which is translated separately."""
        values = {f"part{number}": part for number, part in enumerate(parts)}
        return cls(separator.join(f"%({name})s" for name in values), **values)

    def __mod__(self, values: Any) -> "Sentence":
        """Fill in the values of a sentence that has none yet, as in `PATTERN % {"name": name}`; unused values are ignored."""
        return Sentence(self.id, **{name: values[name] for name in dict.fromkeys(PLACEHOLDER.findall(self.id))})

    def __str__(self) -> Self:
        """The sentence itself, so that `str(error)` is still a Sentence."""
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return functools.partial(Sentence, self.id, **self.values), ()


# -- as JSON, for the database; a Sentence without values equals its id and is stored as plain text


def pack(sentence: Sentence) -> dict[str, Any]:
    """Serialize a Sentence: its id and values as JSON data."""
    values = {name: pack(value) if isinstance(value, Sentence) else value for name, value in sentence.values.items()}
    return {"id": sentence.id, "values": values}


def unpack(packed: Mapping[str, Any]) -> Sentence:
    """Restore a Sentence from the result of `pack`."""
    values = {name: unpack(value) if isinstance(value, dict) else value for name, value in packed["values"].items()}
    return Sentence(packed["id"], **values)


def find_sentences(value: Any, pointer: str = "") -> dict[str, Sentence]:
    """All Sentences with values in JSON data, by JSON pointer (RFC 6901)."""
    if isinstance(value, Sentence):
        return {pointer: value} if value.values else {}
    sentences: dict[str, Sentence] = {}
    if isinstance(value, dict):
        for name, member in value.items():
            sentences |= find_sentences(member, f"{pointer}/{str(name).replace('~', '~0').replace('/', '~1')}")
    elif isinstance(value, list | tuple):
        for index, member in enumerate(value):
            sentences |= find_sentences(member, f"{pointer}/{index}")
    return sentences


def restore_sentences(value: Any, packed: Mapping[str, Any]) -> Any:
    """Replace the texts at these JSON pointers by their packed Sentences; modifies and returns the data."""
    for pointer, each in packed.items():
        *parents, last = [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:]]
        container = value
        for part in parents:
            container = container[int(part) if isinstance(container, list) else part]
        container[int(last) if isinstance(container, list) else last] = unpack(each)
    return value
