"""Columns whose sentences stay translatable: what a Sentence was made of is stored beside its text."""

import json
from typing import TYPE_CHECKING, Any

import peewee

from appliance.core.sentences import Sentence, find_sentences, pack, restore_sentences, unpack

from .db import JsonField, dump_json

MADE_OF = "$sentences"
"""The member of a stored error object that says what its sentences were made of; nobody sees it but this module."""
_LIST = "$list"
_SEPARATOR = "\x1e"


class ErrorField(JsonField):
    """An error object as JSON; the Sentences in it come back as such."""

    def db_value(self, value: Any) -> str | None:
        return None if value is None else dump_error(value)

    def python_value(self, value: str | None) -> Any:
        return None if value is None else load_error(value)


class SentenceField(peewee.TextField):  # type: ignore[misc]  # peewee carries no types
    """A text that may be a Sentence; one with values is followed by a record separator (U+001E) and its JSON."""

    if TYPE_CHECKING:

        def __get__(self, instance: Any, owner: type) -> Any: ...

    def db_value(self, value: str | None) -> str | None:
        return dump_sentence(value)

    def python_value(self, value: str | None) -> str | None:
        _text, separator, packed = (value or "").partition(_SEPARATOR)
        return unpack(json.loads(packed)) if separator else value


def dump_sentence(value: str | None) -> str | None:
    """A text as a SentenceField stores it, for statements of our own."""
    if isinstance(value, Sentence) and value.values:
        return f"{value}{_SEPARATOR}{dump_json(pack(value))}"
    return value


def dump_error(value: Any) -> str:
    """An error object, or a list with sentences, as the text that `load_error` reads."""
    sentences = {pointer: pack(each) for pointer, each in find_sentences(value).items()}
    if not sentences:
        return dump_json(value)
    return dump_json({**(value if isinstance(value, dict) else {_LIST: value}), MADE_OF: sentences})


def load_error(text: str) -> Any:
    """The object or list that was stored, its Sentences restored."""
    value = json.loads(text)
    if not isinstance(value, dict) or MADE_OF not in value:
        return value
    packed = value.pop(MADE_OF)
    return restore_sentences(value.get(_LIST, value), packed)
