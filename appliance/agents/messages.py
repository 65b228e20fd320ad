"""Converts messages from pydantic-ai's types to those of our LLM client, and replies back.  Pure."""

import base64
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

import pydantic_core
from pydantic_ai.messages import (
    BinaryContent,
    CachePoint,
    InstructionPart,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    ModelResponsePart,
    SystemPromptPart,
    TextContent,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserContent,
    UserPromptPart,
)
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.usage import RequestUsage

from appliance.core.database.db import dump_json
from appliance.core.errors import ValidationFailed
from appliance.core.sentences import Sentence
from appliance.llm import IMAGE_TYPES, NANO, Generated, Image, Message, Reply, ToolCall, ToolOffer, ToolResult

_REDACTED = "redacted_thinking"


def offers_of(parameters: ModelRequestParameters) -> tuple[ToolOffer, ...]:
    """The tools offered to the model, including those that carry structured output."""

    def offer(tool: ToolDefinition) -> ToolOffer:
        return ToolOffer(tool.name, tool.description or "", tool.parameters_json_schema)

    return tuple(map(offer, [*parameters.declared_function_tools, *parameters.output_tools]))


def system_of(messages: Sequence[ModelMessage], parameters: ModelRequestParameters) -> str:
    """The system message of the conversation: system prompts, then instructions."""
    requests = [message for message in messages if isinstance(message, ModelRequest)]
    texts = [part.content for request in requests for part in request.parts if isinstance(part, SystemPromptPart)]
    if parameters.instruction_parts:
        texts.append(InstructionPart.join(parameters.instruction_parts) or "")
    elif parameters.instruction_parts is None and requests:
        texts.append(requests[-1].instructions or "")
    return "\n\n".join(filter(None, texts))


def messages_of(messages: Sequence[ModelMessage], provider: str) -> tuple[Message | ToolResult, ...]:
    """The conversation for a model of this provider; raises ValidationFailed for content that is neither text nor an image."""
    converted: list[Message | ToolResult] = []
    for message in messages:
        if isinstance(message, ModelResponse):
            converted += _response_messages(message, provider)
            continue
        for part in message.parts:
            converted += _request_messages(part)
    return tuple(converted)


def _request_messages(part: Any) -> Iterator[Message | ToolResult]:
    if isinstance(part, ToolReturnPart):
        text, files = part.model_response_str_and_user_content()
        yield ToolResult(part.tool_call_id, part.tool_name, text, part.outcome != "success")
        if files:
            yield _user(files)
    elif isinstance(part, UserPromptPart):
        yield _user([part.content] if isinstance(part.content, str) else part.content)
    elif not isinstance(part, SystemPromptPart):
        raise ValidationFailed(Sentence("content of type %(part_kind)s cannot be sent to a model", part_kind=part.part_kind))


def _user(contents: Sequence[UserContent]) -> Message:
    texts, images = [], []
    for each in contents:
        if isinstance(each, str):
            texts.append(each)
        elif isinstance(each, TextContent):
            texts.append(each.content)
        elif isinstance(each, BinaryContent) and each.media_type in IMAGE_TYPES:
            images.append(Image(each.media_type, base64.b64encode(each.data).decode()))
        elif not isinstance(each, CachePoint):
            raise ValidationFailed("a model accepts only text and images sent as bytes; URLs are not fetched")
    return Message("user", "\n\n".join(texts), tuple(images))


def _response_messages(response: ModelResponse, provider: str) -> list[Message]:
    text = "".join(part.content for part in response.parts if isinstance(part, TextPart))
    calls = tuple(
        ToolCall(part.tool_call_id, part.tool_name, part.args if isinstance(part.args, str) else dump_json(part.args or {}))
        for part in response.parts
        if isinstance(part, ToolCallPart)
    )
    thoughts = tuple(_thought(part) for part in response.parts if isinstance(part, ThinkingPart) and part.provider_name == provider)
    return [Message("assistant", text, (), calls, thoughts)] if text or calls else []


def _thought(part: ThinkingPart) -> dict[str, Any]:
    if part.id == _REDACTED:
        return {"type": _REDACTED, "data": part.signature or ""}
    return {"type": "thinking", "thinking": part.content, "signature": part.signature or ""}


def response_of(generated: Generated, provider: str, at: datetime) -> ModelResponse:
    """The model's reply for pydantic-ai, with its cost and the profile that finally answered."""
    reply: Reply = generated.value
    used, last = generated.used, generated.exchanges[-1]
    details = {name: last[name] for name in ("profile", "finish", "estimated") if name in last} | {"cost": used.cost_nano / NANO}
    return ModelResponse(
        parts=list(_parts(reply, provider)),
        usage=RequestUsage(
            input_tokens=used.input_tokens, output_tokens=used.output_tokens, cache_read_tokens=reply.cached_tokens,
            cost=Decimal(used.cost_nano) / NANO if used.cost_nano else None,
        ),
        model_name=reply.model or last["model"],
        timestamp=at,
        provider_name=provider,
        provider_details=details | ({"reason": reply.reason} if reply.reason else {}),
        provider_response_id=reply.id or None,
        finish_reason="tool_call" if reply.calls else "stop",
    )  # fmt: skip


def _parts(reply: Reply, provider: str) -> Iterable[ModelResponsePart]:
    for thought in reply.thoughts:
        if thought.get("type") == _REDACTED:
            yield ThinkingPart("", id=_REDACTED, signature=str(thought.get("data") or ""), provider_name=provider)
        else:
            signature = str(thought.get("signature") or "")
            yield ThinkingPart(str(thought.get("thinking") or ""), signature=signature, provider_name=provider)
    if reply.text:
        yield TextPart(reply.text)
    for call in reply.calls:
        yield ToolCallPart(call.name, _arguments(call), call.id)


def _arguments(call: ToolCall) -> str:
    """The arguments as JSON, or else a text that pydantic-ai rejects too, so that the model learns of its mistake."""
    value = call.value
    if value is not None:
        return dump_json(value)
    try:
        loose = pydantic_core.from_json(call.arguments)
    except ValueError:
        return call.arguments
    return dump_json(call.arguments) if isinstance(loose, dict) else call.arguments
