"""Two changes of processes, triggers and the executions that use them end as if one had followed the other."""

import itertools
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from appliance.core.database import db
from appliance.processes.definitions import versions
from appliance.processes.definitions.versions import Draft, PublishRequest
from appliance.processes.executions import service as executions
from appliance.processes.executions.starting import StartRequest
from appliance.processes.rehearsal import samples
from appliance.processes.rehearsal.samples import Sample
from appliance.processes.triggers import schedule, ticker
from appliance.processes.triggers.firings import Event, TriggerKey
from appliance.sandbox import Pool, Settings
from tests.processes.world import GRANTS, World, make_world, open_database
from tests.store.cluster import Cluster
from tests.store.interleaving import Pair, check_pair, without_exclusive_writes

numbers = itertools.count(1)


def step(what: str = "= input.what") -> dict[str, Any]:
    return {"id": "mark", "datapool": {"collection": "marks", "create": {"values": {"what": what}}}}


HOURLY = {"id": "hourly", "schedule": {"cron": "0 * * * *"}}


def hook() -> dict[str, Any]:
    """A trigger with a path of its own."""
    return {"id": "hook", "webhook": {"path": f"p{next(numbers)}", "verify": {"kind": "none"}}}


@pytest.fixture(scope="module")
def world(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A flow that has not been started, so that nothing runs but what a test runs."""
    with open_database(tmp_path_factory.mktemp("executions"), cluster.emptied()):
        pool = Pool(Settings(processes=1, slots=4))
        pool.start()
        try:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(samples, "MOST", 1)
                yield make_world(tmp_path_factory.mktemp("flow"), pool)
        finally:
            pool.stop()


def new_draft(of: World, what: str = "a") -> str:
    process = f"i{next(numbers)}"
    of.save(process, [step(what)])
    return process


def save(of: World, process: str, what: str, **options: Any) -> Any:
    definition = {"id": process, "grants": GRANTS, "steps": [step(what)]}
    return versions.save_draft(of.scope, process, Draft(definition, {}), **options)


def publish(of: World, process: str, **options: Any) -> Any:
    """Publish what was read now, without the checks, which have no part in this."""
    digest = versions.get_process(of.scope, process).draft_digest
    return db.write(lambda: versions.publish_checked(of.scope, process, digest, PublishRequest(**options)))


def read(of: World, process: str) -> Any:
    rows = db.rows("SELECT published_version FROM process WHERE tenant_id = 'acme' AND id = ?", (process,))
    numbers_of = db.rows("SELECT version FROM process_version WHERE tenant_id = 'acme' AND process_id = ? ORDER BY 1", (process,))
    return rows, numbers_of, read_executions(process)


def read_executions(process: str) -> Any:
    sql = "SELECT status, wait_reason, retry_of IS NULL FROM execution WHERE process_id = ? ORDER BY 1, 2, 3"
    return db.rows(sql, (process,))


def start(of: World, process: str, **request: Any) -> str:
    return str(of.flow.start_execution(of.scope, process, StartRequest({"what": "x"}, **request)).id)


def two_drafts(of: World) -> Pair:
    process = f"i{next(numbers)}"
    return Pair.of(
        (partial(save, of, process, what, create_only=True) for what in "ab"), partial(read, of, process)
    )


def two_changes_of_a_draft(of: World) -> Pair:
    process = new_draft(of)
    digest = versions.get_process(of.scope, process).draft_digest
    return Pair.of(
        (partial(save, of, process, what, if_match=digest) for what in "bc"),
        lambda: versions.get_process(of.scope, process).draft_digest != digest,
    )


def a_draft_is_changed_and_published(of: World) -> Pair:
    process = new_draft(of)
    return Pair(
        lambda: save(of, process, "b"), lambda: publish(of, process), partial(read, of, process), may_refuse=("Conflict",)
    )


def a_draft_is_published_twice(of: World) -> Pair:
    process = new_draft(of)
    return Pair.of((partial(publish, of, process),) * 2, partial(read, of, process))


def two_versions_are_published(of: World) -> Pair:
    process = of.publish([step("a")])
    save(of, process, "b")
    return Pair(
        lambda: publish(of, process, if_current=1), lambda: versions.roll_back(of.scope, process, 1), partial(read, of, process)
    )


def a_process_is_published_and_deleted(of: World) -> Pair:
    process = new_draft(of)
    return Pair(
        lambda: publish(of, process), lambda: of.flow.delete_process(of.scope, process), partial(read, of, process),
        may_refuse=("NotFound",),
    )  # fmt: skip


def two_processes_of_one_path(of: World) -> Pair:
    """A path of webhooks belongs to one process."""
    trigger = hook()
    processes = [new_draft(of) for _ in range(2)]
    for process in processes:
        of.save(process, [step("a")], triggers=[trigger])
    return Pair.of(
        (partial(publish, of, process) for process in processes), lambda: sorted(repr(read(of, process)) for process in processes)
    )


def an_execution_starts_and_the_process_is_deleted(of: World) -> Pair:
    process = of.publish([step()])
    return Pair(
        lambda: start(of, process), lambda: of.flow.delete_process(of.scope, process), partial(read, of, process)
    )


def an_execution_starts_and_the_process_is_deleted_with_all(of: World) -> Pair:
    process = of.publish([step()])
    return Pair(
        lambda: start(of, process), lambda: of.flow.delete_process(of.scope, process, force=True), partial(read, of, process)
    )


def an_execution_starts_and_the_process_is_paused(of: World) -> Pair:
    process = of.publish([step()])
    return Pair(lambda: start(of, process), lambda: of.flow.pause_process(of.scope, process), partial(read_executions, process))


def an_execution_starts_and_the_process_is_resumed(of: World) -> Pair:
    process = of.publish([step()])
    of.flow.pause_process(of.scope, process)
    return Pair(lambda: start(of, process), lambda: of.flow.resume_process(of.scope, process), partial(read_executions, process))


def an_execution_is_claimed_and_the_process_paused(of: World) -> Pair:
    process = of.publish([step()])
    execution = start(of, process)
    return Pair(
        lambda: of.runner.claim("acme", execution) and None,
        lambda: of.flow.pause_process(of.scope, process),
        partial(read_executions, process),
    )


def an_execution_runs_and_the_process_is_deleted(of: World) -> Pair:
    """It ends, or is gone; nothing of it is left."""
    process = of.publish([step()])
    claim = of.runner.claim("acme", start(of, process))
    assert claim is not None
    left = partial(db.rows, "SELECT 1 FROM step_run WHERE execution_id = ?", (claim.execution_id,))
    return Pair(
        lambda: of.runner.run(claim),
        lambda: of.flow.delete_process(of.scope, process, force=True),
        lambda: (read(of, process), left()),
    )


def failed(of: World) -> tuple[str, str]:
    process = of.publish([step()])
    execution = start(of, process)
    change = "UPDATE execution SET status = 'failed', finished_at = 1 WHERE id = ?"
    db.write(lambda: db.execute(change, (execution,)))
    return process, execution


def a_failed_execution_is_retried_twice(of: World) -> Pair:
    process, execution = failed(of)
    return Pair.of(
        (partial(of.flow.retry_once, of.scope, execution, token) for token in (f"a{execution}", f"b{execution}")),
        partial(read_executions, process),
    )


def a_failed_execution_is_retried_and_its_time_is_over(of: World) -> Pair:
    process, execution = failed(of)
    return Pair(
        lambda: of.flow.retry_execution(of.scope, execution), lambda: executions.purge(2), partial(read_executions, process)
    )


def a_failed_execution_is_retried_and_the_process_deleted(of: World) -> Pair:
    process, execution = failed(of)
    return Pair(
        lambda: of.flow.retry_execution(of.scope, execution),
        lambda: of.flow.delete_process(of.scope, process, force=True),
        partial(read, of, process),
    )


def an_execution_is_cancelled_and_claimed(of: World) -> Pair:
    process = of.publish([step()])
    execution = start(of, process)
    claims: list[Any] = []
    return Pair(
        lambda: of.flow.cancel_execution(of.scope, execution),
        lambda: claims.append(of.runner.claim("acme", execution)),
        lambda: (read_executions(process), [each is None for each in claims]),
    )


def an_execution_starts_a_child_and_is_cancelled(of: World) -> Pair:
    """No child goes on without its parent."""
    child = of.publish([step()])
    parent = of.publish([{"id": "sub", "process": {"use": child, "input": {"what": "x"}}}])
    claim = of.runner.claim("acme", start(of, parent))
    assert claim is not None

    def read_both() -> Any:
        assert all(status == "cancelled" for status, *_ in (*read_executions(parent), *read_executions(child)))

    return Pair(
        lambda: of.runner.run(claim), lambda: of.flow.cancel_execution(of.scope, claim.execution_id), read_both
    )


def a_schedule_is_due_twice(of: World) -> Pair:
    process = of.publish([step("a")], triggers=[HOURLY])
    change = "UPDATE trigger_state SET next_due = 1000 WHERE process_id = ?"
    db.write(lambda: db.execute(change, (process,)))
    [due] = [each for each in ticker.list_due_triggers(2_000) if each.mark.process_id == process]
    fire = partial(schedule.fire_schedule, of.flow.triggers.firings, due)
    return Pair(fire, fire, partial(db.rows, "SELECT count(*), min(status) FROM firing WHERE process_id = ?", (process,)))


def a_schedule_is_due_and_changed(of: World) -> Pair:
    process = of.publish([step("a")], triggers=[HOURLY])
    of.save(process, [step("a")], triggers=[{"id": "hourly", "schedule": {"cron": "30 * * * *"}}])
    change = "UPDATE trigger_state SET next_due = 1000 WHERE process_id = ?"
    db.write(lambda: db.execute(change, (process,)))
    [due] = [each for each in ticker.list_due_triggers(2_000) if each.mark.process_id == process]
    return Pair(
        lambda: schedule.fire_schedule(of.flow.triggers.firings, due),
        lambda: publish(of, process),
        partial(db.rows, "SELECT next_due > 1000 FROM trigger_state WHERE process_id = ?", (process,)),
    )


def an_event_comes_twice(of: World) -> Pair:
    process = of.publish([step("a")], triggers=[hook()])
    mark = TriggerKey(process, "hook", "webhook")
    fire = partial(of.flow.triggers.firings.fire, of.scope, mark, Event("delivery-1", {}))
    return Pair(fire, fire, partial(read_executions, process))


def an_event_comes_and_the_process_is_deleted(of: World) -> Pair:
    process = of.publish([step("a")], triggers=[hook()])
    mark = TriggerKey(process, "hook", "webhook")
    return Pair(
        lambda: of.flow.triggers.firings.fire(of.scope, mark, Event("delivery-1", {})),
        lambda: of.flow.delete_process(of.scope, process, force=True),
        partial(read, of, process),
    )


def the_last_two_samples(of: World) -> Pair:
    """A process has only one in these tests."""
    process = new_draft(of)
    return Pair.of(
        (partial(samples.pin_sample, of.scope, process, name, Sample({})) for name in ("x", "y")),
        partial(db.rows, "SELECT count(*) FROM process_sample WHERE process_id = ?", (process,)),
    )


def a_sample_is_pinned_and_the_process_deleted(of: World) -> Pair:
    process = new_draft(of)
    return Pair(
        lambda: samples.pin_sample(of.scope, process, "x", Sample({})),
        lambda: of.flow.delete_process(of.scope, process),
        partial(db.rows, "SELECT count(*) FROM process_sample WHERE process_id = ?", (process,)),
    )


PAIRS: dict[str, Callable[[World], Pair]] = {
    each.__name__: each
    for each in (
        two_drafts, two_changes_of_a_draft, a_draft_is_changed_and_published, a_draft_is_published_twice,
        two_versions_are_published, a_process_is_published_and_deleted, two_processes_of_one_path,
        an_execution_starts_and_the_process_is_deleted, an_execution_starts_and_the_process_is_deleted_with_all,
        an_execution_starts_and_the_process_is_paused, an_execution_starts_and_the_process_is_resumed,
        an_execution_is_claimed_and_the_process_paused, an_execution_runs_and_the_process_is_deleted,
        a_failed_execution_is_retried_twice, a_failed_execution_is_retried_and_its_time_is_over,
        a_failed_execution_is_retried_and_the_process_deleted, an_execution_is_cancelled_and_claimed,
        an_execution_starts_a_child_and_is_cancelled, a_schedule_is_due_twice,
        a_schedule_is_due_and_changed, an_event_comes_twice, an_event_comes_and_the_process_is_deleted, the_last_two_samples,
        a_sample_is_pinned_and_the_process_deleted,
    )
}  # fmt: skip


@pytest.mark.parametrize("pair", PAIRS)
def test_both_orders(world: World, pair: str, request: pytest.FixtureRequest) -> None:
    assert check_pair(lambda: PAIRS[pair](world), reads=request.config.option.all) >= 4


def test_without_exclusive_writes_an_execution_is_retried_twice(world: World) -> None:
    with without_exclusive_writes(), pytest.raises(AssertionError, match="was halted before"):
        check_pair(lambda: a_failed_execution_is_retried_twice(world))
