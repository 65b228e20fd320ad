"""A question to a provider and its reply, independent of the provider's API.  Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from appliance.core.database.db import dump_json

from .prompt import Message
from .tools import Choice, ToolCall, ToolOffer, ToolResult

if TYPE_CHECKING:  # its models take a fiftieth of the start to build
    from .profile import Profile

ANSWER = "answer"  # the name of the tool that returns a structured answer
DEFAULT_MAX_TOKENS = 4_096
IMAGE_TOKENS = 1_600
MOST_TOKENS = 10**9  # more than any call uses: a server that reports more does not count correctly

Finish = Literal["stop", "length", "refused", "tools"]


@dataclass(frozen=True)
class Question:
    """A redacted question.  `schema` is the schema of the answer, always of an object; None asks for text.

    With `tools`, the model may call some of them instead of answering.
    """

    profile: "Profile"
    messages: tuple[Message | ToolResult, ...]
    system: str = ""
    schema: Mapping[str, Any] | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    tools: tuple[ToolOffer, ...] = ()
    choice: Choice = "auto"

    @property
    def estimated_tokens(self) -> int:
        """A rough upper bound of the input tokens: a token is hardly ever shorter than two bytes of text."""
        texts = [self.system, *(message.text for message in self.messages), str(self.schema or "")]
        turns = [message for message in self.messages if isinstance(message, Message)]
        texts += [f"{call.name}{call.arguments}" for message in turns for call in message.calls]
        texts += [str(thought) for message in turns for thought in message.thoughts]
        texts += [f"{tool.name}{tool.description}{dump_json(dict(tool.parameters))}" for tool in self.tools]
        images = sum(len(message.images) for message in turns)
        return sum(len(text.encode("utf-8", "replace")) for text in texts) // 2 + images * IMAGE_TOKENS + 16


@dataclass(frozen=True)
class Reply:
    """A provider's reply; for a structured answer, `text` is its JSON.  `model` is the model that answered.

    Tokens are -1 if the server does not report them; `cached_tokens` counts input tokens from the provider's cache.
    `reason` is the provider's own reason for stopping.
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
    """The provider answered 200 with something that is not a valid reply."""


def count(value: Any) -> int:
    """A token count as a server reports it; -1 if it is not a plausible number."""
    is_count = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST_TOKENS
    return value if is_count else -1
