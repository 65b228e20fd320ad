"""Calls of $api from PHP: the same tree, the same numbers and the same errors as from JavaScript."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from appliance.sandbox import SUSPEND, HostCall, Outcome, Pool, Program, Settled, Suspend

RunPhp = Callable[..., Outcome]


def test_calls_are_numbered_and_answered_in_their_order(run_php: RunPhp, recording_host: Any) -> None:
    host = recording_host()
    body = """$a = $api->datapool->create('orders', ['n' => 1]);
    return [$a, $api->integrations->execute(integration: 'erp', action: 'get', input: ['k' => 2])];"""
    assert run_php(body, host=host).output == [{"id": 1}, {"id": 2}]
    assert [(call.id, call.method, call.raw) for call in host.calls] == [
        (1, "datapool.create", b'["orders",{"n":1}]'),
        (2, "integrations.execute", b'["erp","get",{"k":2}]'),
    ]


METHODS = [
    ("integrations.execute", "'erp', 'ping', {}"),
    ("datapool.find", "'orders', 'ent_1'"),
    ("datapool.query", "'orders', {}"),
    ("datapool.create", "'orders', {}"),
    ("datapool.update", "'orders', 'ent_1', {}"),
    ("datapool.upsert", "'orders', {}"),
    ("datapool.delete", "'orders', 'ent_1'"),
    ("datapool.batch", "[]"),
    ("documents.get", "'doc_1'"),
    ("documents.read", "'doc_1'"),
    ("documents.create", "{}"),
    ("processes.execute", "'other', {}"),
    ("llm.generate", "{}"),
    ("secrets.get", "'token'"),
]


@pytest.mark.parametrize(("method", "arguments"), METHODS)
def test_a_method_sends_the_same_call_in_both_languages(
    run: RunPhp, run_php: RunPhp, recording_host: Any, method: str, arguments: str
) -> None:
    from_js, from_php = recording_host(), recording_host()
    assert run(f"return await api.{method}({arguments})", host=from_js).output == {"id": 1}
    php_arguments = arguments.replace("{}", "[]")  # PHP has one word for both; where an object is meant, one is sent
    assert run_php(f"return $api->{method.replace('.', '->')}({php_arguments});", host=from_php).output == {"id": 1}
    assert from_php.calls == from_js.calls


def refuse(call: HostCall) -> Settled:
    fault = {"code": "policy_denied", "message": "no grant", "retryable": True, "failure_class": "policy", "details": [{"a": 1}]}
    return Settled(call.id, False, fault)


def test_a_refused_call_throws_an_error_that_can_be_caught(run_php: RunPhp, recording_host: Any) -> None:
    body = """try { $api->secrets->get('token'); }
    catch (ApiError $e) { return [$e->code, $e->getCode(), $e->getMessage(), $e->retryable, $e->details, $e->getLine()]; }"""
    assert run_php(body, host=recording_host(refuse)).output == ["policy_denied", "policy_denied", "no grant", True, [{"a": 1}], 3]


def test_a_refused_call_that_nobody_catches_keeps_its_class_and_place(run_php: RunPhp, recording_host: Any) -> None:
    failure = run_php("\n$api->secrets->get('token');", host=recording_host(refuse)).failure
    assert failure is not None
    assert (failure.failure_class, failure.name, failure.code, failure.retryable) == ("policy", "ApiError", "policy_denied", True)
    assert failure.position is not None
    assert (failure.position.file, failure.position.line) == ("steps/step.php", 4)
    assert "prelude" not in failure.stack


@pytest.mark.parametrize("code", ["sandbox_lost", "aborted"])
def test_code_cannot_forge_failures_of_the_appliance(run_php: RunPhp, code: str) -> None:
    body = f"""$e = new ApiError('x'); $e->code = '{code}'; $e->failure_class = 'system'; throw $e;"""
    failure = run_php(body).failure
    assert failure is not None
    assert (failure.failure_class, failure.code) == ("user_code", None)


@pytest.mark.parametrize(
    "call",
    [
        "human->request(['kind' => 'approval', 'title' => 't'])",
        "wait->for('10m')",
        "wait->until('2030-01-01T00:00:00Z')",
        "events->wait('paid')",
        "processes->execute('other', [], ['wait' => true])",
    ],
)
def test_a_call_that_sleeps_is_refused_without_asking(run_php: RunPhp, recording_host: Any, call: str) -> None:
    host = recording_host()
    body = f"try {{ $api->{call}; }} catch (ApiError $e) {{ return [$e->code, $e->getMessage()]; }}"
    code, message = run_php(body, host=host).output
    assert code == "not_in_php"
    assert "TypeScript" in message
    assert host.calls == []


def test_a_host_that_wants_a_php_step_to_sleep_ends_it_clearly(run_php: RunPhp) -> None:
    class Sleepy:
        def submit(self, call: HostCall, clock: list[int]) -> None: ...

        def wait(self, timeout: float) -> Settled | Suspend | None:
            return SUSPEND

    failure = run_php("$api->integrations->execute('erp', 'pay', []);", host=Sleepy()).failure
    assert failure is not None
    assert failure.code == "not_in_php"
    assert run_php("return 1;").output == 1


class GaveUp(Exception):
    pass


def test_a_host_that_fails_ends_the_step_and_its_slot_serves_the_next(run_php: RunPhp) -> None:
    class Failing:
        def submit(self, call: HostCall, clock: list[int]) -> None: ...

        def wait(self, timeout: float) -> Settled | None:
            raise GaveUp

    with pytest.raises(GaveUp):
        run_php("$api->datapool->find('orders', 'x');", host=Failing())
    assert run_php("return 1;").output == 1


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ("c\\nUPPER.case\\n[]", "unknown_method"),
        ("c\\ndatapool.find\\n{}", "invalid_output"),
        ("c\\ndatapool.find\\n[1", "invalid_output"),
        ('d{"a": NaN}', "invalid_output"),
        ("linfo\\n5", "invalid_output"),
    ],
)
def test_a_forged_message_is_checked_like_every_other(run_php: RunPhp, message: str, code: str) -> None:
    failure = run_php(f'post_message_to_js("{message}");'.replace('{"a"', '{\\"a\\"')).failure
    assert failure is not None
    assert failure.code == code


@pytest.mark.parametrize("message", ["", "x", "c", "c\\n", "l", "f", "f[]", "f{}", "fnull", "i", "z\\n\\n"])
def test_a_malformed_message_is_a_user_code_failure(run_php: RunPhp, message: str) -> None:
    outcome = run_php(f'post_message_to_js("{message}"); return 1;')
    assert outcome.failure is None or outcome.failure.failure_class == "user_code"
    assert run_php("return 1;").output == 1


def test_an_idle_pool_has_no_process_for_php(prepared: None) -> None:
    pool = Pool()
    pool.start()
    try:
        assert pool.php_process_ids() == []
        assert pool.run(Program("php", "a.php", {"a.php": "<?php return fn () => 1;"}), {}).output == 1
        assert len(pool.php_process_ids()) == pool.settings.processes
    finally:
        pool.stop()
    assert pool.php_process_ids() == []
