"""Failures: one group per kind of failure, with a state people set and a way to retry them all."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pytest

from appliance.core import clock
from appliance.core.database import db
from appliance.core.errors import Draining, ExecutionFinished, NotFound
from appliance.core.pages import PageRequest
from appliance.core.scope import TenantScope
from appliance.monitor import failures, retention
from appliance.monitor.failures import Failure, fingerprint

SAMPLE = Failure("intake", "exe_1", "push", "connector", "connector_failed", "order 10248: no answer after 3.5 s")


def fail(scope: TenantScope, failure: Failure = SAMPLE) -> str:
    return db.write(lambda: failures.record_failure(scope, failure))


@dataclass(frozen=True)
class RetryActions:
    """Retries failures by `retry_with(scope, id, token)`, except those listed in `done`."""

    retry_with: Callable[[TenantScope, str, str], str] = lambda scope, execution_id, token: f"{execution_id}_again"
    done: Sequence[str] = ()

    def find_retryable(self, scope: TenantScope, failed_ids: Sequence[str]) -> list[str]:
        return [each for each in failed_ids if each not in self.done]

    def retry(self, scope: TenantScope, failed_id: str, token: str) -> str:
        return self.retry_with(scope, failed_id, token)


def retry_all(scope: TenantScope, group: str, retried_ids: Sequence[str] = ()) -> list[str]:
    return sorted(failures.retry_all(scope, group, RetryActions(done=retried_ids)).retried)


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ("order 10248 refused", "order 7 refused"),
        ("no customer 'ALFKI' here", "no customer 'O`Neill' here"),
        ('field "a" is missing', 'Field  "b" is missing'),
        ("execution exe_0Qb7Fq2mR0123456789ab lost", "execution exe_0Qb7Fq2mR9876543210zz lost"),
        ("blob 5d41402abc4b2a76 gone", "blob 7d793037a0760186 gone"),
        ("at 2026-01-01T10:00:00.123Z", "at 2027-11-21T08:30:59.000Z"),
    ],
)
def test_failures_that_differ_only_in_values_are_one_group(one: str, two: str) -> None:
    assert fingerprint(replace(SAMPLE, message=one)) == fingerprint(replace(SAMPLE, message=two))


@pytest.mark.parametrize(
    "change",
    [
        {"message": "can't write the order to the customer's file"},
        {"message": "can't read the order from the customer's file"},
        {"step": "check"},
        {"failure_class": "timeout"},
        {"code": "timed_out"},
        {"process_id": "other"},
    ],
)
def test_failures_that_differ_in_kind_are_separate_groups(change: dict[str, str]) -> None:
    original = replace(SAMPLE, message="can't write the order from the customer's file")
    assert fingerprint(replace(original, **change)) != fingerprint(original)


def test_occurrences_are_counted_in_one_group(acme: TenantScope, other: TenantScope) -> None:
    group = fail(acme)
    assert fail(acme, replace(SAMPLE, execution_id="exe_2", message="order 7: no answer after 1 s")) == group
    fail(other)
    (row,) = failures.list_failures(acme, PageRequest()).items
    assert (row.count, row.state, row.sample_execution_id) == (2, "open", "exe_2")
    assert row.message == "order 7: no answer after 1 s"
    assert row.first_seen <= row.last_seen


def test_the_same_execution_counts_once(acme: TenantScope) -> None:
    assert fail(acme) == fail(acme)
    assert failures.get_failure(acme, fail(acme)).count == 1


def test_a_resolved_failure_opens_again_and_an_acknowledged_one_stays(acme: TenantScope) -> None:
    group = fail(acme)
    failures.set_state(acme, group, "acknowledged")
    fail(acme, replace(SAMPLE, execution_id="exe_2"))
    assert failures.get_failure(acme, group).state == "acknowledged"
    assert failures.set_state(acme, group, "resolved").changed_by == "user:usr_1"
    fail(acme, replace(SAMPLE, execution_id="exe_3"))
    assert failures.get_failure(acme, group).state == "open"


def test_another_tenants_failure_is_not_found(acme: TenantScope, other: TenantScope) -> None:
    group = fail(acme)
    with pytest.raises(NotFound):
        failures.get_failure(other, group)
    with pytest.raises(NotFound):
        failures.set_state(other, group, "resolved")
    with pytest.raises(NotFound):
        failures.retry_all(other, group, RetryActions())
    assert failures.get_failure(acme, group).state == "open"


def test_failures_are_listed_by_state_and_process(acme: TenantScope) -> None:
    group = fail(acme)
    fail(acme, replace(SAMPLE, process_id="billing"))
    failures.set_state(acme, group, "resolved")
    resolved = failures.list_failures(acme, PageRequest(), state="resolved").items
    assert [row.process_id for row in resolved] == ["intake"]
    assert len(failures.list_failures(acme, PageRequest(), process_id="billing").items) == 1


def test_retry_all_retries_each_execution_once_and_reports_refusals(acme: TenantScope) -> None:
    group = fail(acme)
    fail(acme, replace(SAMPLE, execution_id="exe_2"))
    fail(acme, replace(SAMPLE, execution_id="exe_3"))
    tokens: list[str] = []

    def retry(scope: TenantScope, execution_id: str, token: str) -> str:
        assert scope == acme
        tokens.append(token)
        if execution_id == "exe_2":
            raise ExecutionFinished("it was retried already")
        return f"{execution_id}_again"

    result = failures.retry_all(acme, group, RetryActions(retry))
    assert sorted(tokens) == [f"{group}/exe_1", f"{group}/exe_2", f"{group}/exe_3"]
    assert result.retried == {"exe_1": "exe_1_again", "exe_3": "exe_3_again"}
    assert result.refused == {"exe_2": "it was retried already"}
    assert failures.retry_all(acme, group, RetryActions(retry)) == failures.BulkRetryResult({}, {}, 0)


def test_an_interrupted_retry_uses_the_same_tokens_again(acme: TenantScope) -> None:
    group = fail(acme)
    fail(acme, replace(SAMPLE, execution_id="exe_2"))
    retries: dict[str, str] = {}

    def retry(scope: TenantScope, execution_id: str, token: str) -> str:
        new = retries.setdefault(token, f"{execution_id}_again")
        if execution_id == "exe_2" and len(retries) == 2 and "cut" not in retries:
            retries["cut"] = "yes"
            raise KeyboardInterrupt
        return new

    with pytest.raises(KeyboardInterrupt):
        failures.retry_all(acme, group, RetryActions(retry))
    assert failures.retry_all(acme, group, RetryActions(retry)).retried == {"exe_1": "exe_1_again", "exe_2": "exe_2_again"}


def test_executions_already_retried_or_deleted_are_skipped(acme: TenantScope) -> None:
    (group,) = {fail(acme, replace(SAMPLE, execution_id=f"exe_{number}")) for number in range(4)}
    result = failures.retry_all(acme, group, RetryActions(done=["exe_0", "exe_2"]))
    assert (sorted(result.retried), result.refused, result.remaining) == (["exe_1", "exe_3"], {}, 0)


def test_skipped_executions_do_not_count_against_the_batch_size(acme: TenantScope, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failures, "BATCH_SIZE", 3)
    (group,) = {fail(acme, replace(SAMPLE, execution_id=f"exe_{number}")) for number in range(8)}
    assert retry_all(acme, group, retried_ids=[f"exe_{number}" for number in range(7)]) == ["exe_7"]
    assert retry_all(acme, group) == []


def test_a_draining_appliance_leaves_the_rest_for_later(acme: TenantScope) -> None:
    group = fail(acme)

    def refuse(scope: TenantScope, execution_id: str, token: str) -> str:
        raise Draining("it shuts down")

    with pytest.raises(Draining):
        failures.retry_all(acme, group, RetryActions(refuse))
    assert retry_all(acme, group) == ["exe_1"]


def test_failures_before_a_resolution_are_not_retried(acme: TenantScope, monkeypatch: pytest.MonkeyPatch) -> None:
    now = clock.now_ms()
    monkeypatch.setattr(clock, "now_ms", lambda: now)  # all in one and the same millisecond
    group = fail(acme)
    fail(acme, replace(SAMPLE, execution_id="exe_2"))
    failures.set_state(acme, group, "resolved")
    assert failures.retry_all(acme, group, RetryActions()) == failures.BulkRetryResult({}, {}, 0)
    now -= 1000  # the clock is set back
    fail(acme, replace(SAMPLE, execution_id="exe_3"))
    failures.set_state(acme, group, "resolved")
    fail(acme, replace(SAMPLE, execution_id="exe_4"))
    failures.set_state(acme, group, "acknowledged")
    assert retry_all(acme, group) == ["exe_4"]


def test_a_reopened_group_retries_the_failures_of_its_undone_resolution(acme: TenantScope) -> None:
    group = fail(acme)
    failures.set_state(acme, group, "resolved")
    fail(acme, replace(SAMPLE, execution_id="exe_2"))
    failures.set_state(acme, group, "resolved")
    failures.set_state(acme, group, "resolved")
    failures.set_state(acme, group, "open")
    failures.set_state(acme, group, "open")
    assert retry_all(acme, group) == ["exe_2"], "the first resolution stands"


def test_many_executions_are_retried_in_batches(acme: TenantScope) -> None:
    (group,) = {fail(acme, replace(SAMPLE, execution_id=f"exe_{number}")) for number in range(250)}
    first = failures.retry_all(acme, group, RetryActions())
    assert (len(first.retried), first.remaining) == (200, 50)
    second = failures.retry_all(acme, group, RetryActions())
    assert (len(second.retried), second.remaining) == (50, 0)


def test_retention_deletes_groups_not_seen_since(acme: TenantScope) -> None:
    group = fail(acme)
    last_seen = failures.get_failure(acme, group).last_seen
    assert failures.purge(last_seen) == 0
    assert failures.purge(last_seen + 1) == 1
    assert db.rows("SELECT COUNT(*) FROM failure_occurrence") == [(0,)]


def test_retention_deletes_old_occurrences_of_an_active_group(
    acme: TenantScope, other: TenantScope, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "CHUNK", 2)
    now = clock.now_ms()
    for minute in range(7):
        monkeypatch.setattr(clock, "now_ms", lambda at=now + minute: at)
        group = fail(acme, replace(SAMPLE, execution_id=f"exe_{minute}"))
        fail(other, replace(SAMPLE, execution_id=f"exe_{minute}"))
    assert failures.purge(now + 5) == 0
    remaining = [("acme", "exe_5"), ("acme", "exe_6"), ("other", "exe_5"), ("other", "exe_6")]
    assert db.rows("SELECT tenant_id, execution_id FROM failure_occurrence ORDER BY 1, 2") == remaining
    assert failures.get_failure(acme, group).count == 7
    assert retry_all(acme, group) == ["exe_5", "exe_6"]
