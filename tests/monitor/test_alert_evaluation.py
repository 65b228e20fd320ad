"""The state transitions of an alert, without side effects."""

import pytest

from appliance.monitor.alerts.transitions import AlertState, Timing, next_transition


@pytest.fixture
def database() -> None:
    """None is needed."""


OK, PENDING = AlertState("ok", 0), AlertState("pending", 1000)
FIRING = AlertState("firing", 1000, is_notified=True)
UNNOTIFIED = AlertState("firing", 1000, is_notified=False, next_notice_at=9000)


def test_an_alert_fires_once_its_condition_held_long_enough() -> None:
    timing = Timing(for_ms=5000, repeat_ms=0)
    pending = next_transition(OK, True, 1000, timing)
    assert (pending.state, pending.event) == (PENDING, None)
    assert next_transition(PENDING, True, 5999, timing).event is None
    fires = next_transition(PENDING, True, 6000, timing)
    assert (fires.state.state, fires.state.is_notified, fires.event, fires.silenced) == ("firing", True, "firing", False)
    assert next_transition(PENDING, False, 5000, timing).state == AlertState("ok", 5000)
    assert next_transition(OK, True, 1000, Timing(0, 0)).event == "firing"


def test_an_unchanged_state_causes_no_event() -> None:
    for state, holds in ((OK, False), (FIRING, True)):
        transition = next_transition(state, holds, 50_000, Timing(0, 0))
        assert (transition.state, transition.event) == (state, None)


@pytest.mark.parametrize(("now", "turn", "next_notice"), [(10_999, None, 11_000), (11_000, "repeated", 21_000)])
def test_a_firing_alert_is_repeated(now: int, turn: str | None, next_notice: int) -> None:
    transition = next_transition(AlertState("firing", 1000, True, 11_000), True, now, Timing(0, 10_000))
    assert (transition.event, transition.state.next_notice_at) == (turn, next_notice)


def test_a_notified_alert_is_resolved_once_with_a_notification() -> None:
    resolved = next_transition(FIRING, False, 7000, Timing(0, 0))
    assert (resolved.state, resolved.event, resolved.silenced) == (AlertState("ok", 7000), "resolved", False)
    assert next_transition(resolved.state, False, 8000, Timing(0, 0)).event is None
    assert next_transition(UNNOTIFIED, False, 7000, Timing(0, 0)).silenced


def test_a_silence_delays_the_notification_until_it_ends() -> None:
    timing = Timing(0, 0, silenced_until=9000)
    silenced = next_transition(OK, True, 1000, timing)
    assert (silenced.event, silenced.silenced, silenced.state) == ("firing", True, UNNOTIFIED)
    assert next_transition(UNNOTIFIED, True, 8999, timing).event is None
    notified = next_transition(UNNOTIFIED, True, 9000, timing)
    assert (notified.event, notified.silenced, notified.state.is_notified) == ("firing", False, True)
    assert next_transition(FIRING, False, 8000, timing).silenced
    longer = next_transition(UNNOTIFIED, True, 9000, Timing(0, 0, silenced_until=20_000))
    assert (longer.event, longer.state.next_notice_at) == (None, 20_000)
