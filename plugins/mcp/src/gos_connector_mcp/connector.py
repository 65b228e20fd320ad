"""The connector: allowed tools become actions; before each call it checks that the server still serves the allowed tool."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from appliance.connectors.contract import (
    Action,
    ConfigError,
    Connector,
    Context,
    Effect,
    Json,
    SystemFailure,
    Withdrawn,
    authorized,
)
from gos_connector_mcp.declaration import LIST_TOOLS, SETTINGS
from gos_connector_mcp.results import Reader, output_schema
from gos_connector_mcp.session import MAX_ANSWER_BYTES, Conversation, Request, argument_headers
from gos_connector_mcp.tools import Tool, action_name, changed_parts, hints_of, is_pinned, tools_of

_MAX_PAGES = 50
_MAX_TOOLS = 1000
_MAX_LIST_BYTES = 8 << 20  # bytes of all pages of a list together
_ANY_OBJECT: Json = {"type": "object"}
_HOW_TO_ALLOW = "read its current description (action list_tools) and, to allow it, set its pin under allowed_tools in the settings"


class McpConnector(Connector):
    """One outside MCP server."""

    contract_version = 1
    name = "mcp"
    title = "MCP server"
    version = "0.1.0"
    tested_against = "servers of the official Python SDK 2.3 on loopback (2026-07-28 and earlier revisions); hostile ones"
    settings_schema: ClassVar[Json] = SETTINGS
    actions: ClassVar[tuple[Action, ...]] = (LIST_TOOLS,)

    def __init__(self, settings: Json) -> None:
        super().__init__(settings)
        self._allowed: Mapping[str, Mapping[str, Any]] = settings.get("allowed_tools", {})
        self._conversation = Conversation(settings, lambda ctx: authorized(ctx, self.auth_of(settings)))

    def check(self, ctx: Context) -> str:
        server = self._conversation.get_server(ctx)
        tools = self._served(ctx)
        refused = [name for name in self._allowed if self._problem(name, tools.get(name))]
        note = f" Not offered, see list_tools: {', '.join(sorted(refused)[:10])}." if refused else ""
        return f"{server.name or 'The server'} speaks MCP {server.revision} and serves {len(tools)} tools.{note}"

    def call(self, action: str, input: Json, ctx: Context) -> dict[str, Any]:  # noqa: A002 - the contract's word
        if action != LIST_TOOLS.name:
            raise ConfigError(f"There is no action {action!r}; list_tools shows the server's tools and which of them are allowed.")
        server, tools = self._conversation.get_server(ctx), self._served(ctx)
        missing = [self._to_view(name, None) for name in self._allowed if name not in tools]
        info = {"name": server.name, "version": server.version, "revision": server.revision, "instructions": server.instructions}
        return {"server": info, "tools": [*(self._to_view(name, tool) for name, tool in tools.items()), *missing]}

    def discover(self, ctx: Context) -> Sequence[Action]:
        tools = self._served(ctx) if self._allowed else {}
        return [self._action(name, tools.get(name)) for name in self._offered()]

    def perform(self, action: Action, input: Json, ctx: Context) -> dict[str, Any]:  # noqa: A002 - the contract's word
        if not action.plan:
            return self.call(action.name, input, ctx)
        name = str(action.plan["tool"])
        tool = self._served(ctx, name).get(name)
        # This also covers tools that were never allowed: an action discovered with other settings is not performed.
        if tool is None or (problem := self._problem(name, tool)):
            raise Withdrawn(self._problem(name, None) if tool is None else problem, details={"tool": name})
        changes = self._effect(name) != "read"
        params = {"name": name, "arguments": dict(input), "_meta": {"gos.appliance/idempotency-key": ctx.idempotency_key}}
        request = Request("tools/call", params, argument_headers(tool.headers, input), changes)
        result = self._conversation.request(request, ctx)
        reader = Reader(ctx, name, keeps_bytes=self.settings.get("binaries") == "documents", changes=changes)
        return reader.read(result, promised=tool.output is not None)

    # -- tools

    def _served(self, ctx: Context, only: str | None = None) -> dict[str, Tool]:
        """The tools the server lists now, by name; with `only`, just the tool of that name is parsed."""
        listed: list[Any] = []
        cursor, seen, bytes_left = None, set(), _MAX_LIST_BYTES
        for _ in range(_MAX_PAGES):
            params: Json = {} if cursor is None else {"cursor": cursor}
            request = Request("tools/list", params, max_bytes=min(MAX_ANSWER_BYTES, bytes_left))
            page, size = self._conversation.request_with_size(request, ctx)
            tools, bytes_left = page.get("tools"), bytes_left - size
            if not isinstance(tools, list):
                raise SystemFailure("The server's list of tools is not a list.")
            if len(listed) + len(tools) > _MAX_TOOLS:
                raise SystemFailure(f"The server lists more than {_MAX_TOOLS} tools.")
            listed += tools
            cursor = page.get("nextCursor")
            if cursor is None:
                return tools_of(listed, only)
            if bytes_left <= 0:
                raise SystemFailure(f"The server's list of tools has more than {_MAX_LIST_BYTES >> 20} MiB.")
            if not isinstance(cursor, str) or len(cursor) > 4096 or cursor in seen:
                break
            seen.add(cursor)
        raise SystemFailure("The server's list of tools does not end.")

    def _offered(self) -> list[str]:
        """The names of the allowed tools, one per action: if several map to one action, the first represents the conflict."""
        first: dict[str, str] = {}
        for name in sorted(self._allowed):
            first.setdefault(action_name(name), name)
        return list(first.values())

    def _effect(self, name: str) -> Effect:
        effect: Effect = self._allowed.get(name, {}).get("effect", "write")
        return effect

    def _problem(self, name: str, tool: Tool | None) -> str:
        """Why a tool is not offered and what to do about it; empty when it is offered."""
        if name not in self._allowed:
            return f"The tool {name} is not allowed: {_HOW_TO_ALLOW}."
        if action_name(name) == LIST_TOOLS.name:
            return f"The tool {name} cannot be offered: the action {LIST_TOOLS.name} is reserved for the connector."
        if twins := [each for each in self._allowed if each != name and action_name(each) == action_name(name)]:
            return f"The tools {name} and {min(twins)} would be the same action {action_name(name)}: allow one of them."
        if tool is None:
            return f"The tool {name} is no longer served by the server: remove it from allowed_tools, or ask the server's operator."
        if tool.problem:
            return f"The tool {name} cannot be offered: {tool.problem}. Ask the server's operator, or remove it from allowed_tools."
        if not is_pinned(self._allowed[name]["pin"], tool):
            changed = ", ".join(changed_parts(self._allowed[name]["pin"], tool))
            return f"The tool {name} is served with another description than was allowed (changed: {changed}): {_HOW_TO_ALLOW}."
        return ""

    def _action(self, name: str, tool: Tool | None) -> Action:
        problem = self._problem(name, tool)
        if problem or tool is None:
            action = action_name(name) if action_name(name) != LIST_TOOLS.name else f"{LIST_TOOLS.name}_of_server"
            return Action(action, f"The tool {name}", _ANY_OBJECT, _ANY_OBJECT, "write", plan={"tool": name}, withheld=problem)
        return Action(
            action_name(name), tool.summary, tool.input, output_schema(tool.output), self._effect(name), plan={"tool": name}
        )  # fmt: skip

    def _to_view(self, name: str, tool: Tool | None) -> dict[str, Any]:
        problem = self._problem(name, tool)
        view: dict[str, Any] = {"name": name, "action": action_name(name), "effect": self._effect(name)}
        if problem:
            view["problem"] = problem
        if tool is None:
            return {**view, "state": "missing", "summary": f"The tool {name}", "pin": ""}
        state = "allowed" if not problem else "unusable" if tool.problem else "changed" if name in self._allowed else "not_allowed"
        view |= {"state": state, "summary": tool.summary, "description": tool.text, "pin": tool.pin, "hints": hints_of(tool)}
        return {**view, "input": tool.input} if tool.input else view
