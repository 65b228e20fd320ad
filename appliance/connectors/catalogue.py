"""The connector catalogue: what each connector can do and what it was tested against, taken from its declaration."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from appliance.connectors.contract import Action, Connector, Trigger
from appliance.connectors.registry import Registry


@dataclass(frozen=True)
class Entry:
    """One connector; `credentials` lists the kinds of its `auth` block, or the names of its secret settings."""

    name: str
    title: str
    version: str
    distribution: str
    actions: Sequence[Action]
    triggers: Sequence[Trigger]
    credentials: Sequence[str]
    tested_against: str


def entries(registry: Registry, words: str = "") -> list[Entry]:
    """List the usable connectors by name; with `words`, only those whose names, texts or credentials contain every word."""
    every_entry = [_entry(each.connector, each.distribution) for _, each in sorted(registry.installed.items())]
    return [entry for entry in every_entry if all(word in _searchable_text(entry) for word in words.lower().split())]


def _entry(connector: type[Connector], distribution: str) -> Entry:
    return Entry(
        name=connector.name, title=connector.title, version=connector.version, distribution=distribution,
        actions=connector.actions, triggers=connector.triggers,
        credentials=tuple(dict.fromkeys(_credentials(connector.settings_schema))), tested_against=connector.tested_against,
    )  # fmt: skip


def _searchable_text(entry: Entry) -> str:
    parts = [entry.name, entry.title, entry.distribution, entry.tested_against, *entry.credentials]
    parts += [f"{action.name} {action.summary}" for action in entry.actions]
    parts += [f"{trigger.name} {trigger.summary}" for trigger in entry.triggers]
    return " ".join(parts).lower()


def _credentials(schema: Mapping[str, Any]) -> Iterator[str]:
    """Yield the kinds of an `auth` block; without such a block, the names of secret settings."""
    properties = schema.get("properties", {})
    kind = properties.get("auth", {}).get("properties", {}).get("kind", {})
    if "enum" in kind:
        yield from (each for each in kind["enum"] if each != "none")
        return
    for name, part in properties.items():
        if isinstance(part, Mapping):
            yield from (name,) if part.get("secret") is True else _credentials(part)


def markdown(listed: Sequence[Entry]) -> str:
    """Render the catalogue as a Markdown page of the documentation."""
    lines = [
        "# Catalogue of connectors", "",
        "Made by `gos connector catalogue` from the connectors' declarations. Behind each action, its effect: r reads, i may be",
        "repeated without harm, w writes.", "",
        "| connector | actions | triggers | credentials | tested against |", "|---|---|---|---|---|",
    ]  # fmt: skip
    for entry in listed:
        actions = ", ".join(f"`{action.name}` {action.effect[0]}" for action in entry.actions) or "as the system has them"
        triggers = ", ".join(f"`{trigger.name}`" for trigger in entry.triggers) or "none"
        credentials = ", ".join(entry.credentials) or "none"
        name = f"[`{entry.name}`]({_readme(entry)}) {entry.version}"
        lines.append(f"| {name} | {actions} | {triggers} | {credentials} | {entry.tested_against or 'none'} |")
    return "\n".join(lines) + "\n"


def _readme(entry: Entry) -> str:
    """Return the path of the plugin's README, relative to docs/."""
    folder = entry.distribution.partition(" ")[0].removeprefix("gos-connector-")
    return f"../plugins/{folder}/README.md"
