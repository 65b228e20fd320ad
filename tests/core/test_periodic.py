"""Periodic work: triggered early, stopped, and waited for no longer than the limit."""

import threading

import pytest

from appliance.core.errors import StorageFull
from appliance.core.periodic import Periodic


def test_a_stop_waits_for_the_call_in_progress_and_begins_no_other() -> None:
    started, go_on, calls = threading.Event(), threading.Event(), []

    def work() -> None:
        started.set()
        go_on.wait(30)
        calls.append(1)

    own = Periodic("slow work", 3600, work)
    own.start()
    own.hasten()
    assert started.wait(30)
    own.signal()
    own.hasten()
    go_on.set()
    assert own.stop(30)
    assert calls == [1]


def test_a_stop_gives_up_waiting_after_its_time(caplog: pytest.LogCaptureFixture) -> None:
    started, go_on = threading.Event(), threading.Event()

    def work() -> None:
        started.set()
        go_on.wait(60)

    own = Periodic("endless work", 3600, work)
    own.start()
    own.hasten()
    assert started.wait(30)
    assert not own.stop(0.01)
    assert "endless work is still running" in caplog.text
    go_on.set()
    assert own.stop(30)


def test_work_that_fails_is_named_and_a_full_disk_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    errors, done = [StorageFull("the disk of the appliance is full"), RuntimeError("odd")], threading.Event()

    def work() -> None:
        if not errors:
            done.set()
            return
        raise errors.pop(0)

    own = Periodic("slow-work", 0.001, work)
    own.start()
    assert done.wait(30)
    assert own.stop(30)
    assert [bool(record.exc_info) for record in caplog.records] == [False, True]
    assert [record.getMessage().split(";")[0] for record in caplog.records] == ["slow-work failed"] * 2
    assert "is full" in caplog.records[0].getMessage()
