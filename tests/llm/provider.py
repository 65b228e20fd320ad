"""A language model's server of our own, on loopback: speaks as OpenAI and as Anthropic do, and obeys a script."""

import json
import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

USAGE = (100, 20)


@dataclass(frozen=True)
class Say:
    """One reply: text (or JSON) as the model's answer, or an error's status.

    `slow`: the body drips, a byte at a time, until the client gives up.  `hold` waits to be set before anything is said.
    """

    answer: Any = ""
    status: int = 200
    finish: str = "stop"
    refusal: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    usage: tuple[int, int] | None = USAGE
    error: Mapping[str, Any] = field(default_factory=dict)
    raw: bytes | None = None
    slow: bool = False
    hold: threading.Event | None = None


@dataclass(frozen=True)
class ReceivedRequest:
    """One request."""

    path: str
    headers: Mapping[str, str]
    body: Any

    @property
    def texts(self) -> list[str]:
        """The text of every message, the newest last."""
        return [_text(message["content"]) for message in self.body["messages"]]


class Provider:
    """`say` lines up replies; the last one is repeated.  `requests` has every request, `arrivals` is released for each."""

    def __init__(self) -> None:
        self.script: deque[Say] = deque()
        self.last = Say("hello")
        self.requests: list[ReceivedRequest] = []
        self.arrivals = threading.Semaphore(0)
        self._lock = threading.Lock()
        self._server = _Server(("127.0.0.1", 0), _handler(self))
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def say(self, *replies: Any) -> None:
        """The next replies; anything that is no Say is an answer."""
        self.script.extend(each if isinstance(each, Say) else Say(each) for each in replies)

    def forget(self) -> None:
        """Begin anew."""
        self.script.clear()
        self.requests.clear()
        self.last = Say("hello")
        while self.arrivals.acquire(blocking=False):
            pass

    def next(self, request: ReceivedRequest) -> Say:
        with self._lock:
            self.requests.append(request)
            if self.script:
                self.last = self.script.popleft()
        self.arrivals.release()
        return self.last

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Nothing: that a client hangs up is a part of these tests."""


def _handler(provider: Provider) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            reply = provider.next(ReceivedRequest(self.path, {name.lower(): value for name, value in self.headers.items()}, body))
            if reply.hold is not None:
                reply.hold.wait(20)
            content = reply.raw if reply.raw is not None else json.dumps(_body(self.path, reply, body)).encode()
            self.send_response(reply.status)
            for name, value in {"Content-Type": "application/json", "Content-Length": str(len(content)), **reply.headers}.items():
                self.send_header(name, value)
            self.end_headers()
            if reply.slow:
                for index in range(len(content)):
                    self.wfile.write(content[index : index + 1])
                    self.wfile.flush()
                    threading.Event().wait(0.05)
            else:
                self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Nothing: the test's output is the test's."""

    return Handler


def _body(path: str, say: Say, request: Any) -> Any:
    if say.status != 200:
        return {"error": {"message": "not now", **say.error}}
    text = say.answer if isinstance(say.answer, str) else json.dumps(say.answer)
    if path.endswith("/messages"):
        return _anthropic(say, text, request)
    message = {"role": "assistant", "content": None if say.refusal else text, "refusal": say.refusal}
    reply: dict[str, Any] = {"model": "served-1", "choices": [{"index": 0, "message": message, "finish_reason": say.finish}]}
    if say.usage:
        reply["usage"] = {"prompt_tokens": say.usage[0], "completion_tokens": say.usage[1], "total_tokens": sum(say.usage)}
    return reply


def _anthropic(say: Say, text: str, request: Any) -> Any:
    if "tools" in request and not isinstance(say.answer, str):
        content = [{"type": "tool_use", "id": "toolu_1", "name": request["tools"][0]["name"], "input": say.answer}]
    else:
        content = [{"type": "text", "text": text}]
    reason = {"stop": "end_turn", "length": "max_tokens", "refusal": "refusal"}[say.finish]
    reply: dict[str, Any] = {"model": "served-1", "type": "message", "content": content, "stop_reason": reason}
    if say.usage:
        reply["usage"] = {"input_tokens": say.usage[0], "output_tokens": say.usage[1]}
    return reply


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "".join(part.get("text", "") for part in content)
