"""Compiling a program: every mistake of every file, with its place."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
import wasmtime

from appliance.sandbox import Pool, Position, Program, runtimes
from appliance.sandbox.compilation import compiler as compilers
from appliance.sandbox.compilation.compiled import Compiled, CompiledPrograms
from appliance.sandbox.compilation.compiler import Compiler
from appliance.sandbox.compilation.typescript import Occupied, TypeScript
from appliance.sandbox.worker.engine import Engine

Make = Callable[..., Program]


@pytest.mark.parametrize(
    ("source", "message", "position"),
    [
        ("const x: = 3;\nexport default () => x", "Unexpected token `=`", (1, 10)),
        ("export default () => {\n  let a = ;\n}", "Expression expected", (2, 11)),
        ("export default () => {\n  class D { @dec m() {} }\n}", "decorators are not supported", (2, 13)),
        ("import fs from 'fs';\nexport default () => fs", "'fs' cannot be imported", (1, 16)),
        ("import { nope } from './lib';\nexport default () => nope", "'steps/lib.ts' does not export 'nope'", (1, 22)),
        ("export const a = 1", "must have a default export", (1, 1)),
        ("enum A { B }\nexport default () => {\n  class D { @dec m() {} }\n}", "decorators are not supported", (3, 13)),
        ("export default () => {\n  const mail = 'a@b' +;\n}", "Expression expected", (2, 23)),
        ("\nimport { a } from './missing';\nexport default () => a", "'./missing' does not exist", (2, 19)),
    ],
)
def test_mistakes_have_file_line_and_column(
    pool: Pool, make_program: Make, source: str, message: str, position: tuple[int, int]
) -> None:
    (failure,) = pool.compile(make_program(source, {"steps/lib.ts": "export const a: number = 1"}))
    assert failure.failure_class == "validation"
    assert message in failure.message
    assert failure.position == Position("steps/step.ts", *position)


def test_all_files_are_looked_at(pool: Pool, make_program: Make) -> None:
    files = {"steps/a.ts": "export const = 1", "steps/b.ts": "export const b = ;"}
    source = "import './a'; import './b'; import './c'; export default () => 1"
    failures = pool.compile(make_program(source, files))
    assert {failure.position.file for failure in failures if failure.position} == {"steps/step.ts"}
    failures = pool.compile(make_program(source.replace("import './c'; ", ""), files))
    assert [failure.position.file for failure in failures if failure.position] == ["steps/a.ts", "steps/b.ts"]


def test_a_file_that_nothing_imports_is_not_looked_at(pool: Pool, make_program: Make) -> None:
    assert pool.compile(make_program("export default () => 1", {"steps/other.ts": "const = "})) == []


def test_a_broken_file_is_reported_once(pool: Pool, make_program: Make) -> None:
    files = {"steps/a.ts": "import './broken'", "steps/broken.ts": "const = 1"}
    assert len(pool.compile(make_program("import './a'; import './broken'; export default () => 1", files))) == 1


def test_compiling_runs_nothing(pool: Pool, make_program: Make) -> None:
    assert pool.compile(make_program("for (;;);\nexport default () => 1")) == []


def test_a_default_export_may_come_from_another_file(pool: Pool, make_program: Make) -> None:
    files = {"steps/a.ts": "export default () => 7"}
    assert pool.run(make_program("export { default } from './a'", files), {}).output == 7


def test_plain_javascript_is_not_compiled_as_typescript(pool: Pool) -> None:
    (failure,) = pool.compile(Program("javascript", "step.js", {"step.js": "export default (n: number) => n"}))
    assert failure.position == Position("step.js", 1, 18)


def test_a_missing_entry_is_named(pool: Pool) -> None:
    (failure,) = pool.compile(Program("javascript", "step.js", {}))
    assert "step.js" in failure.message


def test_json_that_is_none_has_a_place(pool: Pool, make_program: Make) -> None:
    (failure,) = pool.compile(make_program("import a from './a.json'; export default () => a", {"steps/a.json": '{"a": 1,}'}))
    assert failure.position is not None
    assert failure.position.file == "steps/a.json"


def test_a_program_too_large_to_compile_is_refused(pool: Pool, make_program: Make) -> None:
    (failure,) = pool.compile(make_program("export default () => 1 //" + "x" * (5 << 20)))
    assert failure.code == "program_size"


@pytest.mark.parametrize(
    "source", ["export default " + "(" * 20000 + "1" + ")" * 20000, "export default () => " + "[" * 20000 + "]" * 20000]
)
def test_a_source_nested_too_deeply_is_refused_without_harm(pool: Pool, make_program: Make, source: str) -> None:
    (failure,) = pool.compile(make_program(source))
    assert failure.failure_class == "validation"
    (failure,) = pool.compile(Program("javascript", "a.js", {"a.js": source}))
    assert failure.failure_class == "validation"
    assert pool.compile(make_program("export default () => 1")) == []


def test_a_program_that_does_not_compile_fails_to_run_with_the_same_failure(pool: Pool, make_program: Make) -> None:
    broken = make_program("export default () => {")
    assert pool.run(broken, {}).failure == pool.compile(broken)[0]


def test_the_oldest_compiled_programs_are_evicted() -> None:
    cache = CompiledPrograms(limit_bytes=10_000)
    for number in range(10):
        cache.put(str(number), Compiled([], parts=[b"x" * 500]))
    assert cache.get("0") is None
    assert cache.get("9") is not None
    assert sum(cache.get(str(number)) is not None for number in range(10)) == 4


# ---- time


@pytest.fixture(scope="module")
def tools(prepared: None) -> tuple[Engine, TypeScript]:
    """What a sandbox process compiles with."""
    loaded = runtimes.load(runtimes.default_folder())
    quickjs, swc = loaded.verified(runtimes.QUICKJS), loaded.verified(runtimes.SWC)
    engine = Engine(lambda wasm: wasmtime.Module.deserialize_file(wasm, str(quickjs)), 2, loaded.boot)
    return engine, TypeScript(swc, engine.ticker)


def test_all_files_and_their_stages_share_one_deadline(tools: tuple[Engine, TypeScript], monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"v{number}" for number in range(8000)]
    slow = f"enum E {{}}; export default () => {{ let {', '.join(names)}; return () => [{', '.join(names)}] }}"
    imports = "".join(f"import './{number}.ts'; " for number in range(30))
    files = {"s.ts": imports + "export default () => 1"} | {f"{number}.ts": slow for number in range(30)}
    monkeypatch.setattr(compilers, "SECONDS", 0.5)
    began = time.monotonic()
    artefact, failures = Compiler(*tools, {"language": "typescript", "entry": "s.ts", "files": files}).compile()
    assert artefact is None
    assert failures
    assert time.monotonic() - began < 10, "each would have had half a second"


def test_a_caller_that_found_the_translator_occupied_may_retry(tools: tuple[Engine, TypeScript]) -> None:
    typescript = tools[1]
    with typescript._lock, pytest.raises(Occupied):
        typescript.translate("export const a: number = 1", "a.ts", time.monotonic() + 0.05)
    assert "export const a" in typescript.translate("export const a: number = 1", "a.ts", time.monotonic() + 5).code
