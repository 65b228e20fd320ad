"""Cancelling and retrying by a filter: only what it names, only the own tenant's, each once."""

import pytest

from appliance.core.database import db
from appliance.core.errors import Conflict
from appliance.core.pages import PageRequest
from appliance.core.scope import TenantScope
from appliance.monitor import failures
from appliance.processes.executions import bulk
from appliance.processes.executions.bulk import BulkResult
from appliance.processes.executions.failure_retries import FailureRetries
from appliance.processes.executions.service import ExecutionFilter
from appliance.processes.models import Execution
from tests.processes.world import World, rule

PAUSE = [{"id": "pause", "wait": {"for": "1h"}}]


def act(world: World, filters: ExecutionFilter, action: bulk.Action, scope: TenantScope | None = None) -> BulkResult:
    return bulk.run_bulk(world.flow, scope or world.scope, filters, action)


def test_a_filter_cancels_what_it_names_and_nothing_else(world: World) -> None:
    process, other = world.publish(PAUSE), world.publish(PAUSE)
    red = [world.start(process, label="red") for _ in range(3)]
    others = [world.start(process, label="blue"), world.start(other, label="red")]
    for each in (*red, *others):
        world.wait_for_status(each, "waiting")
    expected = ExecutionFilter(process, label="red")
    assert act(world, expected, "cancel", world.other) == BulkResult()
    assert act(world, expected, "cancel") == BulkResult(matched=3, done=3)
    assert {world.get(each).status for each in red} == {"cancelled"}
    assert {world.get(each).status for each in others} == {"waiting"}
    assert act(world, expected, "cancel") == BulkResult()
    for process_id in (process, other):
        act(world, ExecutionFilter(process_id), "cancel")


def test_a_failed_execution_is_retried_once(world: World) -> None:
    process = world.publish([rule("one", "= input.missing.deep")])
    failed = [world.start(process) for _ in range(3)]
    assert {world.finish(each).status for each in failed} == {"failed"}
    expected = ExecutionFilter(process, until=max(world.get(each).created_at for each in failed) + 1)
    assert act(world, expected, "retry").done == 3
    assert act(world, expected, "retry") == BulkResult()


def test_monitor_and_bulk_retry_what_failed_once_between_them(world: World) -> None:
    process = world.publish([rule("one", "= input.missing.deep")])
    failed = [world.finish(world.start(process)).id for _ in range(4)]
    [group] = failures.list_failures(world.scope, PageRequest(), process_id=process).items
    work = FailureRetries(world.flow)
    own = world.flow.retry_execution(world.scope, failed[0])
    assert act(world, ExecutionFilter(process, until=world.get(failed[1]).created_at + 1), "retry").done == 1
    assert work.find_retryable(world.scope, [*failed, "exe_gone"]) == set(failed[2:])
    again = failures.retry_all(world.scope, group.id, work).retried
    assert set(failed) & set(again) == set(failed[2:])
    with pytest.raises(Conflict, match=own.id):
        work.retry(world.scope, failed[0], "another token")
    assert work.retry(world.scope, failed[2], f"{group.id}/{failed[2]}") == again[failed[2]], "asked for once more"
    assert work.find_retryable(world.other, failed) == set()


def test_more_than_one_batch_is_done_by_repeating_the_request(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk, "MAX_EXECUTIONS", 2)
    process = world.publish(PAUSE)
    for each in [world.start(process) for _ in range(5)]:
        world.wait_for_status(each, "waiting")
    counts = []
    while (result := act(world, ExecutionFilter(process), "cancel")).matched:
        counts.append((result.done, result.next is not None))
    assert counts == [(2, True), (2, True), (1, False)]


def test_refusals_are_counted_and_listed(world: World) -> None:
    process = world.publish([rule("one", "= input.missing.deep")], concurrency={"limit": 1, "behaviour": "reject"})
    failed = world.finish(world.start(process))
    world.flow.pause_process(world.scope, process)
    holder = world.start(process)
    result = act(world, ExecutionFilter(process, status="failed"), "retry")
    assert (result.matched, result.done, result.refused) == (1, 0, 1)
    assert (result.refusals[0].execution_id, result.refusals[0].code) == (failed.id, "concurrency_limited")
    world.flow.cancel_execution(world.scope, holder)


def test_a_retry_refused_by_a_limit_is_repeated_by_the_next_retry_of_all(world: World) -> None:
    process = world.publish([rule("one", "= input.missing.deep")], concurrency={"limit": 1, "behaviour": "reject"})
    failed = [world.finish(world.start(process)).id for _ in range(2)]
    [group] = failures.list_failures(world.scope, PageRequest(), process_id=process).items
    work = FailureRetries(world.flow)
    world.flow.pause_process(world.scope, process)
    holder = world.start(process)
    result = failures.retry_all(world.scope, group.id, work)
    assert (result.retried, result.refused, result.remaining, sorted(result.waiting)) == ({}, {}, 2, sorted(failed))
    world.flow.cancel_execution(world.scope, holder)
    result = failures.retry_all(world.scope, group.id, work)
    assert (len(result.retried), len(result.waiting), result.remaining) == (1, 1, 1)
    assert set(result.retried) | set(result.waiting) == set(failed)
    world.flow.cancel_execution(world.scope, next(iter(result.retried.values())))
    assert failures.retry_all(world.scope, group.id, work).remaining == 0


def test_a_child_is_retried_with_the_execution_that_waited_for_it(world: World) -> None:
    child = world.publish([rule("one", "= input.missing.deep")])
    waiting = world.publish([{"id": "sub", "process": {"use": child, "input": {}}}])
    sending = world.publish([{"id": "sub", "process": {"use": child, "input": {}, "wait": False}}])
    going_on = world.publish([{"id": "sub", "process": {"use": child, "input": {}}, "continue_on_error": ["validation"]}])
    parents = [world.finish(world.start(process)) for process in (waiting, sending, going_on)]
    assert [parent.status for parent in parents] == ["failed", "succeeded", "succeeded"]
    own, *free = (world.finish(result.id) for parent in parents for result in children_of(world, parent.id))
    assert {own.status, *(each.status for each in free)} == {"failed"}
    failed = [own.id, parents[0].id, *(each.id for each in free)]
    work, left = FailureRetries(world.flow), {parents[0].id, *(each.id for each in free)}
    assert work.find_retryable(world.scope, failed) == left, "it is retried with the execution that waited for it"
    [group] = failures.list_failures(world.scope, PageRequest(), process_id=waiting).items
    failures.retry_all(world.scope, group.id, work)
    assert work.find_retryable(world.scope, failed) == left - {parents[0].id}


def state_of(world: World, process: str) -> tuple[str, str | None]:
    [group] = failures.list_failures(world.scope, PageRequest(), process_id=process).items
    return group.state, group.changed_by


def test_a_group_resolves_itself_once_everything_in_it_was_retried_with_success(world: World) -> None:
    process = world.publish([rule("one", "= input.missing.deep")])
    first, second, third = (world.finish(world.start(process)).id for _ in range(3))
    again = world.finish(world.flow.retry_execution(world.scope, first).id)
    assert (again.status, state_of(world, process)) == ("failed", ("open", None))
    world.republish(process, [rule("one", "= 1")])
    for failed, left in ((again.id, "open"), (second, "open"), (third, "resolved")):
        retried = world.finish(world.flow.retry_execution(world.scope, failed, published=True).id)
        assert (retried.status, state_of(world, process)[0]) == ("succeeded", left)
    assert state_of(world, process) == ("resolved", "system")
    world.republish(process, [rule("one", "= input.missing.deep")])
    world.finish(world.start(process))
    assert state_of(world, process)[0] == "open", "it happened once more"


def test_a_group_of_children_is_resolved_with_the_executions_that_waited_for_them(world: World) -> None:
    child = world.publish([rule("one", "= input.missing.deep")])
    parent = world.publish([{"id": "sub", "process": {"use": child, "input": {}}}])
    failed = world.finish(world.start(parent))
    assert (failed.status, state_of(world, child)[0], state_of(world, parent)[0]) == ("failed", "open", "open")
    world.republish(child, [rule("one", "= 1")])
    assert world.finish(world.flow.retry_execution(world.scope, failed.id).id).status == "succeeded"
    assert (state_of(world, child)[0], state_of(world, parent)[0]) == ("resolved", "resolved")


def test_deleted_executions_keep_no_failure_group_open(world: World) -> None:
    process = world.publish([rule("one", "= input.missing.deep")])
    removed, failed = (world.finish(world.start(process)).id for _ in range(2))
    db.write(world.scope.delete(Execution).where(Execution.id == removed).execute)
    world.republish(process, [rule("one", "= 1")])
    world.finish(world.flow.retry_execution(world.scope, failed, published=True).id)
    assert state_of(world, process)[0] == "resolved"


def children_of(world: World, parent: str) -> list[Execution]:
    return list(world.scope.select(Execution).where(Execution.parent == parent))
