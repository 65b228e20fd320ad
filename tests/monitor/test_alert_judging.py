"""How an alert turns, decided without any effect."""

import pytest

from appliance.monitor.alerts.transitions import AlertState, Timing, next_transition


@pytest.fixture
def database() -> None:
    """None is needed."""


OK, PENDING = AlertState("ok", 0), AlertState("pending", 1000)
FIRING = AlertState("firing", 1000, is_notified=True)
UNTOLD = AlertState("firing", 1000, is_notified=False, next_notice_at=9000)


def test_it_fires_once_the_condition_has_held_long_enough() -> None:
    timing = Timing(for_ms=5000, repeat_ms=0)
    begins = next_transition(OK, True, 1000, timing)
    assert (begins.state, begins.event) == (PENDING, None)
    assert next_transition(PENDING, True, 5999, timing).event is None
    fires = next_transition(PENDING, True, 6000, timing)
    assert (fires.state.state, fires.state.is_notified, fires.event, fires.silenced) == ("firing", True, "firing", False)
    assert next_transition(PENDING, False, 5000, timing).state == AlertState("ok", 5000)
    assert next_transition(OK, True, 1000, Timing(0, 0)).event == "firing"


def test_what_stays_as_it_is_takes_no_turn() -> None:
    for standing, holds in ((OK, False), (FIRING, True)):
        verdict = next_transition(standing, holds, 50_000, Timing(0, 0))
        assert (verdict.state, verdict.event) == (standing, None)


@pytest.mark.parametrize(("now", "turn", "next_notice"), [(10_999, None, 11_000), (11_000, "repeated", 21_000)])
def test_who_was_told_is_reminded(now: int, turn: str | None, next_notice: int) -> None:
    verdict = next_transition(AlertState("firing", 1000, True, 11_000), True, now, Timing(0, 10_000))
    assert (verdict.event, verdict.state.next_notice_at) == (turn, next_notice)


def test_it_is_resolved_once_and_told_whoever_heard_that_it_fires() -> None:
    resolved = next_transition(FIRING, False, 7000, Timing(0, 0))
    assert (resolved.state, resolved.event, resolved.silenced) == (AlertState("ok", 7000), "resolved", False)
    assert next_transition(resolved.state, False, 8000, Timing(0, 0)).event is None
    assert next_transition(UNTOLD, False, 7000, Timing(0, 0)).silenced


def test_a_silence_delays_what_fires_and_is_kept_to_by_the_end() -> None:
    timing = Timing(0, 0, silenced_until=9000)
    quiet = next_transition(OK, True, 1000, timing)
    assert (quiet.event, quiet.silenced, quiet.state) == ("firing", True, UNTOLD)
    assert next_transition(UNTOLD, True, 8999, timing).event is None
    told = next_transition(UNTOLD, True, 9000, timing)
    assert (told.event, told.silenced, told.state.is_notified) == ("firing", False, True)
    assert next_transition(FIRING, False, 8000, timing).silenced
    longer = next_transition(UNTOLD, True, 9000, Timing(0, 0, silenced_until=20_000))
    assert (longer.event, longer.state.next_notice_at) == (None, 20_000)
