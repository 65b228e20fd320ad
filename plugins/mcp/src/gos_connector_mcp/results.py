"""Turns the result of a tool into the action's output: typed, bounded, and without invisible characters in names."""

import base64
import binascii
import json
from collections.abc import Mapping
from typing import Any

from appliance.connectors.contract import ConnectorError, Context, Outcome, Rejected, SystemFailure
from gos_connector_mcp.schemas import Schema
from gos_connector_mcp.visible import escape_invisible

_MAX_PARTS = 200
_MAX_NAME_LENGTH = 500
_MAX_ERROR_LENGTH = 2000
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
        "document_id": {**_TEXT, "description": "Of an image, audio or other bytes stored as a document."},
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
    """Reads one result; with `keeps_bytes`, images, audio and other bytes become documents of the tenant."""

    def __init__(self, ctx: Context, tool: str, *, keeps_bytes: bool, changes: bool) -> None:
        self._ctx, self._tool, self._keeps_bytes = ctx, tool, keeps_bytes
        self._outcome: Outcome = "unknown" if changes else "not_done"

    def read(self, result: Mapping[str, Any], *, promised: bool) -> dict[str, Any]:
        """The action's output; Rejected when the tool failed or requires input, SystemFailure for an invalid result."""
        kind = result.get("resultType", "complete")
        if kind == "input_required":
            raise Rejected(
                f"The tool {self._tool} requires input from a user or a model to continue, which outside servers do not get."
                " Use a tool that takes everything it needs as arguments.",
                details={"asked": _requested_methods(result)},
            )
        if kind != "complete":
            raise SystemFailure(f"The tool {self._tool} returned a result of the unknown type {kind!r:.80}.", outcome=self._outcome)
        content = result.get("content", [])
        if not isinstance(content, list) or not all(isinstance(each, Mapping) for each in content):
            raise SystemFailure(f"The tool {self._tool} returned content that is not valid MCP.", outcome=self._outcome)
        if result.get("isError") is True:
            text = escape_invisible("\n".join(_texts(content)), _MAX_ERROR_LENGTH)
            raise Rejected(f"The tool {self._tool} failed: {text or 'it gave no reason'}", details={"tool": self._tool})
        parts = [self._part(each) for each in content[:_MAX_PARTS]]
        if len(content) > _MAX_PARTS:
            beyond = len(content) - _MAX_PARTS
            parts.append({"kind": "left_out", "reason": f"{beyond} further parts; the maximum is {_MAX_PARTS}"})
        output = {"text": "\n\n".join(_texts(content[:_MAX_PARTS])), "content": parts}
        if "structuredContent" in result:
            output["structured"] = result["structuredContent"]
        elif promised:
            raise SystemFailure(
                f"The tool {self._tool} returned no structured content, although it declares an output schema.",
                outcome=self._outcome,
            )
        return output

    def _part(self, block: Mapping[str, Any]) -> dict[str, Any]:
        kind = block.get("type")
        if kind == "text" and isinstance(block.get("text"), str):
            return {"kind": "text", "text": block["text"]}
        if kind == "resource_link":
            return {"kind": "link", **_text_members(block, "uri", "name"), **_type_of(block)}
        resource = block.get("resource")
        if kind == "resource" and isinstance(resource, Mapping):
            if isinstance(resource.get("text"), str):
                return {"kind": "resource", "text": resource["text"], **_text_members(resource, "uri"), **_type_of(resource)}
            return self._bytes("resource", resource.get("blob"), resource)
        if kind in ("image", "audio"):
            return self._bytes(kind, block.get("data"), block)
        return {"kind": "left_out", "reason": f"content of the unknown type {escape_invisible(str(kind), 40)!r}"}

    def _bytes(self, kind: str, encoded: Any, block: Mapping[str, Any]) -> dict[str, Any]:
        """The bytes as a document, or the reason why they were left out; never an error, since the tool has done its work."""
        type_info = _type_of(block)
        try:
            content = base64.b64decode(encoded if isinstance(encoded, str) else "?", validate=True)
        except (binascii.Error, ValueError):
            return {"kind": "left_out", **type_info, "reason": f"the {kind} is not base64"}
        size = {"bytes": len(content)}
        if not self._keeps_bytes:
            reason = f"the {kind} was not stored; to store it, set `binaries` to documents"
            return {"kind": "left_out", **type_info, **size, "reason": reason}
        try:
            document_id = self._ctx.documents.create(f"{self._tool}-{kind}", iter([content]), type_info.get("content_type", ""))
        except ConnectorError as error:
            return {"kind": "left_out", **type_info, **size, "reason": f"the {kind} could not be stored: {error.message}"}
        return {"kind": "document", **type_info, **size, "document_id": document_id}


def _texts(content: list[Any]) -> list[str]:
    return [each["text"] for each in content if each.get("type") == "text" and isinstance(each.get("text"), str)]


def _text_members(block: Mapping[str, Any], *names: str) -> dict[str, str]:
    return {name: escape_invisible(block[name], _MAX_NAME_LENGTH) for name in names if isinstance(block.get(name), str)}


def _type_of(block: Mapping[str, Any]) -> dict[str, str]:
    media_type = block.get("mimeType")
    if isinstance(media_type, str) and media_type.isascii() and media_type.isprintable() and len(media_type) < 100:
        return {"content_type": media_type}
    return {}


def _requested_methods(result: Mapping[str, Any]) -> list[str]:
    """The methods of the server's requests for input."""
    requests = result.get("inputRequests")
    values = requests.values() if isinstance(requests, Mapping) else ()
    return [escape_invisible(json.dumps(each.get("method")), 100) for each in values if isinstance(each, Mapping)][:20]
