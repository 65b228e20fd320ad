"""Pagination: every supported kind, with limits, and never with the credentials sent to another host."""

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from gos_connector_http import HttpConnector

from appliance.connectors.contract import ConfigError, Context, SystemFailure
from appliance.connectors.testing import Answer, LoopbackServer, Received, open_context, schema_problems

AUTH = {"kind": "query", "name": "key", "value": "secret"}


@pytest.fixture
def server() -> Iterator[LoopbackServer]:
    server = LoopbackServer()
    yield server
    server.close()


@pytest.fixture
def ctx() -> Iterator[Context]:
    with open_context(key="key-1") as ctx:
        yield ctx


def query(request: Received) -> dict[str, str]:
    return {name: values[-1] for name, values in parse_qs(urlsplit(request.path).query).items()}


def page(items: list[int], headers: dict[str, str] | None = None, **more: Any) -> Answer:
    return Answer(200, headers or {}, json.dumps({"data": items, **more}).encode())


def read_all(server: LoopbackServer, ctx: Context, pages: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    it = HttpConnector({"base_url": server.url, "auth": AUTH})
    params = {"url": "/list", "items": "/data", "query": {"sort": "id"}, **({"pages": pages} if pages else {}), **more}
    declared = next(candidate for candidate in it.actions if candidate.name == "list")
    assert schema_problems(declared.input, params) == []
    output = it.call("list", params, ctx)
    assert all(query(received)["key"] == "secret" for received in server.received)
    return output


def test_the_link_header_is_followed_by_default(server: LoopbackServer, ctx: Context) -> None:
    def answer(request: Received) -> Answer:
        number = int(query(request).get("page", 1))
        link = '</list?page=1>; rel="first", ' + (
            f'</list?page={number + 1}>; title="a, b"; rel="x next"' if number < 3 else ""
        )
        return page([number, number * 10], {"Link": link})

    server.answers["/list"] = answer
    assert read_all(server, ctx) == {"items": [1, 10, 2, 20, 3, 30], "pages": 3, "complete": True}


def test_a_next_address_in_the_body_is_followed(server: LoopbackServer, ctx: Context) -> None:
    server.answers["/list"] = lambda _: page([1], meta={"next": f"{server.url}/more?c=2"})
    server.answers["/more"] = lambda _: page([2], meta={"next": None})
    assert read_all(server, ctx, {"kind": "next_url", "pointer": "/meta/next"})["items"] == [1, 2]


def test_a_cursor_goes_into_its_parameter_beside_the_others(server: LoopbackServer, ctx: Context) -> None:
    def answer(request: Received) -> Answer:
        assert query(request)["sort"] == "id"
        after = query(request).get("after", "")
        return page([len(after)], cursors=[{"next": after + "x"}] if len(after) < 2 else [])

    server.answers["/list"] = answer
    pages = {"kind": "cursor", "pointer": "/cursors/0/next", "parameter": "after"}
    assert read_all(server, ctx, pages)["items"] == [0, 1, 2]


def test_numbered_pages_end_with_an_empty_or_short_one(server: LoopbackServer, ctx: Context) -> None:
    server.answers["/list"] = lambda request: page({"0": [1, 2], "1": [3, 4]}.get(query(request)["p"], []))
    assert read_all(server, ctx, {"kind": "page", "parameter": "p", "first": 0})["pages"] == 3
    server.answers["/list"] = lambda request: page([1, 2] if query(request)["p"] == "1" else [3])
    pages = {"kind": "page", "parameter": "p", "size_parameter": "n", "size": 2}
    assert read_all(server, ctx, pages) == {"items": [1, 2, 3], "pages": 2, "complete": True}


def test_offsets_count_items(server: LoopbackServer, ctx: Context) -> None:
    def answer(request: Received) -> Answer:
        offset, limit = int(query(request)["offset"]), int(query(request)["limit"])
        return page(list(range(10))[offset : offset + limit])

    server.answers["/list"] = answer
    assert read_all(server, ctx, {"kind": "offset", "size": 4})["items"] == list(range(10))


def test_caps_leave_the_result_incomplete(server: LoopbackServer, ctx: Context) -> None:
    server.answers["/list"] = lambda request: page([int(query(request)["page"])] * 3)
    pages = {"kind": "page"}
    assert read_all(server, ctx, pages, max_pages=2) == {"items": [1, 1, 1, 2, 2, 2], "pages": 2, "complete": False}
    assert read_all(server, ctx, pages, max_items=4) == {"items": [1, 1, 1, 2], "pages": 2, "complete": False}


def test_a_next_page_fetched_before_is_an_error(server: LoopbackServer, ctx: Context) -> None:
    server.answers["/list"] = lambda _: page([1], {"Link": '<?page=2>; rel="next"'})
    with pytest.raises(SystemFailure, match="already fetched"):
        read_all(server, ctx)
    assert len(server.received) == 2


@pytest.mark.parametrize("base", [True, False])
def test_the_next_page_is_never_fetched_from_another_host(server: LoopbackServer, ctx: Context, base: bool) -> None:
    server.answers["/list"] = lambda _: page([1], {"Link": f'<http://127.0.0.2:{server.port}/list>; rel="next"'})
    it = HttpConnector({"base_url": server.url} if base else {})
    with pytest.raises(ConfigError):
        it.call("list", {"url": "/list" if base else f"{server.url}/list", "items": "/data"}, ctx)
    assert len(server.received) == 1


@pytest.mark.parametrize("body", [b'{"data": {}}', b"[]", b'{"data": null}'])
def test_a_page_without_the_array_is_an_error(server: LoopbackServer, ctx: Context, body: bytes) -> None:
    server.answer("/list", body=body)
    with pytest.raises(SystemFailure, match="no array"):
        read_all(server, ctx)
