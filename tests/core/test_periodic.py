"""Work that is due again and again: hastened, told to stop, and not waited for longer than it is given."""

import threading

import pytest

from appliance.core.periodic import Periodic


def test_a_stop_waits_for_the_call_in_progress_and_begins_no_other() -> None:
    begun, go_on, calls = threading.Event(), threading.Event(), []

    def work() -> None:
        begun.set()
        go_on.wait(30)
        calls.append(1)

    own = Periodic("slow work", 3600, work)
    own.start()
    own.hasten()
    assert begun.wait(30)
    own.signal()
    own.hasten()
    go_on.set()
    assert own.stop(30)
    assert calls == [1]


def test_a_stop_gives_up_waiting_after_its_time(caplog: pytest.LogCaptureFixture) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        go_on.wait(60)

    own = Periodic("endless work", 3600, work)
    own.start()
    own.hasten()
    assert begun.wait(30)
    assert not own.stop(0.01)
    assert "endless work is still at work" in caplog.text
    go_on.set()
    assert own.stop(30)
