"""Pure functions that split settings and their secrets for storage, and combine them for a call."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from appliance.core.errors import ValidationFailed
from appliance.core.json_schema import pointer_token

_REFERENCE = re.compile(r"=\s*secrets\.([A-Za-z_]\w{0,62})\s*", re.ASCII)
_EMBEDDED = re.compile(r"{{(.*?)}}", re.DOTALL)
_EMBEDDED_SECRET = re.compile(r"\s*secrets\.([A-Za-z_]\w{0,62})\s*", re.ASCII)

Secrets = Mapping[str, "Sealed"]
Path = tuple[str, ...]


@dataclass(frozen=True)
class Sealed:
    """A secret's value and when it was set (epoch ms)."""

    value: str
    updated_at: int


@dataclass(frozen=True)
class ExtractedSecrets:
    """Settings with a marker for each secret, and the secrets by pointer."""

    settings: dict[str, Any]
    secrets: dict[str, Sealed]


@dataclass
class OpenedSettings:
    """Settings as passed to the connector; `unresolved` maps pointers to names of tenant secrets that are not set."""

    settings: dict[str, Any]
    secrets: list[str] = field(default_factory=list)
    unresolved: dict[str, str] = field(default_factory=dict)


def is_marker(value: Any) -> bool:
    """Whether the value is a marker of a sealed secret: `{"sealed": true, …}`."""
    return isinstance(value, dict) and value.get("sealed") is True


def extract_secrets(schema: Mapping[str, Any], settings: Mapping[str, Any], stored: Secrets, now: int) -> ExtractedSecrets:
    """Extract the values of `"secret": true` members from `given`.

    A marker keeps the secret in `kept` (ValidationFailed if there is none).  A reference
    (`= secrets.<name>`) is not a secret itself and stays.
    """
    extracted = ExtractedSecrets({}, {})

    def walk(part: Mapping[str, Any], value: Any, pointer: str) -> Any:
        if part.get("secret") is True and (is_marker(value) or isinstance(value, str)):
            return _extract_one(extracted, stored, value, pointer, now)
        if isinstance(value, dict):
            return {name: walk(_member(part, name), inner, f"{pointer}/{pointer_token(name)}") for name, inner in value.items()}
        if isinstance(value, list):
            items = part.get("items")
            inner_schema = items if isinstance(items, dict) else {}
            return [walk(inner_schema, inner, f"{pointer}/{index}") for index, inner in enumerate(value)]
        return value

    return ExtractedSecrets(walk(schema, dict(settings), ""), extracted.secrets)


def _extract_one(extracted: ExtractedSecrets, stored: Secrets, value: Any, pointer: str, now: int) -> Any:
    if isinstance(value, str):
        if value.startswith("="):
            return value
        value = value.removeprefix("\\") if value.startswith("\\=") else value
        extracted.secrets[pointer] = Sealed(value, now)
    elif pointer in stored:
        extracted.secrets[pointer] = stored[pointer]
    else:
        raise ValidationFailed(
            "there is no stored secret here, or the change would send it elsewhere; enter the value again",
            pointer=f"/settings{pointer}",
        )
    return {"sealed": True}


def secret_targets(schema: Mapping[str, Any]) -> list[Path]:
    """Paths of the settings that decide where secrets are sent (`"secret_target": true`)."""
    paths: list[Path] = []
    for name, part in schema.get("properties", {}).items():
        if isinstance(part, dict):
            paths += [(name,)] if part.get("secret_target") is True else [(name, *rest) for rest in secret_targets(part)]
    return paths


def member_at(schema: Mapping[str, Any], path: Path) -> Mapping[str, Any]:
    """The schema of the setting at a path."""
    for name in path:
        schema = _member(schema, name)
    return schema


def value_at(settings: Any, path: Path) -> Any:
    """The value at a path of member names; None if there is none."""
    for name in path:
        settings = settings.get(name) if isinstance(settings, Mapping) else None
    return settings


def _member(schema: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    member = schema.get("properties", {}).get(name, schema.get("additionalProperties"))
    return member if isinstance(member, dict) else {}


def to_view(settings: Mapping[str, Any], secrets: Secrets, stamp: Callable[[int], str]) -> dict[str, Any]:
    """Settings for display: a secret becomes `{"sealed": true, "updated_at": …}`."""

    def look(pointer: str, value: Any) -> Any:
        if is_marker(value) and pointer in secrets:
            return {"sealed": True, "updated_at": stamp(secrets[pointer].updated_at)}
        return value

    view: dict[str, Any] = _map(settings, look)
    return view


def open_settings(settings: Mapping[str, Any], secrets: Secrets, find: Callable[[str], str | None]) -> OpenedSettings:
    """Settings with secrets and references filled in; `find` returns a tenant secret or None.

    ValidationFailed for an expression that is not `secrets.<name>`.
    """
    opened = OpenedSettings({}, [secret.value for secret in secrets.values()])

    def fill(name: str, pointer: str) -> str:
        value = find(name)
        if value is None:
            opened.unresolved[pointer] = name
            return ""
        opened.secrets.append(value)
        return value

    def look(pointer: str, value: Any) -> Any:
        if is_marker(value) and pointer in secrets:
            return secrets[pointer].value
        return _resolve(value, pointer, fill) if isinstance(value, str) else value

    opened.settings = _map(settings, look)
    return opened


def _resolve(text: str, pointer: str, fill: Callable[[str, str], str]) -> str:
    if text.startswith("\\="):
        return text[1:]
    if text.startswith("="):
        match = _REFERENCE.fullmatch(text)
        if match is None:
            raise _only_secrets(pointer)
        return fill(match[1], pointer)

    def replace(embedded: "re.Match[str]") -> str:
        match = _EMBEDDED_SECRET.fullmatch(embedded[1])
        if match is None:
            raise _only_secrets(pointer)
        return fill(match[1], pointer)

    return _EMBEDDED.sub(replace, text)


def _only_secrets(pointer: str) -> ValidationFailed:
    return ValidationFailed(
        "settings support no expression except secrets.<name>; write a text that begins with = as \\=",
        pointer=f"/settings{pointer}",
    )


def _map(value: Any, look: Callable[[str, Any], Any], pointer: str = "") -> Any:
    """A copy of JSON in which `look` may replace each value, outermost first."""
    seen = look(pointer, value)
    if seen is not value:
        return seen
    if isinstance(value, Mapping):
        return {name: _map(inner, look, f"{pointer}/{pointer_token(name)}") for name, inner in value.items()}
    if isinstance(value, list):
        return [_map(inner, look, f"{pointer}/{index}") for index, inner in enumerate(value)]
    return value
