"""A request whose end cannot be written, because the database is away, does not keep its Idempotency-Key in flight."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from appliance.core.database import db
from appliance.core.database.losses import ConnectionLost
from appliance.core.errors import IdempotencyInFlight
from appliance.core.scope import TenantScope
from appliance.tenants import RequestKey, StoredResponse, idempotency
from tests.store.conftest import on_server

ANSWER = StoredResponse(201, {}, "{}")


def begin(scope: TenantScope, request: RequestKey) -> StoredResponse | None:
    return db.write(partial(idempotency.begin, scope, request, "wrk_here", lambda _: True), is_shared=True)


def repeat() -> RequestKey:
    """The same request, sent again."""
    return RequestKey("key-1", "POST", "/things", b"{}")


@pytest.fixture
def claimed(one: TenantScope) -> Iterator[RequestKey]:
    request = repeat()
    assert begin(one, request) is None
    with pytest.raises(IdempotencyInFlight):
        begin(one, repeat())
    yield request
    assert not idempotency.is_any_unsettled()


def losing(end: Callable[[], Any]) -> Callable[[], None]:
    """The same, whose connection is lost during its first commit."""
    attempts: list[str] = []

    def run() -> None:
        end()
        if not attempts:
            db.send("SELECT pg_terminate_backend(pg_backend_pid())")
        attempts.append("")

    return run


@on_server
@pytest.mark.writes_once(reason="counts attempts")
def test_an_answer_is_stored_once_the_database_is_back(one: TenantScope, claimed: RequestKey) -> None:
    end = losing(partial(idempotency.finish, one, claimed, ANSWER))
    with pytest.raises(ConnectionLost):
        idempotency.settle(end)
    assert idempotency.is_any_unsettled()
    idempotency.settle_rest()
    assert begin(one, repeat()) == ANSWER


@on_server
@pytest.mark.writes_once(reason="counts attempts")
def test_a_late_release_spares_the_claim_of_a_repetition(one: TenantScope, claimed: RequestKey) -> None:
    with pytest.raises(ConnectionLost):
        idempotency.settle(losing(partial(idempotency.release, one, claimed)))
    db.write(partial(idempotency.release, one, claimed), is_shared=True)
    again = RequestKey("key-1", "POST", "/things", b"{}", claimed.claimed_at + 1)
    assert begin(one, again) is None
    idempotency.settle_rest()
    with pytest.raises(IdempotencyInFlight):
        begin(one, repeat())


@on_server
@pytest.mark.writes_once(reason="counts attempts")
def test_an_end_that_fails_for_good_keeps_no_other_waiting(one: TenantScope, claimed: RequestKey) -> None:
    attempts: list[str] = []

    def fail_for_good() -> None:
        attempts.append("")
        if len(attempts) > 1:
            raise ValueError("for good")
        db.execute("SELECT 1")
        db.send("SELECT pg_terminate_backend(pg_backend_pid())")

    for end in (fail_for_good, losing(partial(idempotency.finish, one, claimed, ANSWER))):
        with pytest.raises(ConnectionLost):
            idempotency.settle(end)
    with pytest.raises(ValueError, match="for good"):
        idempotency.settle_rest()
    idempotency.settle_rest()
    assert begin(one, repeat()) == ANSWER
