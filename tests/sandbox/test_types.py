"""Type checks of a process's code: the findings, their places, and what is not an error."""

from __future__ import annotations

import os
import threading
import time
from dataclasses import replace

import pytest

from appliance.sandbox import Failure, Pool
from appliance.sandbox.pool.lane import Lane
from appliance.sandbox.pool.lanes import DECISION_ADDRESS_SPACE
from appliance.sandbox.pool.occasional import OccasionalLane
from appliance.sandbox.typecheck import SECONDS, CodeStep, Finding, Reach, TypeCheck, TypedExpression
from appliance.sandbox.typecheck.checks import _Check
from tests.checking import ORIGINAL_CHECK, ORIGINAL_DIGEST

DECLARATIONS = """
interface IntegrationsApi { execute(integration: "crm", action: "find", input: { q: string }): Promise<{ name: string }[]> }
interface DataPoolApi { find(collection: "orders", id: string): Promise<any>; batch(operations: object[]): Promise<any> }
interface HumanApi { request(what: object): Promise<any> }
interface GosApi { integrations: IntegrationsApi; datapool: DataPoolApi; human: HumanApi }
interface Steps { a: { input: { n: number; s?: string }; api: GosApi }; b: { input: { other: boolean }; api: GosApi } }
type StepInput<Step extends keyof Steps = never> = [Step] extends [never] ? { n: number } : Steps[Step]["input"];
type Api<Step extends keyof Steps = never> = GosApi;
"""
SETTINGS = {"role": "decisions", "address_space": DECISION_ADDRESS_SPACE, "first_user": 0}
GRANTED = Reach(integrations={"crm": ["find"]}, datapool={"orders": ["read"]})


def check(pool: Pool, files: dict[str, str], *steps: CodeStep, expressions: tuple[TypedExpression, ...] = ()) -> list[Finding]:
    code_steps = steps or (CodeStep("a", next(iter(files)), GRANTED),)
    results = pool.check_types(TypeCheck(files, DECLARATIONS, code_steps, GRANTED, expressions))
    assert isinstance(results, list), results
    return results


def places(findings: list[Finding]) -> list[tuple[str, int, int, int]]:
    return [(each.file, each.line, each.column, each.code) for each in findings]


@pytest.mark.parametrize(
    "head",
    [
        "export default async function (input, api) {",
        "export default async (input, api) => {",
        "export default run;\nfunction run(input, api) { return inner(input, api); }\nfunction inner(input: StepInput, api: Api) {",
        "const run = async (input, api) => {",
        "export default async function (input: StepInput, api: Api) {",
        'export default async function (input: StepInput<"a">, api: Api<"a">) {',
    ],
)
def test_a_step_has_its_types_whether_it_names_them_or_not(pool: Pool, head: str) -> None:
    tail = "\nexport default run;" if head.startswith("const") else ""
    source = f"{head}\n  const a: string = input.n;\n  return a;\n}}{tail}"
    line = head.count("\n") + 2
    assert places(check(pool, {"steps/a.ts": source})) == [("steps/a.ts", line, 9, 2322)]


def test_columns_after_an_unannotated_parameter_are_right(pool: Pool) -> None:
    results = check(pool, {"steps/a.ts": "export default async (input, api) => input.nn;"})
    assert places(results) == [("steps/a.ts", 1, 44, 2339)]
    assert results[0].message == "Property 'nn' does not exist on type '{ n: number; s?: string | undefined; }'."
    assert places(check(pool, {"steps/a.ts": "export default input => input.nn"})) == [("steps/a.ts", 1, 31, 2339)]
    assert places(check(pool, {"steps/a.ts": "export default async ({ n, x }, api) => n;"})) == [("steps/a.ts", 1, 28, 2339)]


def test_wrong_input_of_an_action_is_reported_at_its_place(pool: Pool) -> None:
    source = """export default async function (input, api) {
  const rows = await api.integrations.execute("crm", "find", {
    q: input.n,
  });
  return rows.map((row) => row.nome);
}"""
    assert places(check(pool, {"steps/a.ts": source})) == [("steps/a.ts", 3, 5, 2322), ("steps/a.ts", 5, 32, 2339)]


def test_an_implied_any_is_no_error(pool: Pool) -> None:
    source = """export default async function (input, api) {
  const parts = [];
  parts.push(input.n);
  function twice(x) { return x * 2; }
  const byName = {};
  return parts.map((each) => twice(each)).map(String).concat(byName["a"] ?? []);
}"""
    assert check(pool, {"steps/a.ts": source}) == []


def test_newer_builtins_of_the_sandbox_are_known(pool: Pool) -> None:
    source = """export default async (input, api) => {
  const groups = Object.groupBy([1, 2], (n) => (n % 2 ? "odd" : "even"));
  return { groups, sorted: [2, 1].toSorted(), both: [...new Set([1]).union(new Set([2]))] };
}"""
    assert check(pool, {"steps/a.ts": source}) == []


def test_imports_are_followed_and_their_errors_reported_once(pool: Pool) -> None:
    files = {
        "steps/a.ts": "import { add } from '../lib/sum.ts';\nexport default async (input, api) => add(input.n, 'x');",
        "steps/b.ts": "import { add } from '../lib/sum';\nimport data from '../lib/d.json';\n"
        "export default async (input, api) => add(data.count, data.name);",
        "lib/sum.ts": "export function add(a: number, b: number): number { return a + b; }\nexport const wrong: string = 1;",
        "lib/d.json": '{"count": 1, "name": "x"}',
        "lib/unused.ts": "export const never: string = 1;",
    }
    results = check(pool, files, CodeStep("a", "steps/a.ts", GRANTED), CodeStep("b", "steps/b.ts", GRANTED))
    expected = [("lib/sum.ts", 2, 14, 2322), ("steps/a.ts", 2, 51, 2345), ("steps/b.ts", 3, 54, 2345)]
    assert sorted(places(results)) == expected


def test_a_file_of_two_steps_is_checked_for_both(pool: Pool) -> None:
    files = {"steps/a.ts": "export default async (input, api) => {\n  const n: number = 'x';\n  return input.n;\n}"}
    results = check(pool, files, CodeStep("a", "steps/a.ts", GRANTED), CodeStep("b", "steps/a.ts", GRANTED))
    assert places(results) == [("steps/a.ts", 2, 9, 2322), ("steps/a.ts", 3, 16, 2339)]


def test_a_parameter_that_asks_for_another_input_is_an_error(pool: Pool) -> None:
    source = "\nexport default async function (input: { n: string }, api: any) { return input.n; }"
    (results,) = check(pool, {"steps/a.ts": source})
    assert (results.line, results.column, results.code) == (2, 32, 2322)
    assert "Type 'number' is not assignable to type 'string'" in results.message
    assert check(pool, {"steps/a.ts": source.replace("n: string", "n: number")}) == []


def test_the_authors_types_override_ours(pool: Pool) -> None:
    head = "export default async (input: { n: number }, api: Api) => "
    source = head + "api.log.info('x');\ninterface Api { log: { info(m: string): void } }"
    (results,) = check(pool, {"steps/a.ts": source})
    assert "'log' is missing" in results.message
    own = source.replace("log: { info(m: string): void }", "human: { request(what: object): Promise<any> }").replace(
        "api.log.info('x')", "api.human.request({})"
    )
    step = CodeStep("a", "steps/a.ts", Reach(human=True))
    assert check(pool, {"steps/a.ts": own}, step) == []


def test_calls_beyond_the_grants_are_errors_where_types_show_them(pool: Pool) -> None:
    source = """export default async function (input, { integrations, ...api }) {
  await integrations.execute("erp", "push", { q: 1 });
  const name = "bills";
  await api.datapool.find(name, "1");
  await api.datapool.batch([{ op: "create", collection: "orders", values: {} }]);
  await api.human.request({});
  await integrations.execute("crm", "find", { q: "x" });
}"""
    results = check(pool, {"steps/a.ts": source})
    problems = [(each.line, each.column, each.missing, each.severity) for each in results]
    assert problems == [
        (2, 30, ("integrations", "erp", "push"), "error"),
        (4, 27, ("datapool", "bills", "read"), "error"),
        (5, 28, ("datapool", "orders", "write"), "error"),
        (6, 9, ("human", "", ""), "error"),
    ]


def test_javascript_is_not_type_checked_but_its_grants_are(pool: Pool) -> None:
    source = """import { later } from './b.js';
export default async (input, api) => {
  const n = 1; n.no.such.member;
  await api.integrations.execute("crm", "find", { q: 1 });
  await later(api);
}"""
    other = "export const later = (api) => api.secrets.get('token').then((t) => api.processes.execute('sub', { t }));"
    results = check(pool, {"steps/a.js": source, "steps/b.js": other})
    problems = {(each.file, each.line, each.column, each.missing, each.severity) for each in results}
    assert problems == {
        ("steps/b.js", 1, 47, ("secrets", "token", ""), "warning"),
        ("steps/b.js", 1, 90, ("processes", "sub", ""), "warning"),
    }


LIBRARY = """export const z = {};
z.object = (shape) => { z.missing.member(shape); return { parse: (value) => value }; };
const core = { no: 1 }; core.such = core.no.thing;
export default core;"""


@pytest.mark.parametrize("specifier", ["./zod.js", "./zod"])
def test_a_library_in_javascript_is_any_to_typescript(pool: Pool, specifier: str) -> None:
    source = f"""import {{ z }} from '{specifier}';
import core from '{specifier}';
const Order = z.object({{ a: 1 }});
type Order = z.infer<typeof Order>;
export default (input: Order) => [core.such.length, Order.parse(input).anything, z.string().min(1)];"""
    assert check(pool, {"steps/a.ts": source, "steps/zod.js": LIBRARY}) == []


@pytest.mark.parametrize("specifier", ["./zod.js", "./zod"])
def test_declarations_beside_a_library_say_what_it_has(pool: Pool, specifier: str) -> None:
    source = f"import {{ z }} from '{specifier}';\nexport default () => z.parse(1).nn;"
    files = {"steps/a.ts": source, "steps/zod.js": LIBRARY, "steps/zod.d.ts": "export const z: { parse(n: number): { n: 1 } };"}
    assert places(check(pool, files)) == [("steps/a.ts", 2, 33, 2339)]


def test_a_file_may_ask_not_to_be_checked(pool: Pool) -> None:
    wrong = "const n: string = 1;\nexport const later = (api) => api.secrets.get('token');\n"
    source = "// why\n// @ts-nocheck\nimport { later } from './b';\nexport default (input: { no: string }) => input.nn + later;"
    assert sorted(places(check(pool, {"steps/a.ts": source, "steps/b.ts": wrong}))) == [
        ("steps/b.ts", 1, 7, 2322), ("steps/b.ts", 2, 47, 0),
    ]  # fmt: skip
    results = check(pool, {"steps/a.ts": source, "steps/b.ts": "// @ts-nocheck\n" + wrong})
    assert [each.missing for each in results] == [("secrets", "token", "")]


def test_javascript_may_ask_to_be_checked(pool: Pool) -> None:
    source = "// @ts-check\nimport { f } from './b.js';\nexport default (input, api) => {\n  return f(input.n) + input.nn;\n};"
    other = "// @ts-check\n/** @param {string} text */\nexport const f = (text) => text.length;"
    results = check(pool, {"steps/a.js": source, "steps/b.js": other})
    assert places(results) == [("steps/a.js", 4, 12, 2345), ("steps/a.js", 4, 29, 2339)]


def test_a_large_library_takes_no_time(pool: Pool) -> None:
    library = "".join(f"export const f{n} = (a) => [a, {n}].map((each) => ({{ each, k: each.k{n} }}));\n" for n in range(9000))
    assert len(library) > 500_000
    source = "import { f1 } from './big.js';\nexport default (input) => f1(input.nn);"
    assert places(check(pool, {"steps/a.ts": source, "steps/big.js": library})) == [("steps/a.ts", 2, 36, 2339)]


def test_types_that_take_too_long_stay_unchecked(pool: Pool) -> None:
    slow = "type B<N extends number, R extends 0[] = []> = R['length'] extends N ? R : B<N, [...R, 0]>;\n" + "".join(
        f"type T{n} = B<{900 + n % 90}>; const v{n}: [T{n}, {n}] = null as any;\n" for n in range(2000)
    )
    answer = pool.check_types(TypeCheck({"a.ts": slow + "export default () => 1;"}, DECLARATIONS, [CodeStep("a", "a.ts")]))
    assert isinstance(answer, Failure)
    assert answer.failure_class == "timeout"
    assert places(check(pool, {"a.ts": "export default (input) => input.nn"})) == [("a.ts", 1, 33, 2339)]


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("input.n + steps.a", None),
        ("input.m", (1, 7, 2339)),
        ("input.kind === 'x' ? input.left : input.right", None),
        ("input.neither", (1, 7, 2339)),
        ("item.anything.at.all", None),
        ("steps.later.x", (1, 7, 2339)),
        ("[1, 2]\n  .map((x) => y)", (2, 15, 2304)),
        ("input.maybe.length", None),
        ("Math.max(...input.list) as number", None),
    ],
)
def test_expressions_are_checked_against_their_names(pool: Pool, text: str, place: tuple[int, int, int] | None) -> None:
    names = {
        "input": "{ n: number; maybe?: string; list: number[] } & ({ kind: 'x'; left: 1 } | { kind: 'y'; right: 2 })",
        "steps": "{ a: any }",
        "item": "any",
    }
    results = check(pool, {"steps/a.ts": "export default () => 1"}, expressions=(TypedExpression("e", text, names),))
    assert [(each.line, each.column, each.code) for each in results if each.expression == "e"] == ([place] if place else [])


def test_code_that_is_too_much_for_the_compiler_is_refused_and_the_next_is_checked(pool: Pool) -> None:
    deep = "type D = " + "[" * 20_000 + "1" + "]" * 20_000 + ";\nexport default () => 1;"
    answer = pool.check_types(TypeCheck({"a.ts": deep}, DECLARATIONS, [CodeStep("a", "a.ts")]))
    assert isinstance(answer, Failure)
    assert (answer.failure_class, answer.code) == ("validation", "types_too_large")
    assert places(check(pool, {"a.ts": "export default (input) => input.nn"})) == [("a.ts", 1, 33, 2339)]


def test_waiting_for_the_processor_does_not_count_as_computing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A check that gets little processor time has not computed much; it used to be refused as too large."""
    request, call, computed = _Check(), time.monotonic(), time.thread_time()
    monkeypatch.setattr(time, "monotonic", lambda: call + 3600)
    assert request.overdue() is None
    monkeypatch.setattr(time, "thread_time", lambda: computed + SECONDS + 1)
    assert request.overdue() == "timeout"


def test_nothing_of_one_check_is_seen_by_the_next(pool: Pool) -> None:
    first = {"a.ts": "declare global { var residue: number }\nglobalThis.residue = 1;\nexport default () => residue;"}
    assert check(pool, first) == []
    assert places(check(pool, {"a.ts": "export default () => residue;"})) == [("a.ts", 1, 22, 2304)]


def test_the_same_question_is_answered_once(pool: Pool) -> None:
    request = TypeCheck({"a.ts": "export default () => 1"}, DECLARATIONS, [CodeStep("a", "a.ts")])
    assert ORIGINAL_CHECK(pool, request) is ORIGINAL_CHECK(pool, request)


def test_cached_answers_are_kept_by_tenant() -> None:
    request = TypeCheck({"a.ts": "export default () => 1"}, DECLARATIONS, [CodeStep("a", "a.ts")], namespace="acme")
    other = replace(request, namespace="globex")
    assert (request.wire, ORIGINAL_DIGEST.func(request)) == (other.wire, ORIGINAL_DIGEST.func(replace(request)))
    assert ORIGINAL_DIGEST.func(request) != ORIGINAL_DIGEST.func(other)


def test_an_idle_lane_ends_its_process_and_starts_another_on_demand() -> None:
    lanes: list[Lane] = []

    def make() -> Lane:
        lanes.append(Lane("decisions", SETTINGS, 1, 1))
        return lanes[-1]

    lane = OccasionalLane(make, 0.2)
    assert lane.process_ids() == []
    with lane.slot(20.0) as slot:
        first = slot.process.child
        in_use_beyond_idle = threading.Event().wait(0.5)
        assert not in_use_beyond_idle
        assert first.poll() is None
    deadline = time.monotonic() + 10
    while first.poll() is None and time.monotonic() < deadline:
        os.sched_yield()
    assert first.poll() is not None
    with lane.slot(20.0) as slot:
        assert slot.process.child.pid != first.pid
    assert len(lanes) == 2
    lane.stop()
    assert lane.process_ids() == []
