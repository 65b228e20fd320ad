"""One world per test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integrations.world import World, open_world


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with open_world(tmp_path) as world:
        yield world
