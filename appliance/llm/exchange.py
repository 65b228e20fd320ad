"""One question to a provider and its reply, in words that every provider's dialect is translated from and to.  Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from .profile import Profile
from .prompt import Message

ANSWER = "answer"  # what the tool is called through which a structured answer comes
IMAGE_TOKENS = 1_600

Finish = Literal["stop", "length", "refused"]


@dataclass(frozen=True)
class Question:
    """What leaves: redacted already.  `schema` is that of the answer, always of an object; None asks for text."""

    profile: Profile
    messages: tuple[Message, ...]
    system: str = ""
    schema: Mapping[str, Any] | None = None
    max_tokens: int | None = None
    temperature: float | None = None

    @property
    def estimated_tokens(self) -> int:
        """What reading it costs at most, roughly: a token is hardly ever shorter than two bytes of text."""
        texts = [self.system, *(message.text for message in self.messages), str(self.schema or "")]
        images = sum(len(message.images) for message in self.messages)
        return sum(len(text.encode()) for text in texts) // 2 + images * IMAGE_TOKENS + 16


@dataclass(frozen=True)
class Reply:
    """What came back; of a structured answer `text` is its JSON.  `model` is the one that answered."""

    text: str
    finish: Finish
    input_tokens: int
    output_tokens: int
    model: str


class ReplyInvalid(ValueError):
    """The provider answered 200 with something that is no answer."""
