"""The input, output, API and errors of a step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from appliance.sandbox import Outcome, Pool, Position, Program

Run = Callable[..., Outcome]
Make = Callable[..., Program]


def test_output_is_what_the_function_returns(run: Run) -> None:
    outcome = run(
        "return { total: input.lines.reduce((sum, line) => sum + line.price, 0) }", {"lines": [{"price": 2}, {"price": 3}]}
    )
    assert outcome.failure is None
    assert outcome.output == {"total": 5}
    assert outcome.output_json == b'{"total":5}'


def test_input_may_be_json_already(run: Run) -> None:
    assert run("return input.a", b'{"a": [1, "\xc3\xa4"]}').output == [1, "ä"]


def test_nothing_returned_is_null(run: Run) -> None:
    assert run("").output is None


def test_facts_about_the_execution_are_frozen(run: Run) -> None:
    body = "try { api.execution.id = 'x' } catch (e) { return [api.execution.id, e.name] }"
    assert run(body, api={"id": "exe_1"}).output == ["exe_1", "TypeError"]


def test_api_is_exactly_the_tree_of_the_contract(run: Run) -> None:
    body = "return Object.fromEntries(Object.entries(api).map(([k, v]) => [k, typeof v === 'object' ? Object.keys(v) : typeof v]))"
    assert run(body).output == {
        "integrations": ["execute"],
        "datapool": ["find", "query", "create", "update", "upsert", "delete", "batch"],
        "documents": ["get", "read", "create"],
        "processes": ["execute"],
        "human": ["request"],
        "wait": ["for", "until"],
        "events": ["wait"],
        "llm": ["generate"],
        "secrets": ["get"],
        "log": ["info", "warn", "error"],
        "now": "function",
        "execution": [],
    }


def test_log_lines_keep_level_message_and_fields(run: Run) -> None:
    outcome = run("api.log.warn('low stock', {sku: 7}); console.log('a', {b: 1}, [2]); console.error(new Error('x').message)")
    assert [(line.level, line.message, line.fields) for line in outcome.logs] == [
        ("warn", "low stock", {"sku": 7}),
        ("info", 'a {"b":1} [2]', None),
        ("error", "x", None),
    ]
    assert all(line.at_ms > 1_700_000_000_000 for line in outcome.logs)


def test_now_is_a_timestamp_that_date_understands(run: Run) -> None:
    assert run("const n = api.now(); return n === new Date(n).toISOString()").output is True


def test_an_error_has_the_position_its_author_sees(pool: Pool, make_program: Make) -> None:
    source = """interface Input { n: number }

function helper(input: Input): number {
  throw new RangeError('too far');
}
export default async function (input: Input): Promise<number> {
  return helper(input);
}"""
    failure = pool.run(make_program(source), {"n": 1}).failure
    assert failure is not None
    assert (failure.failure_class, failure.name, failure.message) == ("user_code", "RangeError", "too far")
    assert failure.position == Position("steps/step.ts", 4, 13)
    assert failure.stack == "    at helper (steps/step.ts:4:13)\n    at default (steps/step.ts:7:17)"


def test_positions_survive_syntax_that_must_be_transformed(pool: Pool, make_program: Make) -> None:
    source = """enum Kind { A = 1, B }
namespace Util {
  export function boom(kind: Kind): never {
    throw new TypeError("kind " + Kind[kind]);
  }
}
export default async function (input: { kind: Kind }): Promise<void> {
  await null;

  Util.boom(input.kind);
}"""
    failure = pool.run(make_program(source), {"kind": 2}).failure
    assert failure is not None
    assert failure.message == "kind B"
    assert failure.position is not None
    assert failure.position.line == 4
    assert "default (steps/step.ts:10:" in failure.stack


@pytest.mark.parametrize(
    ("thrown", "message", "code"),
    [
        ("null", "null", None),
        ("'plain text'", "plain text", None),
        ("{code: 'out_of_stock', message: 'none left'}", "none left", "out_of_stock"),
        ("Object.assign(new Error('m'), {code: 'c', retryable: true})", "m", "c"),
        ("new Proxy({}, {get() { throw 1 }})", "what was thrown cannot be described", None),
    ],
)
def test_whatever_is_thrown_is_described(run: Run, thrown: str, message: str, code: str | None) -> None:
    failure = run(f"throw {thrown}").failure
    assert failure is not None
    assert (failure.failure_class, failure.message, failure.code) == ("user_code", message, code)


@pytest.mark.parametrize(("call", "hint"), [("fetch('x')", "api.integrations.execute"), ("process.env.X", "no environment")])
def test_missing_globals_of_other_runtimes_are_explained(run: Run, call: str, hint: str) -> None:
    failure = run(f"return {call}").failure
    assert failure is not None
    assert failure.name == "ReferenceError"
    assert "is not defined in a step; " in failure.message
    assert hint in failure.message


def test_the_cause_of_an_error_is_reported(run: Run) -> None:
    failure = run("throw new Error('outer', {cause: new Error('inner')})").failure
    assert failure is not None
    assert "caused by Error: inner" in failure.stack


def test_a_rejection_nobody_handles_fails_the_step(run: Run) -> None:
    failure = run("Promise.reject(new Error('lost')); return 1").failure
    assert failure is not None
    assert failure.message == "lost"
    assert "<prelude>" not in failure.stack


def test_a_rejection_handled_late_does_not(run: Run) -> None:
    assert run("const p = Promise.reject(new Error('x')); await null; await null; try { await p } catch {} return 2").output == 2


@pytest.mark.parametrize("source", ["export default 5", "export const a = 1", ""])
def test_a_module_without_a_default_function_says_what_is_expected(pool: Pool, make_program: Make, source: str) -> None:
    failure = pool.run(make_program(source), {}).failure
    assert failure is not None
    assert "export default async function" in failure.message


def test_a_promise_that_never_settles_is_a_failure(run: Run) -> None:
    failure = run("await new Promise(() => {})").failure
    assert failure is not None
    assert failure.code == "never_settled"


@pytest.mark.parametrize(
    ("value", "what"),
    [("() => 1", "a function"), ("1n", "BigInt"), ("(() => { const a: any = {}; a.a = a; return a })()", "circular")],
)
def test_only_data_can_be_returned(run: Run, value: str, what: str) -> None:
    failure = run(f"return {value}").failure
    assert failure is not None
    assert what in failure.message


def test_text_that_cannot_be_stored_is_replaced(run: Run) -> None:
    outcome = run("console.log('a\\ud800b\\0c'); return ['\\ud800x', 'ok\\u{1F600}']")
    assert outcome.output == ["\ufffdx", "ok\U0001f600"]
    assert outcome.logs[0].message == "a\ufffdb\ufffdc"


def test_modules_import_each_other(pool: Pool, make_program: Make) -> None:
    files: dict[str, str] = {
        "steps/lib/price.ts": "import { rate } from './rate.js';\nexport const price = (n: number): number => n * rate",
        "steps/lib/rate.ts": "export const rate: number = 21",
        "rules/limits.json": '{"max": 7}',
    }
    source = """import { price } from './lib/price';
import limits from '../rules/limits.json';
export default (n: number) => [price(n), limits.max]"""
    assert pool.run(make_program(source, files), 2).output == [42, 7]


def test_modules_may_import_in_circles(pool: Pool, make_program: Make) -> None:
    files = {"steps/b.ts": "import { z } from './step.ts';\nlet n = 0;\nexport const next = () => ++n + z"}
    source = "import { next } from './b';\nexport const z = 5;\nexport default () => [next(), next()]"
    assert pool.run(make_program(source, files), {}).output == [6, 7]


def test_an_error_in_an_imported_file_names_that_file(pool: Pool, make_program: Make) -> None:
    files = {"steps/lib.ts": "\nexport function f(): void {\n  throw new Error('here')\n}"}
    failure = pool.run(make_program("import { f } from './lib';\nexport default () => f()", files), {}).failure
    assert failure is not None
    assert failure.position is not None
    assert (failure.position.file, failure.position.line) == ("steps/lib.ts", 3)


def test_a_module_can_be_imported_when_it_is_needed(pool: Pool, make_program: Make) -> None:
    files = {"steps/lib.ts": "export const a: number = 1"}
    assert pool.run(make_program("export default async () => (await import('./lib.ts')).a", files), {}).output == 1


def test_json_in_an_api_answer_and_measurements(run: Run) -> None:
    outcome = run("return 1")
    measured: dict[str, Any] = {"cpu": outcome.cpu_ms, "wall": outcome.wall_ms, "memory": outcome.memory_bytes}
    assert all(value > 0 for value in measured.values())
    assert outcome.host_calls == 0
