"""Surface: races of idempotency keys on every route that takes one, not only on the execution of processes."""

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import httpx
import pytest

from appliance.api import load_routes
from appliance.api.frame.routing import PREFIX, Route
from appliance.connectors.testing import Answer, LoopbackServer, Received
from appliance.core import clock
from appliance.core.database import db
from appliance.solutions import write_zip
from tests.api.examples import EXAMPLES, Example
from tests.api.resources import FIELDS, Resources, fresh
from tests.redteam.attempts import Attempts, attempts

AT_ONCE = 20
POSTS = [route for route in load_routes() if route.method == "POST"]


def send(client: httpx.Client, route: Route, example: Example, **headers: str) -> httpx.Response:
    parts: dict[str, Any] = {"params": example.query, "headers": {**example.headers, **headers}}
    if example.media:
        parts |= {"content": example.body, "headers": {**example.headers, **headers, "Content-Type": example.media}}
    elif example.body is not None:
        parts["json"] = example.body
    return client.request("POST", PREFIX + route.path.format(**example.path), **parts)


def at_once(work: Callable[[int], httpx.Response], times: int) -> list[httpx.Response]:
    """The answers of as many callers who begin together."""
    gate = threading.Barrier(times)

    def begin(number: int) -> httpx.Response:
        gate.wait(30)
        return work(number)

    with ThreadPoolExecutor(times) as threads:
        return list(threads.map(begin, range(times)))


def firsts(answers: list[httpx.Response]) -> list[httpx.Response]:
    """The answers that were not a repetition of another."""
    return [each for each in answers if each.is_success and "idempotency-replayed" not in each.headers]


def had_one_effect(answers: list[httpx.Response]) -> tuple[bool, Any]:
    """Whether exactly one request had the effect and all others were answered as repetitions; with what was seen."""
    others = [each for each in answers if not each.is_success]
    in_flight = all(each.status_code == 409 and each.json()["error"]["code"] == "idempotency_in_flight" for each in others)
    seen = Counter((each.status_code, each.headers.get("idempotency-replayed", "")) for each in answers)
    return len(firsts(answers)) == 1 and in_flight, (seen, [each.text for each in others[:1]])


@pytest.fixture(scope="module")
def callers(ours: Resources) -> Iterator[list[httpx.Client]]:
    """As many clients with one and the same key."""
    key = ours.client.headers["x-api-key"]
    with ExitStack() as stack:
        yield [stack.enter_context(ours.running.client("acme.localhost", {"X-API-Key": key})) for _ in range(AT_ONCE)]


def test_every_route_that_takes_a_key_acts_once(ours: Resources, callers: list[httpx.Client]) -> None:
    """Read from the table of routes: a new one is attacked without another line."""
    with attempts() as table:
        for route in POSTS:
            example, once = EXAMPLES[route.name](ours), fresh("race")
            answers = at_once(lambda n: send(callers[n], route, example, **{"Idempotency-Key": once}), 4)  # noqa: B023
            table.check(f"{route.method} {route.path}", *had_one_effect(answers))


def effects(ours: Resources) -> dict[str, tuple[Callable[[], tuple[str, dict[str, Any]]], Callable[[], int]]]:
    """For each effect: a request that has it, and how often it has happened so far."""
    collection, process, app, slug = ours.collection(), ours.process(), ours.webapp(), ours.integration()
    archive, row = write_zip({"index.html": b"<h1>raced</h1>"}), {"number": fresh("raced"), "total": 1}
    zipped = {"Content-Type": "application/zip"}
    solution = write_zip({"solution.yaml": b"name: raced\n", f"collections/{fresh('raced')}.yaml": _collection_yaml()})

    def count(table: str, more: str = "", *values: Any) -> Callable[[], int]:
        statement = f"SELECT count(*) FROM {table} WHERE tenant_id = ? {more}"  # noqa: S608
        return lambda: int(db.rows(statement, ("acme", *values))[0][0])

    def records() -> int:
        return len(ours.client.get(f"{PREFIX}/datapool/{collection}/entities").json()["data"])

    def of(path: str, **parts: Any) -> Callable[[], tuple[str, dict[str, Any]]]:
        return lambda: (path, parts)

    return {
        "a document": (of("/documents?name=raced.txt", content=b"raced"), count("document")),
        "a revision": (of(f"/documents/{ours.document()}/revisions", content=b"more"), count("document_revision")),
        "a key": (of("/keys", json={"name": "raced", "scopes": ["logs.read"]}), count("api_key")),
        "a record": (of(f"/datapool/{collection}/entities", json={"total": 3, "number": fresh("raced")}), records),
        "a batch": (
            of("/datapool/batch", json={"operations": [{"op": "create", "collection": collection, "values": row}]}),
            records,
        ),
        "a call of a foreign system": (
            of(f"/integrations/{slug}/execute", json={"action": "post", "input": {"url": "/orders", "json": {"number": "1"}}}),
            count("integration_call"),
        ),
        "a WebApp's version": (
            of(f"/webapps/{app}/versions", content=archive, headers=zipped),
            count("webapp_version", "AND app_id = ?", app),
        ),
        "an approval": (of("/approvals", json={"kind": "approval", "title": fresh("May we")}), count("approval")),
        "a solution": (
            of("/solutions/apply", content=solution, headers=zipped),
            count("audit_entry", "AND action = 'solution.apply'"),
        ),
        "an execution": (of(f"/processes/{process}/execute?wait=0", json={}), count("execution", "AND process_id = ?", process)),
    }


def _collection_yaml() -> bytes:
    return json.dumps({"fields": FIELDS}).encode()


def test_twenty_at_once_have_one_effect_in_the_rows(ours: Resources, callers: list[httpx.Client]) -> None:
    with attempts(least=10) as table:
        for name, (make, count) in effects(ours).items():
            path, parts = make()
            headers = {**parts.pop("headers", {}), "Idempotency-Key": fresh("twenty")}
            before = count()
            answers = at_once(lambda n: callers[n].post(PREFIX + path, headers=headers, **parts), AT_ONCE)  # noqa: B023
            holds, seen = had_one_effect(answers)
            table.check(name, holds and count() - before == 1, (count() - before, seen))


def test_without_a_key_each_of_them_has_its_effect(ours: Resources, callers: list[httpx.Client]) -> None:
    """The control: what the counts above say is due to the key."""
    requests = effects(ours)
    for name in ("a document", "a key", "a call of a foreign system", "a WebApp's version", "an execution"):
        make, count = requests[name]
        path, parts = make()
        before = count()
        at_once(lambda n: callers[n].post(PREFIX + path, **parts), 3)  # noqa: B023
        assert count() - before == 3, name


def test_a_key_is_valid_for_one_caller_one_path_and_one_body(ours: Resources, theirs: Resources) -> None:
    running, client = ours.running, ours.client
    first, second, once = ours.collection(), ours.collection(), {"Idempotency-Key": fresh("reused")}
    theirs.ask("POST", "/datapool", {"name": first, "fields": FIELDS})
    path, body = f"{PREFIX}/datapool/{first}/entities", {"number": fresh("reused"), "total": 1}
    created = client.post(path, json=body, headers=once)
    assert created.status_code == 201
    with attempts(least=10) as table:
        for name, other in {
            "another value": body | {"total": 2},
            "a member more": body | {"note": 1},
            "a list for the object": [body],
        }.items():
            answer = client.post(path, json=other, headers=once)
            table.check(name, answer.status_code == 422, answer.text)
        for name, query in {"another query": "?dry_run=true", "a doubled query": "?x=1&x=2"}.items():
            answer = client.post(path + query, json=body, headers=once)
            table.check(name, answer.status_code == 400, answer.text)
        _check_other_callers(table, ours, theirs, (path, body, once, created.json()["data"]["id"]))
        elsewhere = client.post(f"{PREFIX}/datapool/{second}/entities", json=body, headers=once).json()["data"]
        table.check("another path", elsewhere["id"] != created.json()["data"]["id"], elsewhere)
        missing = client.post(f"{PREFIX}/datapool/{first}/query", json={}, headers=once)
        table.check("another route of it", "idempotency-replayed" not in missing.headers, missing.text)
        with running.client("localhost", {"X-API-Key": client.headers["x-api-key"]}) as base:
            again = base.post(path, json=body, headers=once)
        table.check("the same on the base host", again.headers.get("idempotency-replayed") == "true", again.text)
        records = [each["id"] for each in client.get(path).json()["data"] if each["number"] == body["number"]]
        table.check("one record of it all", records == [created.json()["data"]["id"]], records)


def _check_other_callers(
    table: Attempts, ours: Resources, theirs: Resources, request: tuple[str, Any, dict[str, str], str]
) -> None:
    """The same request by somebody else: their own answer, never this one's."""
    path, body, once, record_id = request
    foreign = theirs.client.post(path, json=body, headers=once)
    seen = (foreign.text, dict(foreign.headers))
    table.check("the key of another tenant", foreign.status_code == 201 and foreign.json()["data"]["id"] != record_id, seen)
    with ours.running.api("acme") as another:
        answer = another.post(path, json=body, headers=once)
        table.check("another key of this tenant", answer.status_code == 422 and record_id not in answer.text, answer.text)
    with ours.running.api("acme", ["entities.read"]) as narrow:
        answer = narrow.post(path, json=body, headers=once)
        table.check("a key without the scope", answer.status_code == 403 and record_id not in answer.text, answer.text)
    issued = ours.ask("POST", "/keys", {"name": "lent", "scopes": ["entities.write"]})
    with ours.running.client("acme.localhost", {"X-API-Key": issued["key"]}) as lent:
        own = {"Idempotency-Key": fresh("lent")}
        lent.post(path, json={"number": fresh("lent")}, headers=own)
        ours.ask("DELETE", f"/keys/{issued['id']}")
        answer = lent.post(path, json={"number": fresh("lent")}, headers=own)
        table.check("a revoked key asks for its answer", answer.status_code == 401, answer.text)


@pytest.fixture
def unwell() -> Any:
    """A foreign system that refuses the first call of each path and takes the next."""
    server, calls = LoopbackServer(), Counter[str]()
    statuses = {"/busy": 429, "/down": 503, "/broken": 500, "/wrong": 400}

    def answer(received: Received) -> Answer:
        calls[received.path] += 1
        return Answer(statuses[received.path] if calls[received.path] == 1 else 200, {"Content-Type": "application/json"}, b"{}")

    server.answers.update(dict.fromkeys(statuses, answer))
    yield server.url, calls
    server.close()


def test_a_failed_call_frees_the_key_and_a_refusal_keeps_it(ours: Resources, unwell: Any) -> None:
    url, calls = unwell
    slug = fresh("unwell")
    ours.ask(
        "POST", "/integrations", {"slug": slug, "connector": "http", "settings": {"base_url": url, "retries": {"attempts": 1}}}
    )
    expected = {"/busy": (502, 200, 2), "/down": (502, 200, 2), "/broken": (502, 200, 2), "/wrong": (422, 422, 1)}
    seen = {}
    for path in expected:
        once, body = {"Idempotency-Key": fresh("again")}, {"action": "get", "input": {"url": path}}
        answers = [ours.client.post(f"{PREFIX}/integrations/{slug}/execute", json=body, headers=once) for _ in range(2)]
        seen[path] = (answers[0].status_code, answers[1].status_code, calls[path])
    assert seen == expected


def test_a_rate_limited_caller_may_retry_with_the_same_key(ours: Resources) -> None:
    collection, once = ours.collection(), {"Idempotency-Key": fresh("paced")}
    path = f"{PREFIX}/datapool/{collection}/entities"
    key = ours.running.key("acme", ["entities.write"], rate_requests=1, rate_window_s=1)
    with ours.running.client("acme.localhost", {"X-API-Key": key}) as paced:
        answers = [paced.post(path, json={"number": str(n)}, headers=once if n == 1 else {}) for n in range(2)]
        assert [each.status_code for each in answers] == [201, 429]
        deadline, pause = clock.monotonic() + 30, threading.Event()
        while (freed := paced.post(path, json={"number": "1"}, headers=once)).status_code == 429 and clock.monotonic() < deadline:
            pause.wait(0.1)
    assert (freed.status_code, freed.headers.get("idempotency-replayed")) == (201, None)
