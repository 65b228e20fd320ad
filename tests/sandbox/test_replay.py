"""The same seed, clock and answers make the same run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from appliance.sandbox import Entropy, Outcome

Run = Callable[..., Outcome]

BODY = """const out: any[] = [Math.random(), Date.now(), performance.now()];
out.push((await api.datapool.create('orders', {n: Math.random(), at: api.now()})).id);
const both = await Promise.all([api.datapool.find('o', 1), api.datapool.find('o', 2)]);
out.push(both, new Date().toISOString(), Math.random(), [..."hello"].sort(() => Math.random() - 0.5).join(''));
return out"""


def test_a_run_repeats_from_its_record(run: Run, recording_host: Any) -> None:
    first_host, second_host = recording_host(), recording_host()
    first = run(BODY, host=first_host, entropy=Entropy(seed=7))
    second = run(BODY, host=second_host, entropy=Entropy(seed=7, clock=first.clock))
    assert first.failure is None
    assert second.output_json == first.output_json
    assert second.clock == first.clock
    assert [call.raw for call in second_host.calls] == [call.raw for call in first_host.calls]


def test_another_seed_is_another_run(run: Run) -> None:
    assert (
        run("return Math.random()", entropy=Entropy(seed=1)).output != run("return Math.random()", entropy=Entropy(seed=2)).output
    )


def test_random_numbers_are_spread(run: Run) -> None:
    mean = run("let s = 0; for (let i = 0; i < 20000; i++) s += Math.random(); return s / 20000", entropy=Entropy(seed=3)).output
    assert 0.48 < mean < 0.52


def test_each_call_carries_the_clock_values_read_before_it(run: Run, recording_host: Any) -> None:
    host = recording_host()
    body = """Date.now(); await api.datapool.find('o', 1); await api.datapool.find('o', 2);
    Date.now(); Date.now(); await api.datapool.find('o', 3); Date.now()"""
    outcome = run(body, host=host)
    assert [len(clock) for clock in host.clocks] == [1, 0, 2]
    assert len(outcome.clock) == 4
    assert outcome.clock[:3] == host.clocks[0] + host.clocks[2]


def test_recorded_clock_values_are_answered_first_then_the_clock_goes_on(run: Run) -> None:
    output = run("return [Date.now(), +new Date(), Date.now()]", entropy=Entropy(clock=[5, 7])).output
    assert output[:2] == [5, 7]
    assert output[2] > 1_700_000_000_000
