"""The target of a call: an address below the base address, headers and query parameters."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import SplitResult, quote, unquote, urlsplit

from appliance.connectors.contract import ConfigError

Pairs = list[tuple[str, str]]

_PLACEHOLDER = re.compile(r"\{([A-Za-z0-9_]+)\}")
_UNSAFE = re.compile(r"[\x00-\x20\x7f\\]")
_DEFAULT_PORT = {"http": 80, "https": 443}


@dataclass(frozen=True)
class Target:
    """An address with its headers and query parameters."""

    url: str
    headers: Pairs
    params: Pairs


def build_target(settings: Mapping[str, Any], call: Mapping[str, Any]) -> Target:
    """The target of a call; ConfigError when it would leave the base address.

    The call's own headers and query win over the settings' defaults.
    """
    url = resolve(settings.get("base_url"), fill(call["url"], call.get("path", {})))
    headers = _merge(_header_pairs(settings.get("headers", {})), _header_pairs(call.get("headers", {})))
    params = _merge(pairs_of(settings.get("query", {})), pairs_of(call.get("query", {})), fold=False)
    return Target(url, headers, params)


def fill(url: str, values: Mapping[str, Any]) -> str:
    """`url` with its {names} replaced by percent-encoded values; ConfigError for a name without value."""

    def value(match: "re.Match[str]") -> str:
        if match[1] not in values:
            raise ConfigError(f"The address contains {{{match[1]}}}, for which `path` has no value.")
        return quote(text_of(values[match[1]]), safe="")

    return _PLACEHOLDER.sub(value, url) if values or _PLACEHOLDER.search(url) else url


def resolve(base_url: str | None, url: str) -> str:
    """The full address; ConfigError when it is not one, or not below `base_url`."""
    if _UNSAFE.search(url):
        raise ConfigError("The address contains a space, a backslash or a control character; percent-encode it.")
    absolute = re.match(r"[A-Za-z][A-Za-z0-9+.-]*://|//", url) is not None
    if base_url is None and not absolute:
        raise ConfigError("The integration has no base address, so `url` must be a full one such as https://host/path.")
    if base_url is not None and not absolute:
        base = base_url.rstrip("/")
        url = f"{base}{url}" if url[:1] in ("?", "") else f"{base}/{url.lstrip('/')}"
    if _has_parent_segment(url):
        raise ConfigError("The address contains `..`; write the resolved path instead.")
    if base_url is not None and not is_below(base_url, url):
        raise ConfigError(f"The address is not below {base_url}; this integration's credentials must not be sent elsewhere.")
    return url.split("#")[0]


def is_below(base_url: str, url: str) -> bool:
    """Whether `url` has the origin of `base_url` and a path below its path."""
    base, target = _split(base_url), _split(url)
    if _origin(base) != _origin(target):
        return False
    prefix = base.path.rstrip("/")
    return target.path == prefix or target.path.startswith(f"{prefix}/")


def _split(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        _ = parts.port  # reading an invalid port raises
        return parts
    except ValueError as error:
        raise ConfigError(f"{url[:200]!r} is not an address.") from error


def _origin(parts: SplitResult) -> tuple[str, str | None, str | None, int | None]:
    return parts.scheme, parts.username, parts.hostname, parts.port or _DEFAULT_PORT.get(parts.scheme)


def _has_parent_segment(url: str) -> bool:
    path = _split(url).path
    return any(".." in re.split(r"[/\\]", unquote(unquote(segment))) for segment in path.split("/"))


def _header_pairs(values: Mapping[str, str]) -> Pairs:
    return list(values.items())


def pairs_of(values: Mapping[str, Any]) -> Pairs:
    """Form or query pairs: an array repeats the name, null omits it, booleans are written as true and false."""
    pairs: Pairs = []
    for name, value in values.items():
        if isinstance(value, list):
            pairs += [(name, text_of(part)) for part in value]
        elif value is not None:
            pairs.append((name, text_of(value)))
    return pairs


def text_of(value: Any) -> str:
    """A scalar as written in a URL or a form."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _merge(*layers: Pairs, fold: bool = True) -> Pairs:
    """Later layers replace the names of earlier ones; header names are compared without case (`fold`)."""
    merged: Pairs = []
    for layer in layers:
        names = {name.lower() if fold else name for name, _ in layer}
        merged = [pair for pair in merged if (pair[0].lower() if fold else pair[0]) not in names] + layer
    return merged
