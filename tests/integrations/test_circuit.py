"""The circuit breaker's decisions: when calls to a foreign system are paused, and how they resume."""

import pytest

from appliance.connectors import contract
from appliance.integrations.circuit import (
    FAILURES,
    FIRST_OPEN_MS,
    MAX_HOLD_MS,
    MAX_OPEN_MS,
    MAX_PROBE_MS,
    Circuit,
    RateLimitHeld,
    Withheld,
    after_answer,
    after_error,
    probing,
    refusal,
)

NOW = 1_000_000
DEAD = contract.TransientError("no connection", outcome="unknown")


def failed(times: int, now: int = NOW, circuit: Circuit = Circuit()) -> Circuit:  # noqa: B008 - frozen
    for _ in range(times):
        circuit = after_error(circuit, DEAD, now)
    return circuit


def test_failures_in_a_row_open_the_circuit_and_an_answer_between_them_does_not() -> None:
    assert failed(FAILURES - 1).state(NOW) == "closed"
    assert failed(FAILURES - 1, circuit=after_answer(failed(FAILURES - 1))).state(NOW) == "closed"
    opened = failed(FAILURES)
    assert (opened.state(NOW), opened.failures, opened.open_until) == ("open", FAILURES, NOW + FIRST_OPEN_MS)
    refused = refusal(opened, "erp", NOW + 1_000)
    assert refused is not None
    assert (refused.why, refused.retry_after, refused.outcome, refused.error_class) == (
        "circuit_open", 9.0, "not_done", "transient_error",
    )  # fmt: skip
    assert "erp failed 5 times in a row" in refused.message
    assert "no connection" in refused.message


def test_after_the_pause_one_call_tries_and_its_answer_closes_the_circuit() -> None:
    opened, later = failed(FAILURES), NOW + FIRST_OPEN_MS
    assert opened.state(later) == "half_open"
    assert refusal(opened, "erp", later) is None
    half_open = probing(opened, later, 5.0)
    assert isinstance(refusal(half_open, "erp", later + 4_999), Withheld)
    assert refusal(half_open, "erp", later + 5_000) is None
    assert probing(opened, later, 900.0).probing_until == later + MAX_PROBE_MS
    assert after_answer(half_open) == Circuit()


def test_each_failed_probe_doubles_the_pause_up_to_five_minutes() -> None:
    circuit, now, pauses = failed(FAILURES), NOW, []
    for _ in range(7):
        assert circuit.open_until is not None
        pauses.append(circuit.open_until - now)
        now = circuit.open_until
        circuit = after_error(probing(circuit, now, 5.0), DEAD, now)
        assert circuit.probing_until is None
    assert pauses == [10_000, 20_000, 40_000, 80_000, 160_000, MAX_OPEN_MS, MAX_OPEN_MS]


def test_failures_while_the_circuit_is_open_do_not_extend_it() -> None:
    opened = failed(FAILURES)
    assert failed(3, NOW + 1, opened).open_until == opened.open_until


@pytest.mark.parametrize("kind", [contract.Rejected, contract.AuthError, contract.RateLimited])
def test_a_refusal_closes_the_circuit(kind: type[contract.ConnectorError]) -> None:
    assert after_error(failed(FAILURES), kind("no"), NOW) == Circuit()


@pytest.mark.parametrize("kind", [contract.ConfigError, contract.AddressNotAllowed])
def test_an_unsent_call_keeps_the_state_and_ends_its_probe(kind: type[contract.ConnectorError]) -> None:
    opened = failed(FAILURES)
    assert after_error(probing(opened, NOW, 5.0), kind("no"), NOW) == opened


def test_invalid_answers_open_the_circuit() -> None:
    circuit = Circuit()
    for _ in range(FAILURES):
        circuit = after_error(circuit, contract.SystemFailure("not JSON"), NOW)
    assert circuit.state(NOW) == "open"


@pytest.mark.parametrize(
    ("retry_after", "held_ms"),
    [(7.0, 7_000), (0.25, 250), (1e9, MAX_HOLD_MS), (float("inf"), MAX_HOLD_MS), (None, None), (0.0, None), (-5.0, None),
     (float("nan"), None)],
)  # fmt: skip
def test_retry_after_is_obeyed_up_to_a_maximum(retry_after: float | None, held_ms: int | None) -> None:
    circuit = after_error(Circuit(), contract.RateLimited("slow down", retry_after=retry_after), NOW)
    assert circuit.held_until == (None if held_ms is None else NOW + held_ms)
    assert circuit.is_rate_limited(NOW) == (held_ms is not None)


def test_rate_limited_calls_report_the_remaining_wait() -> None:
    limited = after_error(Circuit(), contract.RateLimited("slow down", retry_after=7.0), NOW)
    shorter = after_error(after_answer(limited), contract.RateLimited("slow down", retry_after=1.0), NOW)
    for circuit in (limited, after_answer(limited), shorter):
        refused = refusal(circuit, "erp", NOW + 2_000)
        assert isinstance(refused, RateLimitHeld)
        assert (refused.error_class, refused.why, refused.retry_after) == ("rate_limited", "rate_limited", 5.0)
        assert refusal(circuit, "erp", NOW + 7_000) is None
