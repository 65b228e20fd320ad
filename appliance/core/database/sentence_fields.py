"""Database fields that keep sentences translatable: the id and values of a Sentence are stored with its text."""

import json
from typing import TYPE_CHECKING, Any

import peewee

from appliance.core.sentences import Sentence, find_sentences, pack, restore_sentences, unpack

from .db import JsonField, dump_json

SENTENCES_MEMBER = "$sentences"
"""The member of a stored error object with the ids and values of its sentences; internal to this module."""
_LIST_MEMBER = "$list"
_SEPARATOR = "\x1e"


class ErrorField(JsonField):
    """An error object stored as JSON; its Sentences are restored when it is loaded."""

    def db_value(self, value: Any) -> str | None:
        return None if value is None else dump_error(value)

    def python_value(self, value: str | None) -> Any:
        return None if value is None else load_error(value)


class SentenceField(peewee.TextField):  # type: ignore[misc]  # peewee carries no types
    """A text or Sentence; a Sentence with values is stored as its text, a record separator (U+001E) and its JSON."""

    if TYPE_CHECKING:

        def __get__(self, instance: Any, owner: type) -> Any: ...

    def db_value(self, value: str | None) -> str | None:
        return dump_sentence(value)

    def python_value(self, value: str | None) -> str | None:
        return load_sentence(value)


def dump_sentence(value: str | None) -> str | None:
    """The stored form of a SentenceField, for plain SQL statements."""
    if isinstance(value, Sentence) and value.values:
        return f"{value}{_SEPARATOR}{dump_json(pack(value))}"
    return value


def load_sentence(value: str | None) -> str | None:
    """Restore a text or Sentence from the result of `dump_sentence`."""
    _text, separator, packed = (value or "").partition(_SEPARATOR)
    return unpack(json.loads(packed)) if separator else value


def dump_error(value: Any) -> str:
    """Serialize an error object, or a list with sentences; `load_error` restores it."""
    sentences = {pointer: pack(each) for pointer, each in find_sentences(value).items()}
    if not sentences:
        return dump_json(value)
    return dump_json({**(value if isinstance(value, dict) else {_LIST_MEMBER: value}), SENTENCES_MEMBER: sentences})


def load_error(text: str) -> Any:
    """Restore the object or list that `dump_error` serialized, including its Sentences."""
    value = json.loads(text)
    if not isinstance(value, dict) or SENTENCES_MEMBER not in value:
        return value
    packed = value.pop(SENTENCES_MEMBER)
    return restore_sentences(value.get(_LIST_MEMBER, value), packed)
