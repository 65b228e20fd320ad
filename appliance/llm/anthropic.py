"""Anthropic's Messages API; a structured answer is returned through a tool that the model must use.

Source of the format: Anthropic's API reference, "Messages", version 2023-06-01.
"""

from collections.abc import Mapping
from typing import Any

from appliance.core.database.db import dump_json

from .exchange import ANSWER, DEFAULT_MAX_TOKENS, Finish, Question, Reply, ReplyInvalid, count
from .openai import read_error
from .prompt import Message
from .tools import MOST_CALLS, ToolResult, read_call, sendable_arguments, sendable_name

__all__ = ["PATH", "headers", "read_error", "read_reply", "write_body"]

PATH = "/messages"
_VERSION = "2023-06-01"
_CHOICES = {"auto": "auto", "required": "any", "none": "none"}
_THOUGHTS = ("thinking", "redacted_thinking")


def headers(key: str) -> list[tuple[str, str]]:
    """The headers with the key and the version of the API."""
    return [("anthropic-version", _VERSION), *([("x-api-key", key)] if key else [])]


def write_body(question: Question) -> dict[str, Any]:
    """The request's JSON; messages with the role `system` become part of Anthropic's `system` member."""
    profile, parameters = question.profile, question.profile.parameters
    messages = [message for message in question.messages if not _is_system(message)]
    system = [question.system, *(message.text for message in question.messages if _is_system(message))]
    body: dict[str, Any] = {
        "model": profile.model, "max_tokens": question.max_tokens or DEFAULT_MAX_TOKENS,
        "messages": _merge([_message(message) for message in messages]), **parameters.extra,
        "system": "\n\n".join(filter(None, system)) or None, "temperature": question.temperature, "top_p": parameters.top_p,
    }  # fmt: skip
    if question.schema is not None and profile.structured == "native":
        description = "Give the answer to what was asked. Use this tool once."
        body["tools"] = [{"name": ANSWER, "description": description, "input_schema": dict(question.schema)}]
        body["tool_choice"] = {"type": "tool", "name": ANSWER}
    elif question.tools:
        body["tools"] = [
            {"name": tool.name, "description": tool.description, "input_schema": dict(tool.parameters)} for tool in question.tools
        ]
        # With thinking enabled, the API refuses a forced tool choice.
        choice = "auto" if question.choice == "required" and "thinking" in parameters.extra else question.choice
        body["tool_choice"] = {"type": _CHOICES[choice]}
    return {name: value for name, value in body.items() if value is not None}


def _is_system(message: Message | ToolResult) -> bool:
    return isinstance(message, Message) and message.role == "system"


def _message(message: Message | ToolResult) -> dict[str, Any]:
    if isinstance(message, ToolResult):
        result: dict[str, Any] = {"type": "tool_result", "tool_use_id": message.call_id, "content": message.text or "(nothing)"}
        return {"role": "user", "content": [result | ({"is_error": True} if message.is_failure else {})]}
    calls = [
        {"type": "tool_use", "id": call.id, "name": sendable_name(call.name), "input": sendable_arguments(call)}
        for call in message.calls
    ]
    # The API refuses an empty text.
    text = message.text if message.text.strip() else "" if calls else "(nothing)"
    parts: list[dict[str, Any]] = [*map(dict, message.thoughts), *([{"type": "text", "text": text}] if text else [])]
    images = [{"type": "base64", "media_type": each.media_type, "data": each.data} for each in message.images]
    return {"role": message.role, "content": [*parts, *({"type": "image", "source": source} for source in images), *calls]}


def _merge(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Merge consecutive messages of one role: the API requires alternating roles, and all tool results in one message."""
    merged: list[dict[str, Any]] = []
    for message in messages:
        if merged and merged[-1]["role"] == message["role"]:
            merged[-1] = {"role": message["role"], "content": [*merged[-1]["content"], *message["content"]]}
        else:
            merged.append(message)
    return merged


def read_reply(answer: Any, question: Question) -> Reply:
    """Parse the reply from a 200 response; ReplyInvalid when it has none."""
    content = answer.get("content") if isinstance(answer, Mapping) else None
    if not isinstance(answer, Mapping) or not isinstance(content, list):
        raise ReplyInvalid("the answer has no content")
    parts = [part for part in content if isinstance(part, Mapping)]
    tool_uses = [part for part in parts if part.get("type") == "tool_use"]
    if len(tool_uses) > MOST_CALLS:
        raise ReplyInvalid(f"the answer uses more than {MOST_CALLS} tools at once")
    answers = [part for part in tool_uses if part.get("name") == ANSWER] if question.schema is not None else []
    texts = [str(part.get("text") or "") for part in parts if part.get("type") == "text"]
    calls = () if answers else tuple(read_call(part.get("id"), part.get("name"), part.get("input")) for part in tool_uses)
    reason = str(answer.get("stop_reason") or "")
    read, written, cached = _usage(answer.get("usage"))
    return Reply(
        text=dump_json(answers[0].get("input")) if answers else "".join(texts), finish=_finish(reason, bool(calls)),
        input_tokens=read, output_tokens=written, model=str(answer.get("model") or ""), calls=calls,
        thoughts=tuple(part for part in parts if part.get("type") in _THOUGHTS), cached_tokens=cached,
        id=str(answer.get("id") or ""), reason=reason,
    )  # fmt: skip


def _finish(reason: str, has_calls: bool) -> Finish:
    if reason in ("max_tokens", "model_context_window_exceeded"):
        return "length"
    return "refused" if reason == "refusal" else "tools" if has_calls else "stop"


def _usage(usage: Any) -> tuple[int, int, int]:
    """Input tokens, output tokens, and how many of the input came from the cache; -1, -1, 0 if the server does not report them."""
    if not isinstance(usage, Mapping):
        return -1, -1, 0
    names = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
    read = [tokens for name in names if (tokens := count(usage.get(name))) >= 0]
    written = count(usage.get("output_tokens"))
    return (sum(read), written, max(count(usage.get(names[2])), 0)) if read and written >= 0 else (-1, -1, 0)
