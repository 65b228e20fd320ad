"""When certificates are renewed and failed orders retried: with growing pauses, and within the daily limit."""

from itertools import pairwise

from appliance.webapps.certificates.schedule import (
    DAY,
    HOUR,
    LONGEST_PAUSE,
    MOST_TRIES,
    earliest_attempt_time,
    next_attempt_time,
    renewal_time,
)

NOW = 1_800_000_000_000
HOSTS = [f"shop{number}.example.com" for number in range(200)]


def pause(host: str, failures: int, retry_after: int = 0) -> int:
    return next_attempt_time(host, failures, [], NOW, retry_after) - NOW


def test_pauses_grow_up_to_half_a_day_and_are_spread() -> None:
    for host in HOSTS[:20]:
        pauses = [pause(host, failures) for failures in range(1, 6)]
        assert all(before < after for before, after in pairwise(pauses))
        for least, actual in zip((10 * 60_000, HOUR, 3 * HOUR, 6 * HOUR, 12 * HOUR), pauses, strict=True):
            assert least <= actual <= least * 5 // 4
        assert [pause(host, failures) for failures in (6, 50, 10_000)] == [pauses[-1]] * 3
        assert pause(host, 0) == pauses[0]
    assert len({pause(host, 1) for host in HOSTS}) > len(HOSTS) // 2


def test_retry_after_is_respected_within_bounds() -> None:
    assert pause(HOSTS[0], 1, 2 * HOUR) == 2 * HOUR
    assert pause(HOSTS[0], 5, HOUR) == pause(HOSTS[0], 5)
    assert pause(HOSTS[0], 1, 400 * DAY) == LONGEST_PAUSE


def test_no_host_is_tried_more_than_five_times_a_day() -> None:
    tries = [NOW - DAY + number * HOUR for number in range(1, MOST_TRIES + 1)]
    assert earliest_attempt_time(tries[:-1]) == 0
    assert earliest_attempt_time(tries) == earliest_attempt_time(tries[::-1]) == tries[0] + DAY
    assert next_attempt_time(HOSTS[0], 1, tries, NOW) == tries[0] + DAY
    assert next_attempt_time(HOSTS[0], 1, tries[:-1], NOW) == NOW + pause(HOSTS[0], 1)
    assert earliest_attempt_time([NOW - 10 * DAY, *tries]) == tries[0] + DAY


def test_renewal_is_at_two_thirds_of_the_lifetime_or_a_little_earlier() -> None:
    life = 90 * DAY
    times = {host: renewal_time(host, NOW, NOW + life) for host in HOSTS}
    assert all(NOW + life * 2 // 3 - life // 20 <= at <= NOW + life * 2 // 3 for at in times.values())
    assert len(set(times.values())) > len(HOSTS) // 2
    assert times == {host: renewal_time(host, NOW, NOW + life) for host in HOSTS}
