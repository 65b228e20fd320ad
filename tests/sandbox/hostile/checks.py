"""Checks that a hostile script ended as its file says, without reaching or harming anything."""

from __future__ import annotations

import json
from typing import Any

from appliance.sandbox import Evaluated, Outcome
from tests.sandbox.hostile.corpus import Script
from tests.sandbox.hostile.yard import GRACE_MS, HostileHost, Yard


def check_script(script: Script, yard: Yard) -> None:
    if script.expression:
        value = yard.pool.evaluate({"it": script.expression}, {"input": yard.input})["it"]
        assert _end_of_value(value) == _expected(script), value
        evidence: list[Any] = [value]
    else:
        outcome, host = yard.run(script)
        _check_step(script, outcome, host)
        evidence = [outcome, *host.calls]
    assert yard.find_reached(*evidence) == []
    assert yard.neighbour.wrong() == []
    assert yard.ended() == set()


def _check_step(script: Script, outcome: Outcome, host: HostileHost) -> None:
    failure = outcome.failure
    assert outcome.snapshot is None
    if script.fails:
        assert failure is not None, outcome.output_json[:1000]
        assert (failure.failure_class, failure.code) in script.fails, failure
        assert script.message in failure.message
    else:
        assert failure is None, failure
        assert outcome.output == script.output
        json.loads(outcome.output_json.decode("utf-8"))
    assert outcome.wall_ms <= script.limits.wall_ms + GRACE_MS
    assert outcome.memory_bytes <= (script.limits.memory_mb + 32) << 20
    if script.logs is not None:
        assert [line.message for line in outcome.logs] == script.logs
    if script.calls is not None:
        assert [call.method for call in host.calls] == script.calls


def _end_of_value(value: Evaluated) -> Any:
    return value.value if value.failure is None else (value.failure.failure_class, value.failure.code)


def _expected(script: Script) -> Any:
    return script.fails[0] if script.fails else script.output
