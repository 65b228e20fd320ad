"""Pagination: how each kind finds the next page, and which links are not followed."""

import json
from typing import Any

import pytest

from appliance.connectors.contract import ConfigError, ConnectorError, SystemFailure
from appliance.connectors.testing import Answer, schema_problems

Shop = Any


def parameter(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "in": "query", "schema": {"type": "string"}, **more}


@pytest.fixture
def pages(shop: Shop) -> Any:
    """`pages(kind)` serves seven numbers, three per page, with the pagination `kind`."""

    def serve(kind: str, *parameters: Any, wrapped: str | None = None, extra: Any = None) -> None:
        numbers = {"type": "array", "items": {"type": "integer"}}
        body = numbers if wrapped is None else {"type": "object", "properties": {wrapped: numbers, **(extra or {})}}
        response = {"description": "", "content": {"application/json": {"schema": body}}}
        if kind == "link":
            response["headers"] = {"Link": {"schema": {"type": "string"}}}
        shop.publish({"/n": {"get": {"operationId": "list", "parameters": parameters, "responses": {"200": response}}}})

        def answer(request: Any) -> Answer:
            query = dict(part.split("=") for part in request.path.partition("?")[2].split("&") if part)
            start = (
                int(query.get("from", 0))
                + (int(query.get("page", 1)) - 1) * 3
                + int(query.get("offset", 0))
                + int(query.get("cursor", 0))
            )
            page = list(range(7))[start : start + 3]
            after = start + 3 if start + 3 < 7 else None
            more = {"next": f"/n?from={after}" if after else None, "next_cursor": str(after) if after else None}
            headers = {"Content-Type": "application/json"}
            if kind == "link" and after:
                headers["Link"] = f'</n?from=0>; rel="first", <{shop.url}/n?from={after}>; rel="next"'
            body_out = page if wrapped is None else {wrapped: page, **{name: more[name] for name in extra or {}}}
            return Answer(200, headers, json.dumps(body_out).encode())

        shop.server.answers["/n"] = answer

    return serve


NULLABLE = {"type": ["string", "null"]}
NUMBER = {"type": "integer"}
LISTS = [
    ("link", (), None, None),
    ("next", (), "results", {"next": NULLABLE}),
    ("cursor", (parameter("cursor"),), "data", {"next_cursor": NULLABLE}),
    ("page", (parameter("page", schema=NUMBER), parameter("per_page", schema=NUMBER)), None, None),
    ("offset", (parameter("offset", schema=NUMBER), parameter("limit", schema=NUMBER)), "items", None),
]


@pytest.mark.parametrize(("kind", "parameters", "wrapped", "extra"), LISTS, ids=[each[0] for each in LISTS])
def test_pages_are_joined_up_to_the_limit(shop: Shop, pages: Any, kind: str, parameters: Any, wrapped: Any, extra: Any) -> None:
    pages(kind, *parameters, wrapped=wrapped, extra=extra)
    action = shop.actions()["list"]
    assert action.plan["paging"]["kind"] == kind
    for limit, numbers, more in ((1, 3, True), (2, 6, True), (9, 7, False)):
        output = shop.perform("list", {"pages": limit})
        assert schema_problems(action.output, output) == []
        items = output["body"] if wrapped is None else output["body"][wrapped]
        assert (items, output["more"]) == (list(range(numbers)), more)


def test_settings_override_the_detected_paging(shop: Shop, pages: Any) -> None:
    pages("cursor", parameter("cursor"), wrapped="data", extra={"next_cursor": NULLABLE})
    assert "paging" not in shop.actions(paging={"list": {"kind": "none"}})["list"].plan
    chosen = {"*": {"kind": "cursor", "at": "next_cursor", "parameter": "cursor", "items": "data"}}
    assert shop.perform("list", {"pages": 9}, paging=chosen)["body"]["data"] == list(range(7))


@pytest.mark.parametrize(
    ("link", "error", "sentence"), [("http://evil.example/n", ConfigError, "another host"), ("/n", SystemFailure, "does not end")]
)
def test_a_next_page_on_another_host_or_in_a_loop_is_not_followed(
    shop: Shop, link: str, error: type[ConnectorError], sentence: str
) -> None:
    response = {"description": "", "headers": {"Link": {}}, "content": {"application/json": {"schema": {"type": "array"}}}}
    shop.publish({"/n": {"get": {"operationId": "list", "responses": {"200": response}}}})
    shop.server.answers["/n"] = lambda _: Answer(200, {"Content-Type": "application/json", "Link": f'<{link}>; rel="next"'}, b"[1]")
    with pytest.raises(error, match=sentence):
        shop.perform("list", {"pages": 3})
