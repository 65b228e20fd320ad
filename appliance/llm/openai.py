"""OpenAI's Chat Completions API, which Ollama, vLLM, llama.cpp and many others implement as well.

Source of the format: OpenAI's API reference, "Create chat completion"; servers differ in which members they omit.
"""

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from appliance.core.database.db import dump_json

from .exchange import Question, Reply, ReplyInvalid, count
from .prompt import Message
from .structured import is_strict
from .tools import MOST_CALLS, ToolCall, ToolResult, read_call, sendable_arguments, sendable_name

PATH = "/chat/completions"
# OpenAI's newer models refuse `max_tokens`; other servers support nothing else.
_OWN_HOST = "api.openai.com"


def headers(key: str) -> list[tuple[str, str]]:
    """The header with the key; local servers need none."""
    return [("Authorization", f"Bearer {key}")] if key else []


def write_body(question: Question) -> dict[str, Any]:
    """The request's JSON."""
    profile, parameters = question.profile, question.profile.parameters
    messages: list[dict[str, Any]] = [{"role": "system", "content": question.system}] if question.system else []
    body: dict[str, Any] = {
        "model": profile.model, "messages": [*messages, *map(_message, question.messages)], **parameters.extra,
        "temperature": question.temperature, "top_p": parameters.top_p,
    }  # fmt: skip
    is_own = urlsplit(profile.address).hostname == _OWN_HOST
    body["max_completion_tokens" if is_own else "max_tokens"] = question.max_tokens
    if question.schema is not None and profile.structured == "native":
        schema = {"name": "answer", "schema": dict(question.schema), "strict": is_strict(question.schema)}
        body["response_format"] = {"type": "json_schema", "json_schema": schema}
    elif question.schema is not None and profile.structured == "json":
        body["response_format"] = {"type": "json_object"}
    if question.tools:
        body["tools"] = [
            {"type": "function", "function": {
                "name": tool.name, "description": tool.description, "parameters": dict(tool.parameters),
            }} for tool in question.tools
        ]  # fmt: skip
        body["tool_choice"] = None if question.choice == "auto" else question.choice
    return {name: value for name, value in body.items() if value is not None}


def _message(message: Message | ToolResult) -> dict[str, Any]:
    if isinstance(message, ToolResult):
        return {"role": "tool", "tool_call_id": message.call_id, "content": message.text}
    if message.calls:
        calls = [
            {"id": call.id, "type": "function", "function": {
                "name": sendable_name(call.name), "arguments": dump_json(sendable_arguments(call)),
            }} for call in message.calls
        ]  # fmt: skip
        return {"role": message.role, "content": message.text or None, "tool_calls": calls}
    if not message.images:
        return {"role": message.role, "content": message.text}
    images = [{"type": "image_url", "image_url": {"url": f"data:{each.media_type};base64,{each.data}"}} for each in message.images]
    return {"role": message.role, "content": [{"type": "text", "text": message.text}, *images]}


def read_reply(answer: Any, question: Question) -> Reply:
    """Parse the reply from a 200 response; ReplyInvalid when it has none."""
    choices = answer.get("choices") if isinstance(answer, Mapping) else None
    choice = choices[0] if isinstance(choices, list) and choices else None
    message = choice.get("message") if isinstance(choice, Mapping) else None
    if not isinstance(choice, Mapping) or not isinstance(message, Mapping):
        raise ReplyInvalid("the answer has no choices[0].message")
    text, refusal, reason = _text(message.get("content")), message.get("refusal"), choice.get("finish_reason")
    tokens_in, tokens_out, cached = _usage(answer.get("usage"))
    members: dict[str, Any] = {
        "input_tokens": tokens_in, "output_tokens": tokens_out, "cached_tokens": cached, "model": str(answer.get("model") or ""),
        "id": str(answer.get("id") or ""), "reason": str(reason or ""),
    }  # fmt: skip
    if refusal or reason == "content_filter":
        return Reply(str(refusal or text or ""), "refused", **members)
    calls = _calls(message.get("tool_calls"))
    if text is None and not question.tools:
        raise ReplyInvalid("choices[0].message.content is not a text")
    return Reply(text or "", "length" if reason == "length" else "tools" if calls else "stop", calls=calls, **members)


def _text(content: Any) -> str | None:
    """The text of a reply; some servers answer with a list of parts, as requests may have."""
    if isinstance(content, list):
        return "".join(str(part.get("text") or "") for part in content if isinstance(part, Mapping))
    return content if isinstance(content, str) else None


def _calls(entries: Any) -> tuple[ToolCall, ...]:
    if not isinstance(entries or [], list) or len(entries or []) > MOST_CALLS:
        raise ReplyInvalid(f"choices[0].message.tool_calls is not a list of at most {MOST_CALLS}")
    calls = []
    for each in entries or []:
        function = each.get("function") if isinstance(each, Mapping) else None
        if not isinstance(function, Mapping):
            raise ReplyInvalid("choices[0].message.tool_calls has a call without a function")
        calls.append(read_call(each.get("id"), function.get("name"), function.get("arguments")))
    return tuple(calls)


def _usage(usage: Any) -> tuple[int, int, int]:
    """Input tokens, output tokens, and how many of the input came from the cache; -1, -1, 0 if the server does not report them."""
    if not isinstance(usage, Mapping):
        return -1, -1, 0
    read, written = count(usage.get("prompt_tokens")), count(usage.get("completion_tokens"))
    details = usage.get("prompt_tokens_details")
    cached = count(details.get("cached_tokens")) if isinstance(details, Mapping) else 0
    return (read, written, min(max(cached, 0), read)) if min(read, written) >= 0 else (-1, -1, 0)


def read_error(answer: Any) -> tuple[str, str]:
    """The (code, message) of an error's body."""
    error = answer.get("error") if isinstance(answer, Mapping) else None
    if isinstance(error, Mapping):
        return str(error.get("code") or error.get("type") or ""), str(error.get("message") or "")
    return "", str(error or "")
