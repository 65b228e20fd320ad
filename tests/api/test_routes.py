"""The route matrix: every route with no key, a wrong key, a missing scope, another tenant's ids, and a valid request."""

import http.client
import json
from collections.abc import Iterator
from typing import Any

import httpx
import jsonschema_rs
import pytest

from appliance.api import load_routes
from appliance.api.frame.openapi import document
from appliance.api.frame.routing import PREFIX, Route
from appliance.tenants import SCOPES
from appliance.tenants.keys import make_key_text
from appliance.testing.running import Running
from tests.api.examples import EXAMPLES, Example
from tests.api.resources import Resources
from tests.api.sending import CREATING_PUTS, address, send, unknown_id

EVERY = [pytest.param(route, id=f"{route.method} {route.path}") for route in load_routes()]
WITH_IDS = [
    pytest.param(route, id=f"{route.method} {route.path}") for route in load_routes() if set(route.parameters) - {"connector"}
]
SCOPED = [pytest.param(route, id=f"{route.method} {route.path}") for route in load_routes() if route.scope]
SHARED = ("version", "action", "path")  # numbers and names that are the same at every tenant


def placeholder(route: Route) -> Example:
    """A request that must be refused before its content is looked at."""
    return Example(dict.fromkeys(route.parameters, "x"))


def test_every_route_has_an_example() -> None:
    assert {route.name for route in load_routes()} == set(EXAMPLES)
    assert len({route.name for route in load_routes()}) == len(load_routes())


@pytest.fixture(scope="session")
def stranger(running: Running) -> Iterator[httpx.Client]:
    with running.client("acme.localhost") as client:
        yield client


@pytest.mark.parametrize("route", EVERY)
def test_every_route_requires_a_key(stranger: httpx.Client, route: Route) -> None:
    answer = send(stranger, route, placeholder(route))
    assert (answer.status_code, answer.json()["error"]["code"]) == (401, "missing_api_key")


@pytest.mark.parametrize("route", EVERY)
def test_a_wrong_key_and_a_foreign_key_look_alike(stranger: httpx.Client, theirs: Resources, route: Route) -> None:
    keys = (make_key_text("live"), theirs.client.headers["x-api-key"], "gos_x", "%C3%A9" * 40, "a" * 5000)
    answers = []
    for key in keys:
        answer = send(stranger, route, placeholder(route), **{"X-API-Key": key, "X-Request-Id": "same"})
        # The thousandth answer on a connection says that it is the last one, whatever was asked.
        answers.append((answer.status_code, answer.content, sorted(set(answer.headers) - {"date", "connection"})))
    assert answers[0][0] == 401
    assert json.loads(answers[0][1])["error"]["code"] == "invalid_api_key"
    assert all(answer == answers[0] for answer in answers)


@pytest.fixture(scope="session")
def narrow(running: Running) -> dict[str, str]:
    """For each scope a key of tenant acme that has every other."""
    return {scope: running.key("acme", [name for name in SCOPES if name != scope]) for scope in SCOPES}


@pytest.mark.parametrize("route", SCOPED)
def test_a_missing_scope_is_named(stranger: httpx.Client, narrow: dict[str, str], route: Route) -> None:
    assert route.scope is not None
    answer = send(stranger, route, placeholder(route), **{"X-API-Key": narrow[route.scope]})
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["scope"]) == (403, "scope_missing", route.scope)
    assert route.scope in error["message"]


def refusal(answer: httpx.Response, path: dict[str, str]) -> tuple[int, str, list[str]]:
    """The response without the requested ids."""
    text = answer.text
    for value in sorted(path.values(), key=len, reverse=True):
        text = text.replace(value, "ID")
    return answer.status_code, text, sorted(set(answer.headers) - {"date", "content-length"})


@pytest.mark.parametrize("route", WITH_IDS)
def test_foreign_ids_are_answered_like_unknown_ids(ours: Resources, theirs: Resources, route: Route) -> None:
    if route.name in CREATING_PUTS:
        return
    foreign = EXAMPLES[route.name](theirs)
    mine = EXAMPLES[route.name](ours).path
    unknown = {name: unknown_id(name, value) for name, value in foreign.path.items()}
    pairs = [(foreign.path, unknown)]
    if len(foreign.path) > 1:
        last = list(foreign.path)[-1]
        pairs.append((mine | {last: foreign.path[last]}, mine | {last: unknown[last]}) if last not in SHARED else pairs[0])
    for foreign_path, absent in pairs:
        answers = []
        for path in (foreign_path, absent):
            example = Example(path, foreign.body, foreign.query, foreign.media, foreign.headers)
            answers.append(refusal(send(ours.client, route, example, **{"X-Request-Id": "same"}), path))
        assert answers[0][0] == 404
        assert answers[0] == answers[1]
    after = send(theirs.client, route, foreign)
    assert after.is_success, "the foreign call must have changed nothing"


@pytest.fixture(scope="session")
def contract() -> dict[str, Any]:
    return document("http://acme.localhost")


def problems(contract: dict[str, Any], route: Route, answer: httpx.Response) -> list[str]:
    """Where an answer is not what the OpenAPI document promises."""
    declared = contract["paths"][PREFIX + route.path][route.method.lower()]["responses"]
    if answer.is_error or str(answer.status_code) not in declared:
        return [f"status {answer.status_code} is not declared"]
    content = declared[str(answer.status_code)]["content"]
    media = answer.headers["content-type"].partition(";")[0]
    if "*/*" in content:
        return []
    if media not in content:
        return [f"media type {media} is not declared"]
    if media != "application/json":
        return []
    schema = {**content[media]["schema"], "components": contract["components"]}
    validator = jsonschema_rs.Draft202012Validator(schema)
    return [f"{list(e.instance_path)}: {e.message}" for e in validator.iter_errors(answer.json())]


@pytest.mark.parametrize("route", EVERY)
def test_a_good_request_is_answered_as_documented(ours: Resources, contract: dict[str, Any], route: Route) -> None:
    answer = send(ours.client, route, EXAMPLES[route.name](ours), **{"X-Request-Id": "req-of-a-test"})
    assert answer.is_success, answer.text
    assert problems(contract, route, answer) == []
    assert answer.headers["x-request-id"] == "req-of-a-test"
    assert answer.headers["ratelimit-policy"] == '"default";q=1000000;w=60'
    assert answer.headers["cache-control"] == ("private, no-cache" if route.media in ("*/*", "image/webp") else "no-store")
    if answer.status_code == 201 and route.method == "POST" and route.name != "add_member":
        assert ours.client.get(answer.headers["location"]).is_success


@pytest.mark.parametrize("route", EVERY)
def test_no_spelling_of_an_address_bypasses_the_key(running: Running, route: Route) -> None:
    plain = address(route, dict.fromkeys(route.parameters, "x"))
    head, _, tail = plain.rpartition("/")
    spellings = [
        f"{plain}?x=/public", f"{plain}/", f"{plain}//", f"/{plain}", f"{head}/%{ord(tail[0]):02x}{tail[1:]}", f"{head}%2f{tail}",
        f"{plain};x=1", f"{plain}/.", f"{plain}%00", f"{plain}.json", f"/static/..{plain}", f"/api-docs/..{plain}",
        f"/healthz/..{plain}", f"/api-docs/%2e%2e{plain}", plain.upper(), f"{plain}#public", f"http://x{plain}",
    ]  # fmt: skip
    connection = http.client.HTTPConnection("127.0.0.1", running.config.server.port, timeout=30)
    for spelling in spellings:
        connection.putrequest(route.method, spelling, skip_host=True)
        connection.putheader("Host", f"acme.localhost{running.config.port_suffix}")
        connection.putheader("Content-Length", "0")
        connection.endheaders()
        answer = connection.getresponse()
        answer.read()
        assert answer.status in (400, 401, 404, 405, 421), (spelling, answer.status)
    connection.close()
