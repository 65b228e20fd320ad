"""A tool as its server describes it: validated, pinned by the digest of its description, and compared with a pin."""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gos_connector_mcp.schemas import Schema, UnusableSchema, argument_header_paths, inline_references
from gos_connector_mcp.visible import escape_invisible, find_invisible

NAME = r"^[A-Za-z0-9_./-]{1,100}$"
_HINTS = {
    "readOnlyHint": "read_only", "destructiveHint": "destructive", "idempotentHint": "idempotent", "openWorldHint": "open_world",
}  # fmt: skip
_PARTS = {
    "name": "name", "title": "title", "description": "description", "inputSchema": "input schema",
    "outputSchema": "output schema", "annotations": "annotations",
}  # fmt: skip
_MAX_DESCRIPTION_LENGTH = 20_000
_MAX_SUMMARY_LENGTH = 300
_MAX_BYTES = 256 << 10


@dataclass(frozen=True)
class Tool:
    """A tool of a server.  `problem` says why it cannot be allowed, if so; `headers` maps headers to arguments' paths."""

    name: str
    served: Mapping[str, Any]
    pin: str
    problem: str = ""
    input: Schema = field(default_factory=dict)
    output: Schema | None = None
    headers: Mapping[str, list[str]] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The server's description of the tool, invisible characters written as code points."""
        return escape_invisible(_text(self.served.get("description")))

    @property
    def summary(self) -> str:
        """Title and description in one line, the description quoted, since it is only the server's claim."""
        title = escape_invisible(_text(self.served.get("title")) or self.name, 80)
        text = " ".join(self.text.split())
        line = f"{title} (the outside server says: “{text}”)" if text else f"{title} (of an outside server)"
        return escape_invisible(line, _MAX_SUMMARY_LENGTH)


def tools_of(listed: Sequence[Any], only: str | None = None) -> dict[str, Tool]:
    """The tools of a list by name, or `only` the one of this name; a name that is listed twice cannot be used."""
    tools: dict[str, Tool] = {}
    for served in listed:
        name = served.get("name") if isinstance(served, Mapping) else None
        if not isinstance(name, str) or only not in (None, name) or not re.fullmatch(NAME, name):
            continue  # the settings cannot contain such a name, so that the tool cannot be allowed
        if name in tools:
            tools[name] = Tool(name, tools[name].served, tools[name].pin, "the server lists two tools of this name")
        else:
            tools[name] = tool_of(name, served)
    return tools


def tool_of(name: str, served: Mapping[str, Any]) -> Tool:
    """The tool for a server's description, with its problem if it has one."""
    described = {part: served[part] for part in _PARTS if part in served}
    pin = pin_of(described)
    if len(_serialize(described)) > _MAX_BYTES:
        return Tool(name, described, pin, f"its description with its schemas has more than {_MAX_BYTES >> 10} KiB")
    for part, kind in (("title", str), ("description", str), ("annotations", dict)):
        if not isinstance(described.get(part, kind()), kind):
            return Tool(name, described, pin, f"its {part} is of the wrong type")
    if len(_text(described.get("description"))) > _MAX_DESCRIPTION_LENGTH:
        return Tool(name, described, pin, f"its description has more than {_MAX_DESCRIPTION_LENGTH} characters")
    if unseen := find_invisible(described):
        return Tool(name, described, pin, f"its description contains an invisible character ({unseen})")
    part = "input schema"
    try:
        input_schema = inline_references(described.get("inputSchema", {"type": "object"}))
        if input_schema.get("type") != "object":
            raise UnusableSchema("it does not describe an object")
        headers = argument_header_paths(described.get("inputSchema"))
        part = "output schema"
        output = inline_references(described["outputSchema"]) if "outputSchema" in described else None
    except UnusableSchema as error:
        return Tool(name, described, pin, f"its {part} cannot be used: {error}")
    return Tool(name=name, served=described, pin=pin, problem="", input=input_schema, output=output, headers=headers)


def pin_of(described: Mapping[str, Any]) -> str:
    """`sha256:<digest>` of the whole description, then a short digest of each part, which shows what changed."""
    parts = ".".join(_digest(described.get(part))[:10] for part in _PARTS)
    return f"sha256:{_digest(dict(described))}.{parts}"


def is_pinned(pin: str, tool: Tool) -> bool:
    """Whether the pin matches this description; only the digest of the whole counts."""
    return pin.partition(".")[0] == tool.pin.partition(".")[0]


def changed_parts(pin: str, tool: Tool) -> list[str]:
    """The parts in which the current description differs from the pinned one."""
    then, now = pin.split(".")[1:], tool.pin.split(".")[1:]
    if len(then) != len(now):
        return ["description"]
    return [part for part, old, new in zip(_PARTS.values(), then, now, strict=True) if old != new] or ["description"]


def hints_of(tool: Tool) -> dict[str, bool]:
    """The server's claims about the tool's effect, for display only."""
    annotations = tool.served.get("annotations")
    claims = annotations if isinstance(annotations, Mapping) else {}
    return {ours: claims[theirs] for theirs, ours in _HINTS.items() if isinstance(claims.get(theirs), bool)}


def action_name(name: str) -> str:
    """The name of a tool's action: both `createIssue` and `create-issue` become create_issue."""
    text = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name)
    slug = re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")
    return slug if slug[:1].isalpha() else f"tool_{slug}".rstrip("_")


def _digest(value: Any) -> str:
    return hashlib.sha256(_serialize(value)).hexdigest()


def _serialize(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
