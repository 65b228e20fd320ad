"""A conversation with tools, turn by turn: what a model is asked next, and what it answers or wants to be done."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from appliance.core.database.db import dump_json
from appliance.core.errors import ApplianceError

from .exchange import Question, Reply
from .generation import Generated, Line, broken_off
from .prompt import Message
from .redaction import Mask
from .tools import Choice, ToolCall, ToolOffer, ToolResult, distinct, sendable_arguments


@dataclass(frozen=True)
class Conversation:
    """What was said so far, and the tools that may be asked for.

    `restore`: whether what was redacted is put back into what the model says and asks for; None leaves that to the profile.
    """

    profile: str
    messages: tuple[Message | ToolResult, ...]
    system: str = ""
    tools: tuple[ToolOffer, ...] = ()
    choice: Choice = "auto"
    max_tokens: int | None = None
    temperature: float | None = None
    restore: bool | None = None


def converse(conversation: Conversation, line: Line, told: Generated) -> ApplianceError | None:
    """Notes the reply in `told`; what went wrong otherwise: a reply that was cut off or refused is none."""
    mask = line.mask
    question = _question(conversation, line, mask)
    reply, error = line.exchange(question, _news(question.messages), mask, told)
    if reply is None:
        return error
    if reply.finish in ("length", "refused"):
        return broken_off(line.ready.slug, reply, question)
    profile = line.ready.profile
    restores = profile.redaction.restore if conversation.restore is None else conversation.restore
    calls = distinct(reply.calls, _call_ids(conversation.messages))
    told.value = replace(reply, calls=calls)
    if restores:
        calls = tuple(_restored(call, mask) for call in calls)
        told.value = replace(reply, text=mask.restore(reply.text), calls=calls)
    return None


def _question(conversation: Conversation, line: Line, mask: Mask) -> Question:
    """What leaves: without what the patterns find.  Equal prefixes of a conversation give equal placeholders."""
    profile = line.ready.profile
    parameters = profile.parameters
    return Question(
        profile=profile,
        system=mask.hide(conversation.system),
        messages=tuple(_hidden(message, mask) for message in conversation.messages),
        max_tokens=conversation.max_tokens or parameters.max_tokens,
        temperature=parameters.temperature if conversation.temperature is None else conversation.temperature,
        tools=conversation.tools,
        choice=conversation.choice,
    )


def _hidden(message: Message | ToolResult, mask: Mask) -> Message | ToolResult:
    hidden = replace(message, text=mask.hide(message.text))
    if isinstance(hidden, Message) and hidden.calls:
        return replace(hidden, calls=tuple(_hidden_call(call, mask) for call in hidden.calls))
    return hidden


def _hidden_call(call: ToolCall, mask: Mask) -> ToolCall:
    return replace(call, arguments=dump_json(mask.hide_json(sendable_arguments(call))))


def _restored(call: ToolCall, mask: Mask) -> ToolCall:
    value = call.value
    return call if value is None else replace(call, arguments=dump_json(mask.restore(value)))


def _news(messages: Sequence[Message | ToolResult]) -> Sequence[Message | ToolResult]:
    """What was said since the model's last turn."""
    said = [place for place, message in enumerate(messages) if isinstance(message, Message) and message.role == "assistant"]
    return messages[said[-1] + 1 :] if said else messages


def _call_ids(messages: Sequence[Message | ToolResult]) -> Iterator[str]:
    for message in messages:
        if isinstance(message, Message):
            yield from (call.id for call in message.calls)


__all__ = ["Conversation", "Message", "Reply", "ToolCall", "ToolOffer", "ToolResult", "converse"]
