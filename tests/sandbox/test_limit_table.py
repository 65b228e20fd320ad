"""Every limit of a step in every language: its failure class, its code, what to do about it, and that it ends in time."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from appliance.sandbox import HostCall, Limits, Outcome, Pool, Program, Settled
from appliance.sandbox.program import Language
from tests.timing import timed

GRACE_SECONDS = 0.25
SCRIPT = "export default async function (input, api) {\n%s\n}"
PHP = "<?php\nreturn function (array $input, $api) {\n%s\n};\n"
FORMS: dict[Language, tuple[str, str]] = {
    "typescript": ("steps/step.ts", SCRIPT),
    "javascript": ("steps/step.js", SCRIPT),
    "php": ("steps/step.php", PHP),
}


@dataclass(frozen=True)
class Row:
    """`bodies` by language; one for JavaScript stands for TypeScript too. `after_ms`: when the limit is reached, if by time."""

    limits: Limits
    failure_class: str
    code: str
    advice: str
    bodies: Mapping[str, str]
    retryable: bool = False
    after_ms: int = 0
    answers: bool = field(default=True, kw_only=True)

    def body(self, language: Language) -> str:
        return self.bodies["javascript" if language == "typescript" else language]


def bodies(javascript: str, php: str) -> dict[str, str]:
    return {"javascript": javascript, "php": php}


ROWS = {
    "wall time, computing": Row(
        Limits(wall_ms=400), "timeout", "time_limit", "took longer than 0.4 s; raise limits.time",
        bodies("for (;;);", "for (;;);"), retryable=True, after_ms=400,
    ),
    "wall time, in a regular expression": Row(
        Limits(wall_ms=400), "timeout", "time_limit", "raise limits.time",
        bodies(
            "return /^(a+)+$/.test('a'.repeat(40) + 'b')",
            "ini_set('pcre.backtrack_limit', '1000000000'); "
            "for (;;) preg_match('/^(a+)+$/', str_repeat('a', 40) . 'b');",
        ), retryable=True, after_ms=400,
    ),
    "wall time, with a host that never answers": Row(
        Limits(wall_ms=400), "timeout", "time_limit", "raise limits.time",
        bodies("await api.integrations.execute('erp', 'ping', {})", "$api->integrations->execute('erp', 'ping', []);"),
        retryable=True, after_ms=400, answers=False,
    ),
    "wall time, with many calls that are never answered": Row(
        Limits(wall_ms=400, in_flight=2), "timeout", "time_limit", "raise limits.time",
        bodies(
            "await Promise.all([1, 2, 3, 4, 5].map((n) => api.integrations.execute('erp', 'ping', {n})))",
            "foreach ([1, 2, 3, 4, 5] as $n) $api->integrations->execute('erp', 'ping', ['n' => $n]);",
        ),
        retryable=True, after_ms=400, answers=False,
    ),
    "wall time, after an answer": Row(
        Limits(wall_ms=400), "timeout", "time_limit", "raise limits.time",
        bodies("await api.datapool.find('o', 1); for (;;);", "$api->datapool->find('o', 1); for (;;);"),
        retryable=True, after_ms=400,
    ),
    "processor time": Row(
        Limits(cpu_ms=200), "timeout", "cpu_limit", "computed for more than 0.2 s; raise limits.cpu",
        bodies("for (;;);", "for (;;);"), retryable=True, after_ms=200,
    ),
    "memory": Row(
        Limits(memory_mb=16), "memory", "memory_limit", "more than 16 MB of memory; raise limits.memory_mb",
        bodies("const kept = []; for (;;) kept.push(new Array(10000).fill(1))", "for (;;) $kept[] = range(1, 10000);"),
    ),
    "memory at once": Row(
        Limits(memory_mb=16), "memory", "memory_limit", "raise limits.memory_mb",
        bodies("return new Uint8Array(1 << 28).length", "return strlen(str_repeat('x', 1 << 28));"),
    ),
    "output": Row(
        Limits(output_bytes=1000), "user_code", "output_limit", "more than 0.977 KB; store the data in DataPool",
        bodies("return 'x'.repeat(2000)", "return str_repeat('x', 2000);"),
    ),
    "log": Row(
        Limits(log_bytes=1000), "user_code", "log_limit", "logged more than 0.977 KB; log less",
        bodies(
            "for (let n = 0; n < 100; n++) api.log.info('x'.repeat(100))",
            "for ($n = 0; $n < 100; $n++) $api->log->info(str_repeat('x', 100));",
        ),
    ),
    "host calls": Row(
        Limits(host_calls=5), "user_code", "host_call_limit", "made more than 5 calls; use api.datapool.batch",
        bodies(
            "for (let n = 0; n < 100; n++) await api.datapool.find('o', n)",
            "for ($n = 0; $n < 100; $n++) $api->datapool->find('o', $n);",
        ),
    ),
    "size of a call": Row(
        Limits(output_bytes=1000), "user_code", "host_call_size", "The parameters of datapool.create are larger than 0.977 KB",
        bodies(
            "await api.datapool.create('o', {text: 'x'.repeat(2000)})",
            "$api->datapool->create('o', ['text' => str_repeat('x', 2000)]);",
        ),
    ),
    "depth of what is returned": Row(
        Limits(), "user_code", "nesting_limit", "nested too deeply; flatten it",
        bodies(
            "let a = {}; for (let n = 0; n < 400; n++) a = {a}; return a",
            "$a = []; for ($n = 0; $n < 400; $n++) $a = ['a' => $a]; return $a;",
        ),
    ),
}  # fmt: skip


class StrictHost:
    """Answers every call, or none."""

    def __init__(self, *, answers: bool) -> None:
        self._answers = answers
        self._open: list[HostCall] = []

    def submit(self, call: HostCall, clock: list[int]) -> None:
        self._open.append(call)

    def wait(self, timeout: float) -> Settled | None:
        if self._answers and self._open:
            return Settled(self._open.pop(0).id, True, None)
        time.sleep(min(timeout, 0.05))
        return None


def prepare(pool: Pool, language: Language, body: str) -> Program:
    """A program that is compiled, in a lane whose processes run."""
    path, form = FORMS[language]
    program = Program(language, path, {path: form % body})
    assert pool.compile(program) == []
    return program


def run(pool: Pool, language: Language, body: str, limits: Limits) -> Outcome:
    return pool.run(prepare(pool, language, body), {}, StrictHost(answers=True), limits=limits)


@pytest.mark.parametrize("language", FORMS)
@pytest.mark.parametrize("name", ROWS)
def test_the_limit_ends_the_step_in_time_and_says_what_to_do(pool: Pool, name: str, language: Language) -> None:
    row = ROWS[name]
    restarts = pool.health()["restarts"]
    program = prepare(pool, language, row.body(language))
    most = row.after_ms / 1000 + GRACE_SECONDS if row.after_ms else math.inf
    outcome, took = timed(most, lambda: pool.run(program, {}, StrictHost(answers=row.answers), limits=row.limits))
    failure = outcome.failure
    assert failure is not None
    assert (failure.failure_class, failure.code, failure.retryable) == (row.failure_class, row.code, row.retryable)
    assert row.advice in failure.message
    if row.after_ms:
        used = outcome.cpu_ms if failure.code == "cpu_limit" else took * 1000
        assert row.after_ms <= used < row.after_ms + GRACE_SECONDS * 1000
    assert outcome.output is None
    assert pool.health()["restarts"] == restarts, "no limit costs the process"
    assert run(pool, language, "return 42;", Limits()).output == 42


# PHP makes one call after the other.
@pytest.mark.parametrize("language", ["typescript", "javascript"])
def test_calls_beyond_those_in_flight_wait_and_fail_nothing(pool: Pool, language: Language) -> None:
    body = "return (await Promise.all([1, 2, 3, 4, 5].map((n) => api.datapool.find('o', n)))).length"
    assert run(pool, language, body, Limits(in_flight=2)).output == 5
