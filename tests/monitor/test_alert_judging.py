"""How an alert turns, decided without any effect."""

import pytest

from appliance.monitor.alerts.judging import Standing, Timing, judge


@pytest.fixture
def database() -> None:
    """None is needed."""


OK, PENDING = Standing("ok", 0), Standing("pending", 1000)
FIRING = Standing("firing", 1000, told=True)
UNTOLD = Standing("firing", 1000, told=False, next_notice_at=9000)


def test_it_fires_once_the_condition_has_held_long_enough() -> None:
    timing = Timing(for_ms=5000, repeat_ms=0)
    begins = judge(OK, True, 1000, timing)
    assert (begins.standing, begins.turn) == (PENDING, None)
    assert judge(PENDING, True, 5999, timing).turn is None
    fires = judge(PENDING, True, 6000, timing)
    assert (fires.standing.state, fires.standing.told, fires.turn, fires.silenced) == ("firing", True, "firing", False)
    assert judge(PENDING, False, 5000, timing).standing == Standing("ok", 5000)
    assert judge(OK, True, 1000, Timing(0, 0)).turn == "firing"


def test_what_stays_as_it_is_takes_no_turn() -> None:
    for standing, holds in ((OK, False), (FIRING, True)):
        verdict = judge(standing, holds, 50_000, Timing(0, 0))
        assert (verdict.standing, verdict.turn) == (standing, None)


@pytest.mark.parametrize(("now", "turn", "next_notice"), [(10_999, None, 11_000), (11_000, "repeated", 21_000)])
def test_who_was_told_is_reminded(now: int, turn: str | None, next_notice: int) -> None:
    verdict = judge(Standing("firing", 1000, True, 11_000), True, now, Timing(0, 10_000))
    assert (verdict.turn, verdict.standing.next_notice_at) == (turn, next_notice)


def test_it_is_resolved_once_and_told_whoever_heard_that_it_fires() -> None:
    resolved = judge(FIRING, False, 7000, Timing(0, 0))
    assert (resolved.standing, resolved.turn, resolved.silenced) == (Standing("ok", 7000), "resolved", False)
    assert judge(resolved.standing, False, 8000, Timing(0, 0)).turn is None
    assert judge(UNTOLD, False, 7000, Timing(0, 0)).silenced


def test_a_silence_delays_what_fires_and_is_kept_to_by_the_end() -> None:
    timing = Timing(0, 0, silenced_until=9000)
    quiet = judge(OK, True, 1000, timing)
    assert (quiet.turn, quiet.silenced, quiet.standing) == ("firing", True, UNTOLD)
    assert judge(UNTOLD, True, 8999, timing).turn is None
    told = judge(UNTOLD, True, 9000, timing)
    assert (told.turn, told.silenced, told.standing.told) == ("firing", False, True)
    assert judge(FIRING, False, 8000, timing).silenced
    longer = judge(UNTOLD, True, 9000, Timing(0, 0, silenced_until=20_000))
    assert (longer.turn, longer.standing.next_notice_at) == (None, 20_000)
