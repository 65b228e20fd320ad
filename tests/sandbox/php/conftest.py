"""Fixtures for PHP steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from appliance.sandbox import Outcome, Pool, Program

RunPhp = Callable[..., Outcome]


def php_program(source: str, files: Mapping[str, str] | None = None, namespace: str = "") -> Program:
    """A PHP step `steps/step.php` with further files beside it."""
    return Program("php", "steps/step.php", {"steps/step.php": source, **(files or {})}, namespace)


@pytest.fixture
def make_php() -> Callable[..., Program]:
    return php_program


@pytest.fixture
def run_php(pool: Pool) -> RunPhp:
    """Run the body of a step function of `$input` and `$api`, which begins on line 3."""

    def call(body: str, input: Any = None, host: Any = None, **options: Any) -> Outcome:  # noqa: A002
        files = options.pop("files", None)
        source = "<?php\nreturn function (array $input, $api) {\n" + body + "\n};\n"
        return pool.run(php_program(source, files), {} if input is None else input, host, **options)

    return call
