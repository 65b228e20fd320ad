"""The yard of each language family, kept for the whole corpus."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.sandbox.hostile.yard import Yard


@pytest.fixture(scope="session")
def javascript_yard(prepared: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    made = Yard("javascript", tmp_path_factory.mktemp("canary"))
    yield made
    made.end()


@pytest.fixture(scope="session")
def php_yard(prepared: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    made = Yard("php", tmp_path_factory.mktemp("canary"))
    yield made
    made.end()
