"""One yard for each language family, shared by its whole corpus."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.sandbox.hostile.yard import Yard


@pytest.fixture(scope="session")
def javascript_yard(prepared: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    yard = Yard("javascript", tmp_path_factory.mktemp("canary"))
    yield yard
    yard.end()


@pytest.fixture(scope="session")
def php_yard(prepared: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    yard = Yard("php", tmp_path_factory.mktemp("canary"))
    yield yard
    yard.end()
