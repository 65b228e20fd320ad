"""A language model of our own on loopback: speaks chat completions and Anthropic's messages, and does what a test says.

    with serving(script(Call("echo", {"text": "hi"}), "done")) as server:
        ...                                     # an LLM profile with base_url=server.url, kind openai or anthropic
        assert server.requests[-1].messages[-1].text == "hi"

A `Turn` is `turn(messages, tools) -> answer`: it gets the whole conversation (`ChatMessage`, the same for both protocols) and the
tools by name with their schemas, and answers a text, a Call, a list of Calls, or an Answer for anything unusual (a status, a
finish reason, raw bytes, an event to wait for).  It runs in the server's thread.  `script(*answers)` gives one after the other.

`obey()` is the model of our hostile tests: it does whatever stands anywhere in its context, whoever wrote it.  In every text
that it is sent (instructions, the user's words, skills, results of tools, also inside strings of JSON) it looks for

    CALL <tool> {"json": "arguments"}           it calls the tool with them, one call a turn, in the order found, each once
    SAY <text to the end of the line>           its answer, once nothing is left to be called; the last one found counts

In arguments a string "$name" stands for the newest value of the member `name` in any result of a tool; until there is one, the
call waits, and later ones go first.  With `times=3` each call is tried three times, as one does who will not take no.
Without SAY it answers "done".
"""

import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

USAGE = (100, 20)
_CALL = re.compile(r"CALL ([A-Za-z0-9_.-]+)\s+(?=\{)")
_SAY = re.compile(r"SAY ([^\n]+)")
_WAITS = object()


@dataclass(frozen=True)
class Call:
    """What the model asks of a tool; `arguments` may be a text, sent as it is where the protocol has texts."""

    name: str
    arguments: Any = field(default_factory=dict)
    id: str | None = None


@dataclass(frozen=True)
class Answer:
    """One reply, or an error's status with `text` as its message.

    `finish` is in the words of chat completions.  `hold` waits to be set before anything is said.
    """

    text: str = ""
    calls: Sequence[Call] = ()
    finish: str | None = None
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    usage: tuple[int, int] | None = USAGE
    cached: int = 0
    thoughts: Sequence[Mapping[str, Any]] = ()
    raw: bytes | None = None
    hold: threading.Event | None = None


@dataclass(frozen=True)
class ChatMessage:
    """One message of the conversation: role is system, user, assistant or tool; `call_id` is that of a result."""

    role: str
    text: str
    calls: tuple[Call, ...] = ()
    call_id: str = ""


@dataclass(frozen=True)
class ChatRequest:
    """One request."""

    path: str
    headers: Mapping[str, str]
    body: Any
    messages: list[ChatMessage]
    tools: dict[str, Any]


Turn = Callable[[list[ChatMessage], dict[str, Any]], Any]


def script(*answers: Any) -> Turn:
    """One answer after the other; the last one is repeated."""
    left, lock = list(answers), threading.Lock()

    def turn(messages: list[ChatMessage], tools: dict[str, Any]) -> Any:
        with lock:
            return left.pop(0) if len(left) > 1 else left[0]

    return turn


def obey(times: int = 1) -> Turn:
    """A model that does what it reads; see above."""

    def turn(messages: list[ChatMessage], tools: dict[str, Any]) -> Any:
        texts = [text for message in messages if message.role != "assistant" for text in _texts(message.text)]
        done = [(call.name, _canonical(call.arguments)) for message in messages for call in message.calls]
        results = [message.text for message in messages if message.role == "tool"]
        pending = dict.fromkeys(
            (name, _canonical(filled))
            for text in texts
            for name, arguments in _calls_in(text)
            if (filled := _fill(arguments, results)) is not _WAITS
        )
        for name, arguments in pending:
            if done.count((name, arguments)) < times:
                return Call(name, json.loads(arguments))
        sayings = [saying for text in texts for saying in _SAY.findall(text)]
        return sayings[-1].strip() if sayings else "done"

    return turn


def _calls_in(text: str) -> Iterator[tuple[str, Any]]:
    for match in _CALL.finditer(text):
        try:
            arguments, _ = json.JSONDecoder().raw_decode(text, match.end())
        except ValueError:
            continue
        yield match[1], arguments


def _texts(text: str, depth: int = 5) -> Iterator[str]:
    """The text, or the texts inside where it is JSON."""
    try:
        value = json.loads(text) if depth and text.strip()[:1] in ('{"[') else None
    except ValueError:
        value = None
    if isinstance(value, dict | list | str):
        yield from _inside(value, depth - 1)
    else:
        yield text


def _inside(value: Any, depth: int) -> Iterator[str]:
    if isinstance(value, str):
        yield from _texts(value, depth)
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield name
            yield from _inside(inner, depth)
    elif isinstance(value, list):
        for inner in value:
            yield from _inside(inner, depth)


def _fill(value: Any, results: list[str]) -> Any:
    """Arguments with what `$name` stands for; _WAITS while one stands for nothing."""
    if isinstance(value, str) and value.startswith("$"):
        values = [each for result in results for each in _members(_json(result), value[1:])]
        return values[-1] if values else _WAITS
    if isinstance(value, dict):
        filled = {name: _fill(inner, results) for name, inner in value.items()}
        return _WAITS if any(inner is _WAITS for inner in filled.values()) else filled
    if isinstance(value, list):
        listed = [_fill(inner, results) for inner in value]
        return _WAITS if any(inner is _WAITS for inner in listed) else listed
    return value


def _members(value: Any, name: str) -> Iterator[Any]:
    if isinstance(value, dict):
        if value.get(name) is not None:
            yield value[name]
        value = list(value.values())
    for inner in value if isinstance(value, list) else ():
        yield from _members(inner, name)


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _canonical(arguments: Any) -> str:
    return json.dumps(arguments, sort_keys=True)


class ModelServer:
    """`turn` may be replaced at any time; `requests` has every request, `arrivals` is released for each."""

    def __init__(self, turn: Turn) -> None:
        self.turn = turn
        self.requests: list[ChatRequest] = []
        self.arrivals = threading.Semaphore(0)
        self._server = _Server(("127.0.0.1", 0), _handler(self))
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def next(self, request: ChatRequest) -> Answer:
        self.requests.append(request)
        self.arrivals.release()
        answer = self.turn(request.messages, request.tools)
        if isinstance(answer, Call):
            answer = [answer]
        return answer if isinstance(answer, Answer) else Answer(answer) if isinstance(answer, str) else Answer(calls=answer)

    def close(self) -> None:
        """Ends once every request that has come in is answered."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@contextmanager
def serving(turn: Turn) -> Iterator[ModelServer]:
    """A server for as long as the block runs."""
    server = ModelServer(turn)
    try:
        yield server
    finally:
        server.close()


class _Server(ThreadingHTTPServer):
    daemon_threads = False  # closing waits for what is being answered

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Nothing: that a client hangs up is a part of these tests."""


def _handler(server: ModelServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.0"  # each connection ends with its answer, so that closing need not wait for clients
        timeout = 30

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            is_anthropic = self.path.endswith("/messages")
            messages = list(_read_anthropic(body) if is_anthropic else _read_openai(body))
            tools = {_describe_tool(tool)["name"]: _describe_tool(tool) for tool in body.get("tools", ())}
            headers = {name.lower(): value for name, value in self.headers.items()}
            answer = server.next(ChatRequest(self.path, headers, body, messages, tools))
            if answer.hold is not None:
                answer.hold.wait(30)
            if answer.status != 200:
                reply: Any = {"error": {"message": answer.text or "not now"}}
            else:
                reply = _anthropic(answer) if is_anthropic else _openai(answer, len(server.requests))
            content = answer.raw if answer.raw is not None else json.dumps(reply).encode()
            self.send_response(answer.status)
            for name, value in {"Content-Type": "application/json", "Content-Length": str(len(content)), **answer.headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Nothing: the test's output is the test's."""

    return Handler


def _describe_tool(tool: Any) -> Any:
    function = tool.get("function", tool)
    return function | {"input_schema": function.get("parameters", function.get("input_schema"))}


def _text(content: Any) -> str:
    if isinstance(content, str) or content is None:
        return content or ""
    return "\n".join(_text(part.get("text", part.get("content", ""))) for part in content if part.get("type") != "image")


def _read_openai(body: Any) -> Iterator[ChatMessage]:
    for message in body["messages"]:
        calls = [each["function"] | {"id": each["id"]} for each in message.get("tool_calls", ())]
        requested = tuple(Call(each["name"], json.loads(each["arguments"]), each["id"]) for each in calls)
        yield ChatMessage(message["role"], _text(message["content"]), requested, message.get("tool_call_id", ""))


def _read_anthropic(body: Any) -> Iterator[ChatMessage]:
    if body.get("system"):
        yield ChatMessage("system", body["system"])
    for message in body["messages"]:
        parts = message["content"]
        for part in parts:
            if part["type"] == "tool_result":
                yield ChatMessage("tool", _text(part["content"]), (), part["tool_use_id"])
        text = _text([part for part in parts if part["type"] in ("text", "image")])
        calls = tuple(Call(part["name"], part["input"], part["id"]) for part in parts if part["type"] == "tool_use")
        if text or calls:
            yield ChatMessage(message["role"], text, calls)


def _openai(answer: Answer, number: int) -> Any:
    calls = [
        {"id": f"call_{number}_{index}" if call.id is None else call.id, "type": "function", "function": {
            "name": call.name, "arguments": call.arguments if isinstance(call.arguments, str) else json.dumps(call.arguments),
        }} for index, call in enumerate(answer.calls)
    ]  # fmt: skip
    message = {"role": "assistant", "content": answer.text or None} | ({"tool_calls": calls} if calls else {})
    finish = answer.finish or ("tool_calls" if calls else "stop")
    choices = [{"message": message, "finish_reason": finish}]
    reply: dict[str, Any] = {"id": f"chat_{number}", "model": "served-1", "choices": choices}
    if answer.usage:
        reply["usage"] = {
            "prompt_tokens": answer.usage[0], "completion_tokens": answer.usage[1],
            "prompt_tokens_details": {"cached_tokens": answer.cached},
        }  # fmt: skip
    return reply


def _anthropic(answer: Answer) -> Any:
    texts = [{"type": "text", "text": answer.text}] if answer.text else []
    calls = [
        {"type": "tool_use", "id": f"toolu_{index}" if call.id is None else call.id, "name": call.name, "input": call.arguments}
        for index, call in enumerate(answer.calls)
    ]
    names = {"length": "max_tokens", "content_filter": "refusal", "stop": "end_turn", "tool_calls": "tool_use"}
    reply: dict[str, Any] = {
        "id": "msg_1", "type": "message", "model": "served-1", "content": [*map(dict, answer.thoughts), *texts, *calls],
        "stop_reason": names[answer.finish or ("tool_calls" if calls else "stop")],
    }  # fmt: skip
    if answer.usage:
        fresh = answer.usage[0] - answer.cached
        reply["usage"] = {"input_tokens": fresh, "cache_read_input_tokens": answer.cached, "output_tokens": answer.usage[1]}
    return reply
