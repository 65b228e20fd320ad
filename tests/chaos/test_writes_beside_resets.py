"""Two servers, one of which resets a tenant while every kind of request writes into it at the other."""

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from appliance.core.database import db
from appliance.tenants import service
from tests.backups.test_emptying import check_searches
from tests.bench.filling import fill
from tests.chaos.beside import (
    Pair,
    check_contents,
    check_late_requests,
    check_refusals,
    marked_rows,
    open_pair,
    rows_of_solution,
    write_until,
)
from tests.chaos.doors import APP, DOORS, SOLUTION, is_refused_for_reset
from tests.processes.world import wait_until

EXECUTIONS = 500
OTHER = {
    **SOLUTION,
    "processes/note/process.yaml": SOLUTION["processes/note/process.yaml"].replace(b"values: {", b"values: {what: other, "),
    "webapps/shop/public/index.html": b"<h1>Other</h1>\n",
}
REFUSALS = ("overloaded", "process_failed", "conflict")
"""Conflict is the error of an awaited execution that is cancelled, and `process_failed` what a WebApp says of it."""


@pytest.fixture
def pair(tmp_path: Path, store_url: str) -> Iterator[Pair]:
    with open_pair(tmp_path, store_url) as pair:
        yield pair


def test_no_write_at_another_server_outlives_a_reset(pair: Pair) -> None:
    fill(service.system_scope("acme"), EXECUTIONS)
    pair.start_endless()
    refusals = write_until(pair.visitor, lambda _, text: is_refused_for_reset(text), pair.start_reset)
    wait_until(lambda: not db.rows("SELECT 1 FROM execution WHERE tenant_id = 'acme' AND finished_at IS NULL"))
    pair.empty()
    pair.wait_for_reset()
    check_refusals(refusals, *REFUSALS)
    assert marked_rows() == {}
    check_searches()
    check_contents(pair)
    after = rows_of_solution()
    pair.start_reset()
    pair.wait_for_reset()
    assert after == rows_of_solution(), "it is as after a reset that nobody disturbs"


def test_a_request_that_began_before_a_reset_writes_nothing_after_it(pair: Pair) -> None:
    pair.empty()

    def reset() -> None:
        pair.start_reset()
        pair.wait_for_reset()

    check_late_requests(pair, reset, *REFUSALS)


def test_another_server_knows_what_was_applied_and_not_what_was_there(pair: Pair) -> None:
    """Under the same ids and version numbers."""
    pair.empty()
    look_at_second(pair, None, "<h1>Shop</h1>")
    pair.start_reset(OTHER)
    pair.wait_for_reset()
    look_at_second(pair, "other", "<h1>Other</h1>")


def execute(api: httpx.Client) -> httpx.Response:
    return api.post("/api/v1/processes/note/execute?wait=20", json={"run": "a"})


def look_at_second(pair: Pair, what: str | None, page: str) -> None:
    """Its process writes this, also behind a route, and its app has this page."""
    with pair.servers.client(1) as api, pair.servers.client(1, APP) as visitor:
        wait_until(lambda: (api.get("/api/v1/tenant").status_code, page in visitor.get("/").text) == (200, True))
        response = execute(api)
        if response.status_code == 503 and what is not None:  # the reset took less than the second in which it did not look
            assert is_refused_for_reset(response.text)
            response = execute(api)
        executed = response.raise_for_status().json()["data"]
        assert (executed["version"], executed["output"]["what"]) == (1, what)
        with pair.visitor.client() as client:
            status, text = pair.visitor.use(client, DOORS["a process behind a route"], "a")
        assert (status, json.loads(text)["data"]["what"]) == (200, what)
