"""The chat completions of OpenAI, which Ollama, vLLM, llama.cpp and many others speak as well.

Source of the format: the API reference of OpenAI, "Create chat completion"; servers differ in what they leave out.
"""

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from .exchange import Question, Reply, ReplyInvalid
from .prompt import Message
from .structured import is_strict

PATH = "/chat/completions"
# OpenAI's own newer models refuse `max_tokens`, other servers know nothing else.
_OWN_HOST = "api.openai.com"


def headers(key: str) -> list[tuple[str, str]]:
    """How the key is shown; local servers need none."""
    return [("Authorization", f"Bearer {key}")] if key else []


def write_body(question: Question) -> dict[str, Any]:
    """The request's JSON."""
    profile, parameters = question.profile, question.profile.parameters
    messages = [{"role": "system", "content": question.system}] if question.system else []
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
    return {name: value for name, value in body.items() if value is not None}


def _message(message: Message) -> dict[str, Any]:
    if not message.images:
        return {"role": message.role, "content": message.text}
    images = [{"type": "image_url", "image_url": {"url": f"data:{each.media_type};base64,{each.data}"}} for each in message.images]
    return {"role": message.role, "content": [{"type": "text", "text": message.text}, *images]}


def read_reply(answer: Any) -> Reply:
    """The reply in a 200; ReplyInvalid when there is none."""
    choices = answer.get("choices") if isinstance(answer, Mapping) else None
    choice = choices[0] if isinstance(choices, list) and choices else None
    message = choice.get("message") if isinstance(choice, Mapping) else None
    if not isinstance(choice, Mapping) or not isinstance(message, Mapping):
        raise ReplyInvalid("the answer has no choices[0].message")
    text, refusal, reason = message.get("content"), message.get("refusal"), choice.get("finish_reason")
    tokens_in, tokens_out = _usage(answer.get("usage"))
    model = str(answer.get("model") or "")
    if refusal or reason == "content_filter":
        return Reply(str(refusal or text or ""), "refused", tokens_in, tokens_out, model)
    if not isinstance(text, str):
        raise ReplyInvalid("choices[0].message.content is no text")
    return Reply(text, "length" if reason == "length" else "stop", tokens_in, tokens_out, model)


def _usage(usage: Any) -> tuple[int, int]:
    """Tokens read and written; (-1, -1) where the server does not say."""
    read, written = (usage.get("prompt_tokens"), usage.get("completion_tokens")) if isinstance(usage, Mapping) else (None, None)
    return (read, written) if isinstance(read, int) and isinstance(written, int) else (-1, -1)


def read_error(answer: Any) -> tuple[str, str]:
    """(code, message) of an error's body."""
    error = answer.get("error") if isinstance(answer, Mapping) else None
    if isinstance(error, Mapping):
        return str(error.get("code") or error.get("type") or ""), str(error.get("message") or "")
    return "", str(error or "")
