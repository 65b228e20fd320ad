"""Receivers on loopback: a fake of Slack's Web API, built from its documentation, and a webhook receiver."""

import json
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any
from urllib.parse import parse_qs

import pytest

from appliance.connectors.contract import Context
from appliance.connectors.testing import Answer, LoopbackServer, Received, open_context

TOKEN = "xoxb-very-secret"
HOOK = "/services/T0/B0/very-secret"


class Slack:
    """A fake Slack: messages by (channel, ts), a user by e-mail address, channels by page; errors as documented per method."""

    def __init__(self) -> None:
        self.messages: dict[tuple[str, str], dict[str, Any]] = {("C0123456789", "1700000000.000100"): {"text": "first"}}
        self.notified: list[dict[str, Any]] = []
        self.server = LoopbackServer()
        methods: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
            "auth.test": lambda _: {"user": "gos", "team": "Example"},
            "chat.postMessage": self._post,
            "chat.update": self._update,
            "users.lookupByEmail": self._find,
            "conversations.list": self._list,
        }
        for name, method in methods.items():
            self.server.answers[f"/api/{name}"] = partial(self._answer, method)
        self.server.answers[HOOK] = self._hook

    @property
    def settings(self) -> dict[str, Any]:
        return {"token": TOKEN, "base_url": f"{self.server.url}/api", "webhook_url": self.server.url + HOOK}

    def last(self) -> Received:
        return self.server.received[-1]

    def _answer(self, method: Callable[[dict[str, Any]], dict[str, Any]], request: Received) -> Answer:
        if request.headers.get("authorization") != f"Bearer {TOKEN}":
            return json_answer({"ok": False, "error": "invalid_auth"})
        if request.headers["content-type"].startswith("application/json"):
            params = json.loads(request.body)
        else:
            params = {name: values[0] for name, values in parse_qs(request.body.decode("ascii")).items()}
        return json_answer({"ok": True, **method(params)})

    def _post(self, params: dict[str, Any]) -> dict[str, Any]:
        if params["channel"] not in ("C0123456789", "U1"):
            return {"ok": False, "error": "channel_not_found"}
        if params.get("blocks") == [{"type": "nonsense"}]:
            return {
                "ok": False,
                "error": "invalid_blocks",
                "response_metadata": {"messages": ["[ERROR] unsupported type: nonsense"]},
            }
        place = (params["channel"], f"1700000001.{len(self.messages):06}")
        self.messages[place] = params
        return {"channel": place[0], "ts": place[1], "message": params}

    def _update(self, params: dict[str, Any]) -> dict[str, Any]:
        place = (params["channel"], params["ts"])
        if place not in self.messages:
            return {"ok": False, "error": "message_not_found"}
        self.messages[place] = params
        return {"channel": place[0], "ts": place[1], "text": params["text"]}

    def _find(self, params: dict[str, Any]) -> dict[str, Any]:
        if params["email"] != "anna@example.com":
            return {"ok": False, "error": "users_not_found"}
        profile = {"email": params["email"], "real_name": "Anna Müller"}
        return {"user": {"id": "U1", "name": "anna", "deleted": False, "is_bot": False, "tz": "Europe/Berlin", "profile": profile}}

    def _list(self, params: dict[str, Any]) -> dict[str, Any]:
        number = int(params.get("cursor", "0"))
        private = {"is_private": number == 1, "is_member": number == 0}
        channels = [{"id": f"C{number}{each}", "name": f"channel-{number}{each}", **private} for each in range(2)]
        return {"channels": channels, "response_metadata": {"next_cursor": str(number + 1) if number < 2 else ""}}

    def _hook(self, request: Received) -> Answer:
        message = json.loads(request.body)
        if not message.get("text"):
            return Answer(400, body=b"no_text")
        self.notified.append(message)
        return Answer(200, {"Content-Type": "text/html"}, b"ok")


def json_answer(body: Any) -> Answer:
    return Answer(200, {"Content-Type": "application/json; charset=utf-8"}, json.dumps(body).encode())


@pytest.fixture
def slack() -> Iterator[Slack]:
    slack = Slack()
    yield slack
    slack.server.close()


@pytest.fixture
def server() -> Iterator[LoopbackServer]:
    server = LoopbackServer()
    server.answers["/hook"] = lambda _: Answer(202, body=b"")
    yield server
    server.close()


@pytest.fixture
def ctx() -> Iterator[Context]:
    with open_context(seconds=30) as ctx:
        yield ctx
