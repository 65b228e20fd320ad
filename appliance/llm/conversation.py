"""Conversations with tools: asks a model for its next turn, which is an answer or a list of tool calls."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from appliance.core.database.db import dump_json
from appliance.core.errors import ApplianceError

from .exchange import Question, Reply
from .generation import Connection, Generated, to_finish_error
from .prompt import Message
from .redaction import Mask
from .tools import Choice, ToolCall, ToolOffer, ToolResult, sendable_arguments, with_distinct_ids


@dataclass(frozen=True)
class Conversation:
    """The messages so far, and the tools the model may call.

    `restore` says whether redacted values are put back into the model's answer and tool calls; None leaves it to the profile.
    """

    profile: str
    messages: tuple[Message | ToolResult, ...]
    system: str = ""
    tools: tuple[ToolOffer, ...] = ()
    choice: Choice = "auto"
    max_tokens: int | None = None
    temperature: float | None = None
    restore: bool | None = None


def converse(conversation: Conversation, line: Connection, generated: Generated) -> ApplianceError | None:
    """Store the model's reply in `told`, or return the error; a reply that was cut off or refused is an error."""
    mask = line.mask
    question = _question(conversation, line, mask)
    reply, error = line.exchange(question, _new_messages(question.messages), mask, generated)
    if reply is None:
        return error
    if reply.finish in ("length", "refused"):
        return to_finish_error(line.ready.slug, reply, question)
    profile = line.ready.profile
    should_restore = profile.redaction.restore if conversation.restore is None else conversation.restore
    calls = with_distinct_ids(reply.calls, _call_ids(conversation.messages))
    generated.value = replace(reply, calls=calls)
    if should_restore:
        calls = tuple(_restore_call(call, mask) for call in calls)
        generated.value = replace(reply, text=mask.restore(reply.text), calls=calls)
    return None


def _question(conversation: Conversation, line: Connection, mask: Mask) -> Question:
    """The redacted question.  Equal prefixes of a conversation get equal placeholders."""
    profile = line.ready.profile
    parameters = profile.parameters
    return Question(
        profile=profile,
        system=mask.hide(conversation.system),
        messages=tuple(_redact(message, mask) for message in conversation.messages),
        max_tokens=conversation.max_tokens or parameters.max_tokens,
        temperature=parameters.temperature if conversation.temperature is None else conversation.temperature,
        tools=conversation.tools,
        choice=conversation.choice,
    )


def _redact(message: Message | ToolResult, mask: Mask) -> Message | ToolResult:
    redacted = replace(message, text=mask.hide(message.text))
    if isinstance(redacted, Message) and redacted.calls:
        return replace(redacted, calls=tuple(_redact_call(call, mask) for call in redacted.calls))
    return redacted


def _redact_call(call: ToolCall, mask: Mask) -> ToolCall:
    return replace(call, arguments=dump_json(mask.hide_json(sendable_arguments(call))))


def _restore_call(call: ToolCall, mask: Mask) -> ToolCall:
    value = call.value
    return call if value is None else replace(call, arguments=dump_json(mask.restore(value)))


def _new_messages(messages: Sequence[Message | ToolResult]) -> Sequence[Message | ToolResult]:
    """The messages since the model's last turn."""
    turns = [place for place, message in enumerate(messages) if isinstance(message, Message) and message.role == "assistant"]
    return messages[turns[-1] + 1 :] if turns else messages


def _call_ids(messages: Sequence[Message | ToolResult]) -> Iterator[str]:
    for message in messages:
        if isinstance(message, Message):
            yield from (call.id for call in message.calls)


__all__ = ["Conversation", "Message", "Reply", "ToolCall", "ToolOffer", "ToolResult", "converse"]
