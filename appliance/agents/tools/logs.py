"""The tool that reads log lines."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from appliance.core import clock
from appliance.core.pages import PageRequest
from appliance.monitor import LineFilter, logs

from .shapes import TEXT, Shape, inputs, listed, page
from .tool import Caller, Tool

_TIME = {"type": "string", "format": "date-time"}


@dataclass(frozen=True)
class LogTools:
    """Tools for logs; `shape` renders a line."""

    shape: Shape

    def tools(self) -> list[Tool]:
        """`read_logs`."""
        arguments = inputs(
            text={"type": "string", "maxLength": 500, "description": "Text in the message or fields."},
            level={"enum": ["debug", "info", "warn", "error"], "description": "This level and above."},
            source=TEXT, execution=TEXT, process=TEXT, since=_TIME, until=_TIME,
            limit={"type": "integer", "minimum": 1, "maximum": 500, "default": 50}, cursor=TEXT,
        )  # fmt: skip
        return [
            Tool(
                name="read_logs", title="Read logs",
                description="Lists log lines, newest first: by text, level, source, execution, process and time.",
                input_schema=arguments, output_schema=listed(self.shape.schema), effect="read", scopes=frozenset({"logs.read"}),
                call=self.read, long=("items",),
            )
        ]  # fmt: skip

    def read(self, caller: Caller, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Like GET /logs."""
        since, until = (
            clock.parse_rfc3339(arguments[name], pointer=f"/{name}") if name in arguments else None for name in ("since", "until")
        )
        names = {"text": "text", "level": "level", "source": "source", "execution_id": "execution", "process_id": "process"}
        filters = LineFilter(**{member: arguments.get(name) for member, name in names.items()}, since=since, until=until)
        request = PageRequest(arguments.get("limit", 50), arguments.get("cursor"))
        return page(logs.list_lines(caller.scope, filters, request), self.shape.show)
