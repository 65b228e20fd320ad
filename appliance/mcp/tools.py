"""Handles tools/list and tools/call; a request to a person opens a page in clients that support it."""

import json
from collections.abc import Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any

from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    ElicitRequest,
    ElicitRequestURLParams,
    InputRequiredResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    ToolAnnotations,
)
from mcp_types import Tool as OfferedTool
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from appliance.agents.tools import Caller, PendingResult, Tool, Toolbox
from appliance.core.errors import ApplianceError, NotFound
from appliance.tenants import AdmissionSlot, Streams
from appliance.web import as_coded, explain_fault_in_thread, in_thread, log_as, slot_of

from .admission import ADMITTED
from .waiting import wait_for

ASK, LOOK = "request_human_input", "get_human_input"
LOOK_SECONDS = 20
"""How long a client that has opened the page waits for a decision before it receives the status `pending`."""
Context = ServerRequestContext[Any, Any]


@dataclass(frozen=True)
class ToolHandlers:
    """The handlers for tools; blocking work runs in `threads`, and calls that wait count towards the limit of `streams`."""

    toolbox: Toolbox
    threads: Executor
    streams: Streams

    async def list(self, ctx: Context, params: PaginatedRequestParams | None) -> ListToolsResult:
        """List the tools that the caller's scopes allow."""
        return ListToolsResult(tools=[to_offered_tool(tool) for tool in self.toolbox.list_offered(caller_of(ctx).scope)])

    def input_schema(self, name: str) -> Mapping[str, Any] | None:
        """The schema of a tool's arguments; None if there is no such tool."""
        try:
            return self.toolbox.get(name).input_schema
        except NotFound:
            return None

    async def call(self, ctx: Context, params: CallToolRequestParams) -> CallToolResult | InputRequiredResult:
        """Call a tool.  An unknown tool is a protocol error; every other refusal is a result that explains it."""
        if params.name not in self.toolbox.names():
            raise MCPError(INVALID_PARAMS, f"there is no tool {params.name[:80]!r}")
        caller = caller_of(ctx)
        try:
            if params.name == ASK and params.request_state is not None:
                # The client's own answer about the page ("accept") is not a decision; only the stored approval counts.
                again = {"request_id": params.request_state, "wait_seconds": LOOK_SECONDS}
                return success_result(await self._run(ctx, LOOK, again))
            result = await self._run(ctx, params.name, params.arguments or {})
        except ApplianceError as error:
            return error_result(error, caller.scope.request_id)
        except Exception as fault:  # noqa: BLE001  logged by as_coded
            explained = await explain_fault_in_thread(self.threads, fault, caller.scope.tenant_id)
            return error_result(as_coded(explained, f"the tool {params.name} failed"), caller.scope.request_id)
        if params.name == ASK and result.get("status") == "pending" and can_open_pages(ctx):
            page = ElicitRequestURLParams(message=str(result.get("summary") or "A person is asked"), url=result["review_url"])
            return InputRequiredResult(input_requests={"review": ElicitRequest(params=page)}, request_state=result["request_id"])
        return success_result(result)

    async def _run(self, ctx: Context, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        caller, place = caller_of(ctx), place_of(ctx)
        request_id = caller.scope.request_id
        result = await in_thread(self.threads, log_as, request_id, self.toolbox.start, caller, name, arguments)
        if not isinstance(result, PendingResult):
            return result
        with self.streams.waiting(place):
            return await wait_for(self.threads, request_id, result, self.streams.poll_interval)


def caller_of(ctx: Context) -> Caller:
    """The caller that was admitted with this request."""
    caller: Caller = ctx.request.scope[ADMITTED]  # type: ignore[union-attr]
    return caller


def place_of(ctx: Context) -> AdmissionSlot:
    """The slot for concurrent work that this request holds."""
    return slot_of(ctx.request.scope)  # type: ignore[union-attr]


def can_open_pages(ctx: Context) -> bool:
    """Whether the client can open a page for the server and return with the sealed request state (protocol 2026-07-28)."""
    can = ctx.session.client_capabilities
    return ctx.protocol_version in MODERN_PROTOCOL_VERSIONS and can is not None and bool(can.elicitation and can.elicitation.url)


def to_offered_tool(tool: Tool) -> OfferedTool:
    """The description of a tool for clients."""
    hints = ToolAnnotations(
        title=tool.title, read_only_hint=tool.is_read_only, destructive_hint=tool.hints.destructive,
        idempotent_hint=tool.is_read_only or tool.hints.idempotent, open_world_hint=tool.hints.open_world,
    )  # fmt: skip
    return OfferedTool(
        name=tool.name, title=tool.title, description=tool.description, input_schema=dict(tool.input_schema),
        output_schema=dict(tool.output_schema), annotations=hints,
    )  # fmt: skip


def success_result(result: dict[str, Any]) -> CallToolResult:
    """A result as structured content, and as text for clients that read only text."""
    text = json.dumps(result, ensure_ascii=False)
    return CallToolResult(content=[TextContent(type="text", text=text)], structured_content=result)


def error_result(error: ApplianceError, request_id: str) -> CallToolResult:
    """A coded error with the same members as over REST."""
    details = [{"pointer": each.pointer, "code": each.code, "message": each.message} for each in error.details]
    view = {"code": error.code, "message": error.message, "details": details, "request_id": request_id, **error.extra}
    text = json.dumps({"error": view}, ensure_ascii=False)
    return CallToolResult(content=[TextContent(type="text", text=text)], is_error=True)
