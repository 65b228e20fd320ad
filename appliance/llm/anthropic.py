"""The messages of Anthropic; a structured answer comes through a tool that the model must use.

Source of the format: Anthropic's API reference, "Messages", version 2023-06-01.
"""

from collections.abc import Mapping
from typing import Any

from appliance.core.db import dump_json

from .exchange import ANSWER, Question, Reply, ReplyInvalid
from .openai import read_error
from .profile import DEFAULT_MAX_TOKENS
from .prompt import Message

__all__ = ["PATH", "headers", "read_error", "read_reply", "write_body"]

PATH = "/messages"
_VERSION = "2023-06-01"


def headers(key: str) -> list[tuple[str, str]]:
    """How the key is shown, and the version of the format."""
    return [("anthropic-version", _VERSION), *([("x-api-key", key)] if key else [])]


def write_body(question: Question) -> dict[str, Any]:
    """The request's JSON; what a conversation says as `system` goes where Anthropic has it."""
    profile, parameters = question.profile, question.profile.parameters
    system = [question.system, *(message.text for message in question.messages if message.role == "system")]
    body: dict[str, Any] = {
        "model": profile.model, "max_tokens": question.max_tokens or DEFAULT_MAX_TOKENS,
        "messages": [_message(message) for message in question.messages if message.role != "system"], **parameters.extra,
        "system": "\n\n".join(filter(None, system)) or None, "temperature": question.temperature, "top_p": parameters.top_p,
    }  # fmt: skip
    if question.schema is not None and profile.structured == "native":
        said = "Give the answer to what was asked. Use this tool once."
        body["tools"] = [{"name": ANSWER, "description": said, "input_schema": dict(question.schema)}]
        body["tool_choice"] = {"type": "tool", "name": ANSWER}
    return {name: value for name, value in body.items() if value is not None}


def _message(message: Message) -> dict[str, Any]:
    # The provider refuses an empty text.
    parts: list[dict[str, Any]] = [{"type": "text", "text": message.text if message.text.strip() else "(nothing)"}]
    images = [{"type": "base64", "media_type": each.media_type, "data": each.data} for each in message.images]
    return {"role": message.role, "content": [*parts, *({"type": "image", "source": source} for source in images)]}


def read_reply(answer: Any) -> Reply:
    """The reply in a 200; ReplyInvalid when there is none."""
    content = answer.get("content") if isinstance(answer, Mapping) else None
    if not isinstance(answer, Mapping) or not isinstance(content, list):
        raise ReplyInvalid("the answer has no content")
    parts = [part for part in content if isinstance(part, Mapping)]
    tools = [part for part in parts if part.get("type") == "tool_use" and part.get("name") == ANSWER]
    texts = [str(part.get("text") or "") for part in parts if part.get("type") == "text"]
    text = dump_json(tools[0].get("input")) if tools else "".join(texts)
    reason = answer.get("stop_reason")
    finish: Any = {"max_tokens": "length", "refusal": "refused"}.get(str(reason), "stop")
    return Reply(text, finish, *_usage(answer.get("usage")), str(answer.get("model") or ""))


def _usage(usage: Any) -> tuple[int, int]:
    """Tokens read and written; (-1, -1) where the server does not say."""
    if not isinstance(usage, Mapping):
        return -1, -1
    names = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
    read = [found for name in names if isinstance(found := usage.get(name), int)]
    written = usage.get("output_tokens")
    return (sum(read), written) if read and isinstance(written, int) else (-1, -1)
