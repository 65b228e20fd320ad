"""A connector that is one YAML file: what it sends, reads and refuses, tested against a server on loopback."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from appliance.connectors.contract import (
    AuthError,
    ConfigError,
    ConnectorError,
    Context,
    RateLimited,
    Rejected,
    SystemFailure,
    TransientError,
)
from appliance.connectors.declarative import make_connector, read_document
from appliance.connectors.preview import NothingLeaves, PreviewContext
from appliance.connectors.testing import Answer, ConnectorContract, LoopbackServer, Received, open_context
from appliance.core import yaml12

PAGE = Path(__file__).parents[2] / "docs" / "declarative-connectors.md"
STOCK = re.findall(r"^```yaml\n(.*?)^```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)[0]
TOKEN = "canary-5d41402abc"


def build_connector(**changes: Any) -> Any:
    """The page's connector with members replaced (a pointer's parts joined by `__`)."""
    data = yaml12.load(STOCK)
    for name, value in changes.items():
        *way, last = name.split("__")
        part = data
        for step in way:
            part = part[step]
        part[last] = value
    return make_connector(read_document(yaml12.dump(data)))


def json_answer(value: Any, status: int = 200, **headers: str) -> Answer:
    return Answer(status, {name.replace("_", "-"): text for name, text in headers.items()}, json.dumps(value).encode())


ITEMS = [{"id": str(number), "label": f"item {number}", "changed_at": f"2026-01-0{number}"} for number in range(1, 6)]


def serving(items: list[dict[str, str]]) -> Callable[[Received], Answer]:
    """Two items at a time; `after` is the place of the first, `since` the least changed_at."""

    def serve(request: Received) -> Answer:
        params = dict(parse_qsl(urlsplit(request.path).query))
        if request.method == "POST":
            return json_answer({"id": "9"}, 201)
        matches = [item for item in items if item["changed_at"] >= params.get("since", "")]
        start = int(params.get("after", 0))
        more = {"next": str(start + 2)} if start + 2 < len(matches) else {}
        return json_answer({"data": matches[start : start + 2], "paging": more})

    return serve


@pytest.fixture
def server() -> Iterator[LoopbackServer]:
    server = LoopbackServer()
    server.answers["/me"] = lambda request: (
        json_answer({"name": "gos"}) if request.headers.get("authorization") == f"Bearer {TOKEN}" else Answer(401)
    )
    server.answers["/items/1"] = lambda _: json_answer({"id": "1", "label": "bolt", "more": "than asked"})
    server.answers["/items"] = serving(ITEMS)
    yield server
    server.close()


@pytest.fixture
def ctx() -> Iterator[Context]:
    with open_context(key="key-1") as ctx:
        yield ctx


def settings(server: LoopbackServer) -> dict[str, str]:
    return {"base_url": server.url, "token": TOKEN}


class TestContract(ConnectorContract):
    connector = build_connector()

    @pytest.fixture
    def settings(self, server: LoopbackServer) -> dict[str, Any]:
        return settings(server)

    @pytest.fixture
    def broken_settings(self) -> dict[str, Any]:
        return {"base_url": "http://127.0.0.1:1", "token": TOKEN}


# What is sent


def test_an_action_sends_its_request_and_shapes_the_answer(server: LoopbackServer, ctx: Context) -> None:
    it = build_connector()(settings(server))
    assert it.check(ctx) == "The stock room knows this token as gos."
    assert it.call("find_item", {"id": "1"}, ctx) == {"id": "1", "name": "bolt"}
    assert it.call("add_item", {"name": 'a "b"\n'}, ctx) == {"id": "9"}
    assert (server.received[-1].method, json.loads(server.received[-1].body)) == ("POST", {"label": 'a "b"\n'})
    assert server.received[-1].headers["idempotency-key"] == "key-1"
    assert {request.headers["authorization"] for request in server.received} == {f"Bearer {TOKEN}"}


@pytest.mark.parametrize("hostile", ["a/b", "?x=1", "#", "%2e%2e", "ä b", "a\r\nX-Evil: 1", ";p", "{{ settings.token }}"])
def test_a_value_in_the_path_stays_one_segment(server: LoopbackServer, ctx: Context, hostile: str) -> None:
    with pytest.raises(Rejected):
        build_connector()(settings(server)).call("find_item", {"id": hostile}, ctx)
    path = server.received[-1].path
    assert (path.count("/"), path.startswith("/items/"), "?" in path, TOKEN in path) == (2, True, False, False)


@pytest.mark.parametrize("empty", ["", ".", "..", "../me", "a/../b", None, {"a": 1}])
def test_a_value_that_would_change_the_path_is_refused(server: LoopbackServer, ctx: Context, empty: Any) -> None:
    with pytest.raises(ConfigError):
        build_connector()(settings(server)).call("find_item", {"id": empty}, ctx)
    assert server.received == []


@pytest.mark.parametrize("hostile", ["a\r\nX-Evil: 1", "a\nb", "\x00", "ä"])
def test_a_value_cannot_begin_another_header(server: LoopbackServer, ctx: Context, hostile: str) -> None:
    it = build_connector(actions__add_item__request__headers={"X-Name": "{{ input.name }}"})(settings(server))
    with pytest.raises(ConfigError) as caught:
        it.call("add_item", {"name": hostile}, ctx)
    assert (server.received, "Evil" in caught.value.message) == ([], False)


def test_parameters_are_encoded_lists_repeat_and_what_is_missing_is_left_out(server: LoopbackServer, ctx: Context) -> None:
    query = {"q": "{{ input.name }}", "note": "{{ input.note }}", "tag": ["a", "{{ input.name }}"], "n": "{{ input.most ?? 5 }}"}
    members: dict[str, Any] = {"name": {}, "note": {}, "most": {}}
    it = build_connector(
        actions__find_item__request={"path": "/items/1", "query": query},
        actions__find_item__input={"type": "object", "properties": members},
    )(settings(server))
    it.call("find_item", {"name": "a&b=c", "note": None}, ctx)
    assert parse_qsl(urlsplit(server.received[-1].path).query) == [("q", "a&b=c"), ("tag", "a"), ("tag", "a&b=c"), ("n", "5")]


def test_a_form_is_encoded(server: LoopbackServer, ctx: Context) -> None:
    request = {"method": "POST", "path": "/items", "form": {"name": "{{ input.name }}", "on": True}}
    build_connector(actions__add_item__request=request)(settings(server)).call("add_item", {"name": "a&b"}, ctx)
    assert (server.received[-1].body, server.received[-1].headers["content-type"]) == (
        b"name=a%26b&on=true",
        "application/x-www-form-urlencoded",
    )


@pytest.mark.parametrize(
    ("auth", "seen"),
    [
        ({"kind": "basic", "username": "u", "password": "{{ settings.token }}"}, "Basic dTpjYW5hcnktNWQ0MTQwMmFiYw=="),
        ({"kind": "header", "name": "X-Key", "value": "k {{ settings.token }}"}, f"k {TOKEN}"),
        ({"kind": "query", "name": "key", "value": "{{ settings.token }}"}, f"key={TOKEN}"),
    ],
)
def test_credentials_go_where_the_file_says(server: LoopbackServer, ctx: Context, auth: dict[str, str], seen: str) -> None:
    build_connector(auth=auth)(settings(server)).call("find_item", {"id": "1"}, ctx)
    sent = server.received[-1]
    assert seen in (sent.headers.get("authorization"), sent.headers.get("x-key"), urlsplit(sent.path).query)


# Where it goes


@pytest.mark.parametrize("word", ["evil.example/", "evil@", "a b", "..", "x#", "x?", "[::1]", "a:80"])
def test_a_setting_within_the_address_leads_to_no_other_host(server: LoopbackServer, ctx: Context, word: str) -> None:
    it = build_connector(base_url="http://{{ settings.base_url }}.localhost:1/api")({"base_url": word, "token": TOKEN})
    with pytest.raises(ConfigError):
        it.check(ctx)


@pytest.mark.parametrize("url", ["ftp://h", "http://u:p@h", "http://h/?x", "http://h/../x", "http://h:99999", "h", "http://h/a b"])
def test_an_invalid_address_is_refused(ctx: Context, url: str) -> None:
    with pytest.raises(ConfigError):
        build_connector()({"base_url": url, "token": TOKEN}).check(ctx)


@pytest.mark.parametrize("target", ["http://127.0.0.9:1/items", "//evil.example/items", "/other", "/base/../other", "http://["])
def test_a_next_page_elsewhere_is_not_followed(server: LoopbackServer, ctx: Context, target: str) -> None:
    server.answers["/base/items"] = lambda _: json_answer({"data": [], "next": target})
    it = build_connector(actions__list_items__pages={"kind": "next_url", "items": "data", "next": "next"})(
        {"base_url": f"{server.url}/base", "token": TOKEN}
    )
    with pytest.raises(ConnectorError):
        it.call("list_items", {}, ctx)
    assert len(server.received) == 1


# Pages


@pytest.mark.parametrize(
    ("kind", "query"),
    [
        ({"kind": "cursor", "next": "paging.next"}, {"after": "{{ page.cursor }}"}),
        ({"kind": "next_url", "next": "url"}, {}),
        ({"kind": "link"}, {}),
        ({"kind": "page", "size": 2}, {"number": "{{ page.number }}"}),
        ({"kind": "page", "first": 0, "more": "more"}, {"number": "{{ page.number }}", "zero": 1}),
        ({"kind": "offset", "size": 2}, {"after": "{{ page.offset }}", "limit": "{{ page.size }}"}),
    ],
)
def test_every_pagination_kind_returns_all_items_once(
    server: LoopbackServer, ctx: Context, kind: dict[str, Any], query: dict[str, Any]
) -> None:
    def paged(request: Received) -> Answer:
        params = dict(parse_qsl(urlsplit(request.path).query))
        number = int(params.get("number", 0 if "zero" in params else 1)) - (0 if "zero" in params else 1)
        start = int(params.get("after", number * 2))
        last = start + 2 >= len(ITEMS)
        url = f"/items?after={start + 2}"
        body = {"data": ITEMS[start : start + 2], "more": not last} | ({} if last else {"paging": {"next": start + 2}, "url": url})
        return json_answer(body, Link="" if last else f'<{url}>; rel="next"')

    server.answers["/items"] = paged
    it = build_connector(
        actions__list_items__pages={**kind, "items": "data"}, actions__list_items__request={"path": "/items", "query": query}
    )(settings(server))
    output = it.call("list_items", {}, ctx)
    assert (output["complete"], [item["id"] for item in output["items"]]) == (True, ["1", "2", "3", "4", "5"])
    assert len(server.received) == 3


def test_reading_ends_at_the_item_limit(server: LoopbackServer, ctx: Context) -> None:
    output = build_connector()(settings(server)).call("list_items", {"most": 3}, ctx)
    assert (len(output["items"]), output["complete"], len(server.received)) == (3, False, 2)


def test_a_repeated_page_is_an_error(server: LoopbackServer, ctx: Context) -> None:
    server.answers["/items"] = lambda _: json_answer({"data": [1], "paging": {"next": "same"}})
    with pytest.raises(SystemFailure, match="gave before"):
        build_connector()(settings(server)).call("list_items", {}, ctx)
    assert len(server.received) == 2


# Errors


@pytest.mark.parametrize(
    ("answer", "error", "outcome"),
    [
        (Answer(401), AuthError, "not_done"),
        (Answer(403), AuthError, "not_done"),
        (Answer(429, {"Retry-After": "7"}), RateLimited, "not_done"),
        (Answer(503, {"Retry-After": "7"}), RateLimited, "not_done"),
        (Answer(503), TransientError, "not_done"),
        (Answer(500), TransientError, "unknown"),
        (Answer(501), Rejected, "not_done"),
        (Answer(404), Rejected, "not_done"),
        (Answer(200, body=b"<html>"), SystemFailure, "unknown"),
        (Answer(200, body=b"[]"), SystemFailure, "unknown"),
        (Answer(200, body=b'{"a": NaN}'), SystemFailure, "unknown"),
    ],
)
def test_each_failure_has_its_error_class(
    server: LoopbackServer, ctx: Context, answer: Answer, error: type[ConnectorError], outcome: str
) -> None:
    server.answers["/items"] = lambda _: answer
    with pytest.raises(error) as caught:
        build_connector()(settings(server)).call("add_item", {"name": "x"}, ctx)
    assert (type(caught.value), caught.value.outcome) == (error, outcome)
    assert getattr(caught.value, "retry_after", 7.0) == 7.0


@pytest.mark.parametrize(
    ("rule", "answer", "error"),
    [
        ({"status": 409, "class": "auth_error"}, json_answer({}, 409), AuthError),
        ({"status": "4xx", "class": "config_error"}, json_answer({}, 422), ConfigError),
        ({"status": [404, 410], "class": "system_error"}, json_answer({}, 410), SystemFailure),
        ({"status": 200, "when": {"ok": False}, "class": "rejected"}, json_answer({"ok": False}), Rejected),
        (
            {"status": 400, "when": {"errors[0].code": 7}, "class": "rate_limited"},
            json_answer({"errors": [{"code": 7}]}, 400),
            RateLimited,
        ),
        ({"status": 500, "class": "transient_error", "outcome": "not_done"}, json_answer({}, 500), TransientError),
    ],
)
def test_rules_take_precedence_over_the_default_classes(
    server: LoopbackServer, ctx: Context, rule: dict[str, Any], answer: Answer, error: type[ConnectorError]
) -> None:
    server.answers["/items"] = lambda _: answer
    it = build_connector(errors=[{**rule, "message": "It says {{ answer.why }}({{ status }})."}])(settings(server))
    with pytest.raises(error) as caught:
        it.call("add_item", {"name": "x"}, ctx)
    assert (type(caught.value), caught.value.outcome) == (error, "not_done")
    assert caught.value.message == f"It says ({answer.status})."


def test_a_rule_whose_values_do_not_match_is_skipped(server: LoopbackServer, ctx: Context) -> None:
    server.answers["/items"] = lambda _: json_answer({"ok": 0}, 404)
    rule = {"status": 404, "when": {"ok": False}, "class": "auth_error", "message": "no"}
    with pytest.raises(Rejected):
        build_connector(errors=[rule])(settings(server)).call("add_item", {"name": "x"}, ctx)


def test_a_custom_header_sets_the_retry_delay(server: LoopbackServer, ctx: Context) -> None:
    server.answers["/items"] = lambda _: Answer(429, {"X-Reset": "12"})
    rule = {"status": 429, "class": "rate_limited", "message": "Slowly.", "retry_after_header": "X-Reset"}
    with pytest.raises(RateLimited) as caught:
        build_connector(errors=[rule])(settings(server)).call("add_item", {"name": "x"}, ctx)
    assert caught.value.retry_after == 12.0


# Triggers


def test_a_trigger_starts_now_and_continues_from_its_cursor(server: LoopbackServer, ctx: Context) -> None:
    it = build_connector()(settings(server))
    first = it.poll("new_items", {}, None, ctx)
    assert (first.items, first.cursor) == ((), {"at": "2026-01-05", "keys": ["5"]})
    late = [{"id": key, "label": key, "changed_at": at} for key, at in (("7", "2026-01-06"), ("6", "2026-01-05"))]
    server.answers["/items"] = serving(ITEMS + late)
    second = it.poll("new_items", {}, json.loads(json.dumps(first.cursor)), ctx)
    assert [item.key for item in second.items] == ["6@2026-01-05", "7@2026-01-06"]
    assert "since=2026-01-05" in server.received[-1].path
    assert it.poll("new_items", {}, second.cursor, ctx).items == []


def test_a_trigger_from_the_start_reads_existing_items_in_parts(server: LoopbackServer, ctx: Context) -> None:
    flood = [{"id": number, "changed_at": number} for number in range(500)]

    def ordered(request: Received) -> Answer:
        params = dict(parse_qsl(urlsplit(request.path).query))
        start = int(params.get("since", 0)) + int(params.get("after", 0))
        return json_answer(
            {"data": flood[start : start + 100], "paging": {"next": int(params.get("after", 0)) + 100} if start < 400 else {}}
        )

    server.answers["/items"] = ordered
    trigger = {**yaml12.load(STOCK)["triggers"]["new_items"], "begin": "start", "ascending": True}
    it = build_connector(triggers__new_items=trigger)(settings(server))
    seen: list[str] = []
    cursor, more = None, True
    while more:
        polled = it.poll("new_items", {}, cursor, ctx)
        seen += [item.key for item in polled.items]
        cursor, more = polled.cursor, polled.more
    assert seen == [f"{number}@{number}" for number in range(500)]


def test_a_trigger_requests_the_newest_item_alone(server: LoopbackServer, ctx: Context) -> None:
    server.answers["/newest"] = lambda _: json_answer({"data": ITEMS[4:]})
    it = build_connector(triggers__new_items__newest={"path": "/newest"})(settings(server))
    assert it.poll("new_items", {}, None, ctx).cursor == {"at": "2026-01-05", "keys": ["5"]}
    assert len(server.received) == 1


def test_a_preview_shows_the_request_and_sends_nothing(server: LoopbackServer) -> None:
    kind = build_connector()
    assert kind.previews
    ctx = PreviewContext("key-1")
    with pytest.raises(NothingLeaves):
        kind({"base_url": server.url, "token": TOKEN}).call("add_item", {"name": "bolt"}, ctx)
    [request] = ctx.requests
    assert (request.method, request.url, json.loads(request.content)) == ("POST", f"{server.url}/items", {"label": "bolt"})
    assert ("Idempotency-Key", "key-1") in request.headers
    assert server.received == []
