"""Receivers on loopback: one that follows what Slack publishes of its Web API, and the address of a webhook."""

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
    """Messages by (channel, ts), people by address, channels by page; refuses as the documents of each method say."""

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
            return told({"ok": False, "error": "invalid_auth"})
        if request.headers["content-type"].startswith("application/json"):
            given = json.loads(request.body)
        else:
            given = {name: values[0] for name, values in parse_qs(request.body.decode("ascii")).items()}
        return told({"ok": True, **method(given)})

    def _post(self, given: dict[str, Any]) -> dict[str, Any]:
        if given["channel"] not in ("C0123456789", "U1"):
            return {"ok": False, "error": "channel_not_found"}
        if given.get("blocks") == [{"type": "nonsense"}]:
            return {
                "ok": False,
                "error": "invalid_blocks",
                "response_metadata": {"messages": ["[ERROR] unsupported type: nonsense"]},
            }
        place = (given["channel"], f"1700000001.{len(self.messages):06}")
        self.messages[place] = given
        return {"channel": place[0], "ts": place[1], "message": given}

    def _update(self, given: dict[str, Any]) -> dict[str, Any]:
        place = (given["channel"], given["ts"])
        if place not in self.messages:
            return {"ok": False, "error": "message_not_found"}
        self.messages[place] = given
        return {"channel": place[0], "ts": place[1], "text": given["text"]}

    def _find(self, given: dict[str, Any]) -> dict[str, Any]:
        if given["email"] != "anna@example.com":
            return {"ok": False, "error": "users_not_found"}
        profile = {"email": given["email"], "real_name": "Anna Müller"}
        return {"user": {"id": "U1", "name": "anna", "deleted": False, "is_bot": False, "tz": "Europe/Berlin", "profile": profile}}

    def _list(self, given: dict[str, Any]) -> dict[str, Any]:
        number = int(given.get("cursor", "0"))
        private = {"is_private": number == 1, "is_member": number == 0}
        listed = [{"id": f"C{number}{each}", "name": f"channel-{number}{each}", **private} for each in range(2)]
        return {"channels": listed, "response_metadata": {"next_cursor": str(number + 1) if number < 2 else ""}}

    def _hook(self, request: Received) -> Answer:
        given = json.loads(request.body)
        if not given.get("text"):
            return Answer(400, body=b"no_text")
        self.notified.append(given)
        return Answer(200, {"Content-Type": "text/html"}, b"ok")


def told(body: Any) -> Answer:
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
