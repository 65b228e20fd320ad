"""One question to a provider and its reply, in words that every provider's dialect is translated from and to.  Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from appliance.core.database.db import dump_json

from .profile import Profile
from .prompt import Message
from .tools import Choice, ToolCall, ToolOffer, ToolResult

ANSWER = "answer"  # what the tool is called through which a structured answer comes
IMAGE_TOKENS = 1_600
MOST_TOKENS = 10**9  # no call costs as much: a server that says so does not count

Finish = Literal["stop", "length", "refused", "tools"]


@dataclass(frozen=True)
class Question:
    """What leaves: redacted already.  `schema` is that of the answer, always of an object; None asks for text.

    With `tools` the model may ask for some of them instead of answering.
    """

    profile: Profile
    messages: tuple[Message | ToolResult, ...]
    system: str = ""
    schema: Mapping[str, Any] | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    tools: tuple[ToolOffer, ...] = ()
    choice: Choice = "auto"

    @property
    def estimated_tokens(self) -> int:
        """What reading it costs at most, roughly: a token is hardly ever shorter than two bytes of text."""
        texts = [self.system, *(message.text for message in self.messages), str(self.schema or "")]
        said = [message for message in self.messages if isinstance(message, Message)]
        texts += [f"{call.name}{call.arguments}" for message in said for call in message.calls]
        texts += [str(thought) for message in said for thought in message.thoughts]
        texts += [f"{tool.name}{tool.description}{dump_json(dict(tool.parameters))}" for tool in self.tools]
        images = sum(len(message.images) for message in said)
        return sum(len(text.encode("utf-8", "replace")) for text in texts) // 2 + images * IMAGE_TOKENS + 16


@dataclass(frozen=True)
class Reply:
    """What came back; of a structured answer `text` is its JSON.  `model` is the one that answered.

    Tokens are -1 where the server does not count; `cached_tokens` are those of the input that it had read before.
    `reason` is the provider's own word for why it stopped.
    """

    text: str
    finish: Finish
    input_tokens: int
    output_tokens: int
    model: str
    calls: tuple[ToolCall, ...] = ()
    thoughts: tuple[Mapping[str, Any], ...] = ()
    cached_tokens: int = 0
    id: str = ""
    reason: str = ""


class ReplyInvalid(ValueError):
    """The provider answered 200 with something that is no answer."""


def count(value: Any) -> int:
    """Tokens as a server tells them; -1 when that is no number of tokens."""
    is_count = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST_TOKENS
    return value if is_count else -1
