"""The result of a tool as the action's output: typed, bounded, and nothing in it that nobody can look at."""

import base64
import binascii
import json
from collections.abc import Mapping
from typing import Any

from appliance.connectors.contract import ConnectorError, Context, Outcome, Rejected, SystemFailure
from gos_connector_mcp.schemas import Schema
from gos_connector_mcp.visible import shown

_MOST_PARTS = 200
_LONGEST_NAME = 500
_LONGEST_ERROR = 2000
_TEXT: Schema = {"type": "string"}
_PART: Schema = {
    "type": "object",
    "required": ["kind"],
    "additionalProperties": False,
    "properties": {
        "kind": {"enum": ["text", "resource", "link", "document", "left_out"]},
        "text": {**_TEXT, "description": "Of a text or a resource."},
        "uri": {**_TEXT, "description": "Of a resource or a link; the appliance does not follow it."},
        "name": {**_TEXT, "description": "Of a link."},
        "content_type": _TEXT,
        "document_id": {**_TEXT, "description": "Of an image, audio or other bytes, kept as a document."},
        "bytes": {"type": "integer"},
        "reason": {**_TEXT, "description": "Why something was left out."},
    },
}


def output_schema(structured: Schema | None) -> Schema:
    """The schema of an action's output, with what the tool promises under `structured`."""
    properties: Schema = {
        "text": {**_TEXT, "description": "All texts of the result."},
        "content": {"type": "array", "items": _PART, "description": "The parts of the result in their order."},
        "structured": structured if structured is not None else True,
    }
    required = ["text", "content"] if structured is None else ["text", "content", "structured"]
    return {"type": "object", "additionalProperties": False, "required": required, "properties": properties}


class Reader:
    """Reads one result; `keeps` says that bytes become documents of the tenant."""

    def __init__(self, ctx: Context, tool: str, *, keeps: bool, changes: bool) -> None:
        self._ctx, self._tool, self._keeps = ctx, tool, keeps
        self._outcome: Outcome = "unknown" if changes else "not_done"

    def read(self, result: Mapping[str, Any], *, promised: bool) -> dict[str, Any]:
        """The action's output; Rejected when the tool failed or wants an answer of us, SystemFailure for nonsense."""
        kind = result.get("resultType", "complete")
        if kind == "input_required":
            raise Rejected(
                f"The tool {self._tool} wants an answer of a person or a model of ours before it goes on; an outside server gets"
                " none. Use a tool that takes all it needs as arguments.",
                details={"asked": _asked(result)},
            )
        if kind != "complete":
            raise SystemFailure(f"The tool {self._tool} answered a result of the unknown type {kind!r:.80}.", outcome=self._outcome)
        content = result.get("content", [])
        if not isinstance(content, list) or not all(isinstance(each, Mapping) for each in content):
            raise SystemFailure(f"The tool {self._tool} answered something that is no content of MCP.", outcome=self._outcome)
        if result.get("isError") is True:
            said = shown("\n".join(_texts(content)), _LONGEST_ERROR)
            raise Rejected(f"The tool {self._tool} failed: {said or 'it does not say why'}", details={"tool": self._tool})
        parts = [self._part(each) for each in content[:_MOST_PARTS]]
        if len(content) > _MOST_PARTS:
            beyond = len(content) - _MOST_PARTS
            parts.append({"kind": "left_out", "reason": f"{beyond} further parts: {_MOST_PARTS} are the most"})
        output = {"text": "\n\n".join(_texts(content[:_MOST_PARTS])), "content": parts}
        if "structuredContent" in result:
            output["structured"] = result["structuredContent"]
        elif promised:
            raise SystemFailure(
                f"The tool {self._tool} answered without the structured content that it promises.", outcome=self._outcome
            )
        return output

    def _part(self, block: Mapping[str, Any]) -> dict[str, Any]:
        kind = block.get("type")
        if kind == "text" and isinstance(block.get("text"), str):
            return {"kind": "text", "text": block["text"]}
        if kind == "resource_link":
            return {"kind": "link", **_said(block, "uri", "name"), **_type_of(block)}
        resource = block.get("resource")
        if kind == "resource" and isinstance(resource, Mapping):
            if isinstance(resource.get("text"), str):
                return {"kind": "resource", "text": resource["text"], **_said(resource, "uri"), **_type_of(resource)}
            return self._bytes("resource", resource.get("blob"), resource)
        if kind in ("image", "audio"):
            return self._bytes(kind, block.get("data"), block)
        return {"kind": "left_out", "reason": f"content of the unknown type {shown(str(kind), 40)!r}"}

    def _bytes(self, kind: str, encoded: Any, block: Mapping[str, Any]) -> dict[str, Any]:
        """Bytes as a document, or why they were left out: the tool did its work, so that nothing here may fail the call."""
        said = _type_of(block)
        try:
            content = base64.b64decode(encoded if isinstance(encoded, str) else "?", validate=True)
        except (binascii.Error, ValueError):
            return {"kind": "left_out", **said, "reason": f"the {kind} is not base64"}
        size = {"bytes": len(content)}
        if not self._keeps:
            reason = f"the {kind} is not kept: set `binaries` to documents to have it"
            return {"kind": "left_out", **said, **size, "reason": reason}
        try:
            kept = self._ctx.documents.create(f"{self._tool}-{kind}", iter([content]), said.get("content_type", ""))
        except ConnectorError as error:
            return {"kind": "left_out", **said, **size, "reason": f"the {kind} could not be kept: {error.message}"}
        return {"kind": "document", **said, **size, "document_id": kept}


def _texts(content: list[Any]) -> list[str]:
    return [each["text"] for each in content if each.get("type") == "text" and isinstance(each.get("text"), str)]


def _said(block: Mapping[str, Any], *names: str) -> dict[str, str]:
    return {name: shown(block[name], _LONGEST_NAME) for name in names if isinstance(block.get(name), str)}


def _type_of(block: Mapping[str, Any]) -> dict[str, str]:
    given = block.get("mimeType")
    if isinstance(given, str) and given.isascii() and given.isprintable() and len(given) < 100:
        return {"content_type": given}
    return {}


def _asked(result: Mapping[str, Any]) -> list[str]:
    """The methods of what the server wants to know."""
    wanted = result.get("inputRequests")
    asked = wanted.values() if isinstance(wanted, Mapping) else ()
    return [shown(json.dumps(each.get("method")), 100) for each in asked if isinstance(each, Mapping)][:20]
