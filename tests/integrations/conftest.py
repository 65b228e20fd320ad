"""One world per test."""

from collections.abc import Iterator

import pytest

from tests.integrations.world import World, open_world


@pytest.fixture
def world(store_url: str) -> Iterator[World]:
    with open_world(store_url) as world:
        yield world
