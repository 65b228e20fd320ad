"""Databases without a schema."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from appliance.core.database import db


@pytest.fixture(params=["sqlite", "postgresql"])
def new_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a database without a schema."""
    cluster = None if request.param == "sqlite" else request.getfixturevalue("cluster")
    return f"sqlite:///{tmp_path}/gos.db" if cluster is None else str(cluster.make_database())


@pytest.fixture
def empty_database(new_url: str) -> Iterator[str]:
    """The URL of an open database without a schema."""
    db.open_database(new_url)
    yield new_url
    db.close_database()
