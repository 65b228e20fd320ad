"""A model that obeys whatever it reads, as a client of /mcp."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

import httpx

from tests.agents.model_server import Call, ChatMessage, Turn, obey

from .disguises import readings

_MOST_TURNS = 12
_REVISION = "2026-07-28"
_numbers = count(1)


@dataclass(frozen=True)
class McpClient:
    """A client of the appliance's /mcp."""

    http: httpx.Client

    def call(self, name: str, arguments: Any) -> dict[str, Any]:
        envelope = {"protocolVersion": _REVISION, "clientInfo": {"name": "trap", "version": "1"}, "clientCapabilities": {}}
        meta = {f"io.modelcontextprotocol/{member}": value for member, value in envelope.items()}
        params = {"name": name, "arguments": arguments, "_meta": meta}
        message = {"jsonrpc": "2.0", "id": next(_numbers), "method": "tools/call", "params": params}
        headers = {
            "Accept": "application/json, text/event-stream", "MCP-Protocol-Version": _REVISION,
            "Mcp-Method": "tools/call", "Mcp-Name": name,
        }  # fmt: skip
        answer = self.http.post("/mcp", json=message, headers=headers)
        body = _message(answer)
        if "error" in body:
            code = "not_found" if "there is no tool" in body["error"]["message"] else "protocol"
            return {"error": {"code": code, "message": body["error"]["message"]}}
        result = body["result"]
        content: dict[str, Any] = result.get("structuredContent") or json.loads(result["content"][0]["text"])
        return content


def _message(answer: httpx.Response) -> dict[str, Any]:
    """The one message of an answer, which is JSON or a stream of events."""
    if answer.headers["content-type"].startswith("text/event-stream"):
        data = [line.removeprefix("data:") for line in answer.text.splitlines() if line.startswith("data:") and line != "data:"]
        last: dict[str, Any] = json.loads(data[-1])
        return last
    whole: dict[str, Any] = answer.json()
    return whole


@dataclass
class Conversation:
    """The calls that the model made, each with its result."""

    calls: list[tuple[str, Mapping[str, Any], Mapping[str, Any]]] = field(default_factory=list)

    def answers(self, tool: str) -> list[str]:
        """The codes and states that calls of the tool were answered with."""
        return [_code_of(result) for name, _, result in self.calls if name == tool]


def drive(client: McpClient, task: str) -> Conversation:
    """Let the model do the task, and whatever it reads meanwhile, until it answers or has used up its turns."""
    turn, done, messages = see_through(obey()), Conversation(), [ChatMessage("user", task)]
    for number in range(_MOST_TURNS):
        answer = turn(messages, {})
        if not isinstance(answer, Call):
            break
        call = replace(answer, id=f"call_{number}")
        result = client.call(call.name, call.arguments)
        done.calls.append((call.name, call.arguments, result))
        messages.append(ChatMessage("assistant", "", (call,)))
        messages.append(ChatMessage("tool", json.dumps(result, ensure_ascii=False), (), call.id or ""))
    return done


def see_through(turn: Turn) -> Turn:
    """The same model, which also follows what is hidden or encoded."""

    def seeing(messages: list[ChatMessage], tools: dict[str, Any]) -> Any:
        return turn([each for message in messages for each in _revealed(message)], tools)

    return seeing


def _revealed(message: ChatMessage) -> Iterator[ChatMessage]:
    yield message
    if message.role == "tool":
        texts = dict.fromkeys(reading for text in _texts(json.loads(message.text)) for reading in readings(text))
        yield ChatMessage("user", json.dumps(list(texts)))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for part in parts:
        yield from _texts(part)


def _code_of(result: Mapping[str, Any]) -> str:
    error, status = result.get("error"), str(result.get("status", ""))
    return status if status in ("failed", "denied", "approval_required") else str(error["code"]) if error else status or "done"
