"""Two servers, one of which deletes a tenant while every kind of request writes into it at the other."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from appliance.core.database import db
from appliance.tenants import service
from tests.backups.test_emptying import check_searches, count_rows, entity_tables
from tests.bench.filling import fill
from tests.chaos.beside import Pair, check_contents, check_late_requests, check_refusals, marked_rows, open_pair, write_until
from tests.processes.world import wait_until

EXECUTIONS = 500
REFUSALS = ("unknown_host", "not_found", "invalid_api_key", "process_failed", "conflict")
"""Conflict is the error of an awaited execution that is cancelled, and `process_failed` what a WebApp says of it."""


@pytest.fixture
def pair(tmp_path: Path, store_url: str) -> Iterator[Pair]:
    with open_pair(tmp_path, store_url) as pair:
        yield pair


def test_no_write_at_another_server_outlives_a_deletion(pair: Pair) -> None:
    fill(service.system_scope("acme"), EXECUTIONS)
    pair.start_endless()
    refusals = write_until(pair.visitor, lambda status, _: status in (401, 421), pair.delete)
    wait_until(lambda: not db.rows("SELECT 1 FROM execution WHERE tenant_id = 'acme' AND finished_at IS NULL"))
    pair.empty()
    pair.wait_for_deletion()
    check_refusals(refusals, *REFUSALS)
    assert (marked_rows(), count_rows("acme"), entity_tables()) == ({}, {}, set())
    check_searches()
    check_contents(pair)


def test_a_request_that_began_before_a_deletion_writes_nothing_into_a_new_tenant_with_that_id(pair: Pair) -> None:
    pair.empty()

    def replace() -> None:
        pair.delete()
        pair.wait_for_deletion()
        pair.create()

    check_late_requests(pair, replace, *REFUSALS)
