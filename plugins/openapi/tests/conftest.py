"""A shop on loopback whose document has every shape of parameter and body."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from gos_connector_openapi import OpenapiConnector
from gos_connector_openapi.document import parse
from gos_connector_openapi.operations import Reader

from appliance.connectors.contract import Action, Json
from appliance.connectors.testing import Answer, LoopbackServer, Received, open_context


def document(paths: Json, **more: Any) -> dict[str, Any]:
    return {"openapi": "3.1.0", "info": {"title": "Shop", "version": "1"}, "paths": paths, **more}


class Answers(dict[str, Callable[[Received], Answer]]):
    """Answers by path; a request to any other path is echoed as JSON."""

    def get(self, path: str, default: Any = None) -> Any:
        return super().get(path, echo)


def echo(request: Received) -> Answer:
    body = {"method": request.method, "path": request.path, "headers": request.headers, "body": request.body.decode("latin-1")}
    return Answer(200, {"Content-Type": "application/json"}, json.dumps(body).encode())


class Shop:
    """The server, and the actions of a document served by it."""

    def __init__(self) -> None:
        self.server = LoopbackServer()
        self.server.answers = Answers()
        self.url = self.server.url

    def publish(self, paths: Json, **more: Any) -> None:
        """Serve the document under /openapi.json."""
        self.publish_bytes(json.dumps(document(paths, **more)).encode())

    def publish_bytes(self, content: bytes) -> None:
        self.server.answers["/openapi.json"] = lambda _: Answer(200, {"Content-Type": "application/json"}, content)

    def settings(self, **more: Any) -> dict[str, Any]:
        return {"document_url": f"{self.url}/openapi.json", "base_url": self.url, **more}

    def actions(self, **settings: Any) -> dict[str, Action]:
        """The actions of the document, read in this process: same result as in a worker process, but faster."""
        with open_context(seconds=60) as ctx:
            connector = OpenapiConnector(self.settings(**settings))
            reader = Reader(parse(connector.fetch_document(ctx)), connector.settings)
            return {parts["name"]: Action(**parts) for parts in reader.read()}

    def perform(self, name: str, arguments: Json, **settings: Any) -> Any:
        """Discover the actions, perform one, and return its output."""
        action = self.actions(**settings)[name]
        with open_context(seconds=60) as ctx:
            return OpenapiConnector(self.settings(**settings)).perform(action, arguments, ctx)

    def close(self) -> None:
        self.server.close()


@pytest.fixture
def shop() -> Iterator[Shop]:
    shop = Shop()
    yield shop
    shop.close()
