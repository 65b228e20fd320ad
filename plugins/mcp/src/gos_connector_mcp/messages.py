"""Reads JSON-RPC messages from an HTTP answer, JSON or an event stream; requests of the server are recorded, not answered."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from appliance.connectors.contract import HttpAnswer

MAX_DEPTH = 128
_MAX_MESSAGES = 2000


class UnreadableMessage(ValueError):
    """The answer contains no valid MCP message; the text says why."""


@dataclass(frozen=True)
class Response:
    """The answer to one request, and the methods of the requests that the server sent meanwhile; none of them is answered."""

    message: Mapping[str, Any]
    server_requests: tuple[str, ...]


def read_answer(answer: HttpAnswer, request_id: int) -> Response | None:
    """The message that answers the request; None when there is none, UnreadableMessage for an invalid message."""
    kind = answer.headers.get("content-type", "").partition(";")[0].strip().lower()
    if not answer.content.strip():
        return None
    texts = _events(answer.content) if kind == "text/event-stream" else iter([answer.content])
    server_requests: list[str] = []
    for number, text in enumerate(texts):
        if number >= _MAX_MESSAGES:
            raise UnreadableMessage(f"the stream has more than {_MAX_MESSAGES} messages")
        message = _parsed(text)
        method = message.get("method")
        if isinstance(method, str):
            if "id" in message:
                server_requests.append(method[:100])
        elif message.get("id") == request_id and not isinstance(message.get("id"), bool):
            return Response(message, tuple(server_requests))
        elif "error" in message and (message.get("id") is None or kind != "text/event-stream"):
            return Response(message, tuple(server_requests))  # the server could not read the request: the id is null or made up
    return None


def _parsed(text: bytes) -> Mapping[str, Any]:
    try:
        message = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UnreadableMessage("a message is not JSON") from error
    if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
        raise UnreadableMessage("a message is not JSON-RPC 2.0")
    if _is_deeper(message, MAX_DEPTH):
        raise UnreadableMessage(f"a message is nested deeper than {MAX_DEPTH} levels")
    return message


def _is_deeper(value: Any, depth: int) -> bool:
    level = [value]
    for _ in range(depth):
        level = [part for each in level for part in _parts(each)]
        if not level:
            return False
    return True


def _parts(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _events(content: bytes) -> Iterator[bytes]:
    """The data of every event of type `message` (HTML standard, § 9.2.6); an incomplete last event is ignored."""
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
