"""Every limit ends a PHP step with the failure that a JavaScript step has, in time, and leaves the pool as it was."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from appliance.sandbox import HostCall, Limits, Outcome, Settled
from tests.timing import timed

RunPhp = Callable[..., Outcome]
SHORT = Limits(wall_ms=400)


@pytest.mark.parametrize(
    "body",
    [
        "while (true);",
        "sleep(100);",
        "usleep(100000000);",
        "time_nanosleep(100, 0);",
        "time_sleep_until(microtime(true) + 100);",
        "set_time_limit(100); while (true) { try { throw new Exception(); } catch (Exception) {} finally {} }",
        "ini_set('pcre.backtrack_limit', '100000000000'); return preg_match('/^(a+)+$/', str_repeat('a', 40) . 'b');",
        "return bcpow('3', '6000000');",
        "usort($input, function () { while (true); }); $a = [2, 1]; usort($a, function () { while (true); });",
        "ob_start(function ($text) { while (true); }); echo 'x'; return 1;",
        "return new class implements JsonSerializable { function jsonSerialize(): mixed { while (true); } };",
        "throw new class extends Exception { function __destruct() { while (true); } };",
        "return password_hash('x', PASSWORD_BCRYPT, ['cost' => 31]);",
        "return hash_pbkdf2('sha256', 'a', 'b', 2000000000);",
        "while (true) gc_collect_cycles();",
        "while (true) hrtime(true);",
        "while (true) file_exists('/tmp/x');",
        "while (true) random_bytes(1000);",
    ],
)
def test_computing_and_sleeping_without_end_is_stopped_in_time(run_php: RunPhp, body: str) -> None:
    run_php("return 1;")  # the process is there
    outcome, elapsed = timed(0.4 + 0.25, lambda: run_php(body, limits=SHORT))
    failure = outcome.failure
    assert failure is not None
    assert (failure.failure_class, failure.code) == ("timeout", "time_limit")
    assert 0.4 <= elapsed < 0.4 + 0.25


def test_processor_time_has_a_limit_of_its_own(run_php: RunPhp) -> None:
    outcome = run_php("while (true);", limits=Limits(cpu_ms=100))
    assert outcome.failure is not None
    assert (outcome.failure.failure_class, outcome.failure.code) == ("timeout", "cpu_limit")
    assert 100 <= outcome.cpu_ms < 350


def test_the_wall_clock_counts_waiting_and_the_processor_clock_does_not(run_php: RunPhp) -> None:
    class Silent:
        def submit(self, call: HostCall, clock: list[int]) -> None: ...

        def wait(self, timeout: float) -> Settled | None:
            return None

    body, limits = "$api->datapool->find('a', 'b');", Limits(wall_ms=300)
    outcome, elapsed = timed(0.3 + 0.25, lambda: run_php(body, host=Silent(), limits=limits))
    assert outcome.failure is not None
    assert outcome.failure.code == "time_limit"
    assert 0.3 <= elapsed < 0.3 + 0.25
    assert outcome.cpu_ms < 100
    asleep = run_php("usleep(150000); return 1;", limits=Limits(cpu_ms=100))
    assert asleep.output == 1
    assert asleep.wall_ms >= 150


@pytest.mark.parametrize(
    "body",
    [
        "return str_repeat('x', 1 << 30);",
        "$a = []; while (true) $a[] = str_repeat('y', 100000);",
        "ini_set('memory_limit', '-1'); ini_restore('memory_limit'); $a = []; while (true) $a[] = str_repeat('y', 1000000);",
        "function f($n) { return f($n + 1) + 1; } return f(0);",
        "$s = 'x'; while (true) $s .= $s;",
        "return array_fill(0, 100000000, 1);",
        "$a = fn () => $GLOBALS['a'](); $o = new SplFixedArray(50000000);",
    ],
)
def test_too_much_memory_ends_the_step(run_php: RunPhp, body: str) -> None:
    failure = run_php(body, limits=Limits(wall_ms=20_000)).failure
    assert failure is not None
    assert (failure.failure_class, failure.code) == ("memory", "memory_limit")
    assert "raise limits.memory_mb" in failure.message


@pytest.mark.parametrize("megabytes", [16, 64, 256])
def test_the_memory_a_step_may_use_is_what_its_limits_say(run_php: RunPhp, megabytes: int) -> None:
    limits = Limits(memory_mb=megabytes)
    enough, too_much = megabytes - 8, megabytes + 1
    assert run_php(f"return strlen(str_repeat('x', {enough} << 20));", limits=limits).output == enough << 20
    failure = run_php(f"return strlen(str_repeat('x', {too_much} << 20));", limits=limits).failure
    assert failure is not None
    assert failure.code == "memory_limit"
    assert run_php("return ini_get('memory_limit');", limits=limits).output == str(megabytes << 20)


@pytest.mark.parametrize(
    "body",
    [
        "$a = []; for ($i = 0; $i < 100000; $i++) $a = [$a]; return strlen(serialize($a));",
        "return preg_match('/' . str_repeat('(', 100000) . '/', 'x') === false ? unserialize(str_repeat('a:1:{i:0;', 100000)) : 1;",
    ],
)
def test_recursion_in_the_engine_is_a_user_code_failure(run_php: RunPhp, body: str) -> None:
    failure = run_php(body, limits=Limits(memory_mb=128)).failure
    assert failure is None or (failure.failure_class, failure.code) == ("user_code", "stack_limit")
    assert run_php("return 1;").output == 1


@pytest.mark.parametrize(
    ("body", "limits", "code"),
    [
        ("return str_repeat('x', 3000);", Limits(output_bytes=2000), "output_limit"),
        ("for ($i = 0; ; $i++) echo 'line', \"\\n\";", Limits(), "log_limit"),
        ("for ($i = 0; ; $i++) echo 'x';", Limits(), "log_limit"),
        ("for ($i = 0; ; $i++) $api->log->info('x');", Limits(), "log_limit"),
        ("for ($i = 0; ; $i++) error_log('x');", Limits(), "log_limit"),
        ("for ($i = 0; ; $i++) echo $missing;", Limits(), "log_limit"),
        ("for ($i = 0; ; $i++) $api->datapool->find('a', 'b');", Limits(host_calls=5), "host_call_limit"),
        ("$api->datapool->create('a', ['x' => str_repeat('x', 3000)]);", Limits(output_bytes=2000), "host_call_size"),
        ("$a = 1; for ($i = 0; $i < 300; $i++) $a = [$a]; return $a;", Limits(), "nesting_limit"),
    ],
)
def test_a_limit_has_the_code_it_has_in_javascript(
    run_php: RunPhp, recording_host: Any, body: str, limits: Limits, code: str
) -> None:
    failure = run_php(body, host=recording_host(), limits=limits).failure
    assert failure is not None
    assert (failure.failure_class, failure.code) == ("user_code", code)


def test_temporary_files_have_a_limit(run_php: RunPhp) -> None:
    body = """$large = str_repeat('x', 17 << 20); $many = 0;
    while ($many < 1000 && @file_put_contents("/tmp/$many", 'x') === 1) $many++;
    for ($round = 0; $round < 20; $round++) {
      file_put_contents('/tmp/1', str_repeat('y', 2 << 20)); file_put_contents('/tmp/1', ''); unlink('/tmp/1');
    }
    $far = fopen('/tmp/2', 'w'); fseek($far, 15 << 20); $sparse = fwrite($far, str_repeat('z', 2 << 20));
    return [@file_put_contents('/tmp/0', $large), $many, $sparse];"""
    outcome = run_php(body)
    assert outcome.output == [False, 200, False]
