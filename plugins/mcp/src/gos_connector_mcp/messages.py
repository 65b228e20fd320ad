"""JSON-RPC messages read out of an HTTP answer, be it JSON or a stream of events; what a server asks of us is only counted."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from appliance.connectors.contract import HttpAnswer

MOST_DEPTH = 128
_MOST_MESSAGES = 2000


class Unreadable(ValueError):
    """The answer is no message of MCP; the text says why."""


@dataclass(frozen=True)
class Answered:
    """The answer to one request, and the methods of all the server asked of us meanwhile: none gets an answer."""

    message: Mapping[str, Any]
    asked: tuple[str, ...]


def read_answer(answer: HttpAnswer, request_id: int) -> Answered | None:
    """The message that answers the request; None when there is none in it, Unreadable for what is no message."""
    kind = answer.headers.get("content-type", "").partition(";")[0].strip().lower()
    if not answer.content.strip():
        return None
    texts = _events(answer.content) if kind == "text/event-stream" else iter([answer.content])
    asked: list[str] = []
    for number, text in enumerate(texts):
        if number >= _MOST_MESSAGES:
            raise Unreadable(f"the stream has more than {_MOST_MESSAGES} messages")
        message = _parsed(text)
        method = message.get("method")
        if isinstance(method, str):
            if "id" in message:
                asked.append(method[:100])
        elif message.get("id") == request_id and not isinstance(message.get("id"), bool):
            return Answered(message, tuple(asked))
        elif "error" in message and (message.get("id") is None or kind != "text/event-stream"):
            return Answered(message, tuple(asked))  # about a request that could not be read: its id is none, or made up
    return None


def _parsed(text: bytes) -> Mapping[str, Any]:
    try:
        message = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Unreadable("a message is no JSON") from error
    if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
        raise Unreadable("a message is no JSON-RPC 2.0")
    if _is_deeper(message, MOST_DEPTH):
        raise Unreadable(f"a message is nested deeper than {MOST_DEPTH} levels")
    return message


def _is_deeper(value: Any, most: int) -> bool:
    level = [value]
    for _ in range(most):
        level = [part for each in level for part in _parts(each)]
        if not level:
            return False
    return True


def _parts(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _events(content: bytes) -> Iterator[bytes]:
    """The data of every event of type `message` (the HTML standard, § 9.2.6); one that is cut off is none."""
    data: list[bytes] = []
    kind = b""
    for line in content.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n"):
        if not line:
            if data and kind in (b"", b"message") and any(data):
                yield b"\n".join(data)
            data, kind = [], b""
            continue
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            data.append(value)
        elif name == b"event":
            kind = value
