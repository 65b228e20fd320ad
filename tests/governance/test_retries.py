"""Retries of failed calls: a new record, the same key, and no duplicate effect."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from appliance.core.errors import ApplianceError, Conflict, IdempotencyInFlight, NotFound, PolicyDenied
from appliance.core.pages import PageRequest
from appliance.governance.executor.requests import ActionFailed
from appliance.integrations import CallFilter, CallRecord, OutcomeUnknown, history
from tests.governance.ruling import put_rules
from tests.integrations.world import Ledger, World


def make_failed_call(world: World, action: str = "book", do: str = "Rejected", key: str | None = None, **fields: object) -> str:
    with pytest.raises(ActionFailed) as caught:
        world.executor.execute(world.one, world.request(action, input={"do": do, **fields}, idempotency_key=key))
    return caught.value.call_id


def repair(monkeypatch: pytest.MonkeyPatch, answer: object = None) -> None:
    """The foreign system works again."""

    def call(self: Ledger, action: str, input: object, ctx: object) -> object:  # noqa: A002 - the contract's word
        Ledger.booked.append((action, ctx.idempotency_key, input))  # type: ignore[attr-defined]
        return answer or {"n": 1}

    monkeypatch.setattr(Ledger, "call", call)


def run_all(world: World) -> None:
    while world.queued:
        _, _, call_id = world.queued.pop()
        world.executor.run_queued(world.one, call_id)


def record(world: World, call_id: str) -> CallRecord:
    return history.get_call(world.one, "books", call_id)


def test_a_retry_of_a_refused_write_has_its_own_record(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.ledger()
    first = make_failed_call(world, amount=5)
    repair(monkeypatch)
    retry = world.executor.retry(world.one, "books", first)
    assert record(world, retry).status == "queued"
    run_all(world)
    retried = record(world, retry)
    assert (retried.status, retried.outcome, retried.retry_of, retried.input) == (
        "succeeded",
        "done",
        first,
        {"do": "Rejected", "amount": 5},
    )
    assert (retried.sent_key, record(world, first).retried_as, record(world, first).status) == (first, retry, "failed")
    assert [key for _, key, _ in Ledger.booked] == [first, first], "the foreign system sees one key"


def test_the_key_of_a_retried_call_returns_the_answer_of_the_retry(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.ledger()
    first = make_failed_call(world, key="k")
    repair(monkeypatch, {"n": 42})
    retry = world.executor.retry(world.one, "books", first)
    with pytest.raises(IdempotencyInFlight):
        world.executor.execute(world.one, world.request(input={"do": "Rejected"}, idempotency_key="k"))
    run_all(world)
    same = world.executor.execute(world.one, world.request(input={"do": "Rejected"}, idempotency_key="k"))
    assert (same.status, same.output, same.call_id) == ("recorded", {"n": 42}, retry)
    assert len(Ledger.booked) == 2


def test_a_retry_of_unknown_outcome_blocks_the_key(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.ledger()
    first = make_failed_call(world, key="k", do="TransientError not_done")
    monkeypatch.setattr(Ledger, "call", lambda *_: 1 / 0)
    retry = world.executor.retry(world.one, "books", first)
    run_all(world)
    assert record(world, retry).status == "waiting"
    with pytest.raises(OutcomeUnknown, match=retry):
        world.executor.execute(world.one, world.request(input={"do": "TransientError not_done"}, idempotency_key="k"))
    with pytest.raises(Conflict, match="settle the call first"):
        world.executor.retry(world.one, "books", retry)
    history.settle_call(world.one, "books", retry, done=False, output=None)
    assert world.executor.retry(world.one, "books", retry)


@pytest.mark.parametrize(
    ("action", "do", "may"),
    [
        ("book", "TransientError not_done", True),
        ("book", "TransientError unknown", False),
        ("set", "TransientError unknown", True),
        ("look", "TransientError unknown", True),
        ("look", "lie", True),
        ("book", "lie", False),
        ("book", "", False),
    ],
)
def test_only_calls_that_cannot_happen_twice_are_retried(world: World, action: str, do: str, may: bool) -> None:
    world.ledger()
    try:
        call_id = world.executor.execute(world.one, world.request(action, input={"do": do})).call_id
    except ActionFailed as error:
        call_id = error.call_id
    assert call_id is not None
    if may:
        assert world.executor.retry(world.one, "books", call_id)
    else:
        with pytest.raises(Conflict):
            world.executor.retry(world.one, "books", call_id)
        assert world.queued == []


def test_concurrent_retries_make_one_call(world: World) -> None:
    world.ledger()
    first = make_failed_call(world)

    def ask(_: int) -> bool:
        try:
            return bool(world.executor.retry(world.one, "books", first))
        except Conflict:
            return False

    with ThreadPoolExecutor(8) as threads:
        assert sum(threads.map(ask, range(8))) == 1
    assert len(world.queued) == 1


def test_a_failed_retry_can_be_retried(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.ledger()
    first = make_failed_call(world)
    second = world.executor.retry(world.one, "books", first)
    run_all(world)
    assert record(world, second).status == "failed"
    with pytest.raises(Conflict, match=second):
        world.executor.retry(world.one, "books", first)
    repair(monkeypatch)
    third = world.executor.retry(world.one, "books", second)
    run_all(world)
    assert (record(world, third).status, {key for _, key, _ in Ledger.booked}) == ("succeeded", {first})


def test_a_call_whose_input_was_not_stored_in_full_is_not_retried(world: World) -> None:
    world.ledger()
    redacted = make_failed_call(world, note="tok-4711-secret")
    huge = make_failed_call(world, note="x" * 1_100_000)
    for call_id in (redacted, huge):
        with pytest.raises(Conflict, match="send a new call instead"):
            world.executor.retry(world.one, "books", call_id)


def test_policies_and_tenants_apply_to_retries(world: World) -> None:
    world.ledger()
    world.ledger(world.two)
    first = make_failed_call(world)
    with pytest.raises(NotFound):
        world.executor.retry(world.two, "books", first)
    put_rules(world.one, {"id": "no", "effect": "deny", "reason": "no"})
    with pytest.raises(PolicyDenied):
        world.executor.retry(world.one, "books", first)
    assert world.queued == []


def test_calls_are_found_by_integration_action_outcome_and_time(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.ledger()
    first = make_failed_call(world)
    second = make_failed_call(world, "set", "TransientError unknown")
    at = record(world, second).created_at

    def search(**filters: object) -> set[str]:
        return {row.id for row in history.search_calls(world.one, CallFilter(**filters), PageRequest()).items}  # type: ignore[arg-type]

    assert search() == search(integration="books") == {first, second}
    assert search(integration="other") == set()
    assert search(outcome="unknown") == search(action="set") == {second}
    assert search(after=at + 1) == search(before=0) == set()
    assert second in search(after=at)
    assert history.search_calls(world.two, CallFilter(), PageRequest()).items == []
    with pytest.raises(ApplianceError, match="outcome must be one of done, not_done, unknown"):
        search(outcome="maybe")
