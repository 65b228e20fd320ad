"""Converts what a file, a variable or a flag says to the type of its setting."""

import dataclasses
import typing
from typing import Any, Literal

from appliance.core import yaml12
from appliance.core.errors import ConfigInvalid
from appliance.core.sentences import Sentence

_TYPES = {int: "a whole number, zero or more", bool: "true or false", str: "a text"}


def convert(name: str, value: Any, kind: Any, where: str) -> Any:
    """Convert the value to the setting's type; text from the environment is parsed.  ConfigInvalid."""
    if typing.get_origin(kind) is Literal:
        if value in typing.get_args(kind):
            return value
        raise _refusal(name, value, f"one of {', '.join(typing.get_args(kind))}", where)
    if kind is int and isinstance(value, str) and value.strip().lstrip("-").isdigit():
        value = int(value)
    if kind is bool and isinstance(value, str) and value.lower() in ("true", "false", "1", "0"):
        value = value.lower() in ("true", "1")
    if typing.get_origin(kind) is tuple:
        item = typing.get_args(kind)[0]
        return _convert_items(name, value, item, where) if dataclasses.is_dataclass(item) else _convert_texts(name, value, where)
    if type(value) is not kind or (kind is int and value < 0):
        raise _refusal(name, value, _TYPES.get(kind, str(kind)), where)
    return value


def _convert_texts(name: str, value: Any, where: str) -> tuple[str, ...]:
    if isinstance(value, str):
        value = [part.strip() for part in value.split(",") if part.strip()]
    if isinstance(value, list | tuple) and all(isinstance(part, str) for part in value):
        return tuple(value)
    raise _refusal(name, value, "a list of texts", where)


def _convert_items(name: str, value: Any, item: Any, where: str) -> tuple[Any, ...]:
    """A list of mappings as a tuple of `item`; a text, as variables have it, is read as YAML or JSON.

    No error shows a whole item, because it may contain a secret.
    """
    if isinstance(value, str):
        try:
            value = yaml12.load(value)
        except yaml12.YamlInvalid as error:
            message = Sentence("%(where)s: %(name)s: %(message)s", where=where, name=name, message=error.message)
            raise ConfigInvalid(message) from error
    if not isinstance(value, list | tuple):
        raise ConfigInvalid(Sentence("%(where)s: %(name)s must be a list", where=where, name=name))
    return tuple(_convert_item(f"{name}[{number}]", each, item, where) for number, each in enumerate(value))


def _convert_item(name: str, value: Any, item: Any, where: str) -> Any:
    if not isinstance(value, dict):
        raise ConfigInvalid(Sentence("%(where)s: %(name)s must be a mapping", where=where, name=name))
    fields = {field.name: field for field in dataclasses.fields(item)}
    for key in value:
        if key not in fields:
            raise ConfigInvalid(Sentence(
                "%(where)s: unknown field %(name)s.%(key)s; the fields are %(fields)s",
                where=where, name=name, key=str(key)[:60], fields=", ".join(fields),
            ))
    for field in fields.values():
        is_required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        if is_required and field.name not in value:
            raise ConfigInvalid(Sentence("%(where)s: %(name)s.%(field)s is missing", where=where, name=name, field=field.name))
        is_text = isinstance(value.get(field.name, ""), str)
        if not field.repr and not is_text:  # a secret, which no error shows
            raise ConfigInvalid(Sentence("%(where)s: %(name)s.%(field)s must be a text", where=where, name=name, field=field.name))
    return item(**{key: convert(f"{name}.{key}", each, fields[key].type, where) for key, each in value.items()})


def _refusal(name: str, value: Any, kinds: str, where: str) -> ConfigInvalid:
    return ConfigInvalid(Sentence(
        "%(where)s: %(name)s must be %(kinds)s, not %(value)s", where=where, name=name, kinds=kinds, value=repr(value)
    ))
