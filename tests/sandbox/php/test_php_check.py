"""Checking PHP programs: every syntax error of every file, and nothing runs."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from appliance.sandbox import Pool, Position, Program

Make = Callable[..., Program]
STEP = "<?php\nreturn fn () => 1;\n"


def test_a_program_without_errors_passes_and_does_not_run(pool: Pool, make_php: Make) -> None:
    program = make_php("<?php\nexit('it ran');\nreturn fn () => 1;", {"lib/a.php": "<?php while (true);", "data.json": "{"})
    assert pool.compile(program) == []


def test_every_error_of_every_file_is_reported_at_once(pool: Pool, make_php: Make) -> None:
    files = {
        "lib/a.php": "<?php\n\n$x = ;",
        "lib/b.php": "<?php\nfunction f() {}\nfunction f() {}",
        "lib/c.php": "<?php\nfinal class A { abstract function f(); }",
        "lib/d.php": "<?php\nclass D {",
        "lib/good.php": "<?php\nreturn 1;",
    }
    failures = pool.compile(make_php(STEP, files))
    assert [each.position for each in failures] == [
        Position(f"lib/{each}.php", n, 1) for each, n in zip("abcd", (3, 3, 2, 2), strict=True)
    ]
    assert {each.failure_class for each in failures} == {"validation"}
    assert {each.code for each in failures} == {"syntax_error"}
    assert failures[0].message == 'syntax error, unexpected token ";"'
    assert failures[1].message == "Cannot redeclare function f() (previously declared in lib/b.php:2)"


def test_a_step_with_a_syntax_error_does_not_start(pool: Pool, make_php: Make) -> None:
    failure = pool.run(make_php("<?php\nreturn function () {\n  return 1 +;\n};"), {}).failure
    assert failure is not None
    assert (failure.failure_class, failure.position) == ("validation", Position("steps/step.php", 3, 1))


def test_an_entry_without_a_return_is_reported(pool: Pool, make_php: Make) -> None:
    failures = pool.compile(make_php("<?php\nfunction step() {}"))
    assert [each.message for each in failures] == ["the file must return a function: return function (array $input, $api) { … };"]


def test_a_missing_entry_and_too_much_text_are_refused(pool: Pool, make_php: Make) -> None:
    missing = pool.compile(Program("php", "steps/none.php", {}))
    assert [each.code for each in missing] == ["file_missing"]
    large = pool.compile(make_php(STEP, {"large.php": "<?php //" + "x" * (4 << 20)}))
    assert [each.code for each in large] == ["program_size"]


@pytest.mark.parametrize("text", ["<?php return " + "[" * 40_000 + "]" * 40_000 + ";", "<?php return " + "-" * 100_000 + "1;"])
def test_a_file_that_overwhelms_the_compiler_is_refused(pool: Pool, make_php: Make, text: str) -> None:
    failures = pool.compile(make_php(STEP, {"deep.php": text}))
    assert len(failures) == 1
    assert failures[0].failure_class == "validation"
    assert failures[0].position is not None
    assert failures[0].position.file == "deep.php"
