"""The effective settings for display: secrets are hidden, and each value has its origin."""

import dataclasses
import re
from dataclasses import dataclass
from typing import Any

from .loading import Config


@dataclass(frozen=True)
class SettingView:
    """A setting for display: its value (hidden if secret) and the origin of the value."""

    name: str
    value: str
    origin: str
    doc: str


def list_settings(config: Config) -> dict[str, list[SettingView]]:
    """The effective settings, by section."""
    return {
        section.name: [_to_view(config, section.name, field) for field in dataclasses.fields(getattr(config, section.name))]
        for section in dataclasses.fields(Config)
    }


def _to_view(config: Config, section: str, field: Any) -> SettingView:
    name, value = f"{section}.{field.name}", getattr(getattr(config, section), field.name)
    text = ", ".join(map(str, value)) if isinstance(value, tuple) else str(value).lower() if isinstance(value, bool) else str(value)
    if not field.repr:
        text = "hidden" if text else ""
    elif "://" in text and "@" in text:  # Hide a password in a URL.
        text = re.sub(r"(://[^:/@\s]*):[^@\s]*@", r"\1:hidden@", text)
    return SettingView(name, text, config.origins.get(name, "default"), field.metadata["doc"])
