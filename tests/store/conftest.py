"""An open, migrated database on each dialect, with the table `note (text)` besides the product's."""

from collections.abc import Iterator

import pytest

from appliance.core.database import db
from tests.store.opening import open_migrated


@pytest.fixture
def store(store_url: str) -> Iterator[str]:
    """The URL of the open database."""
    open_migrated(store_url)
    db.write(lambda: db.execute("CREATE TABLE note (text TEXT NOT NULL UNIQUE)"))
    yield store_url
    db.close_database()


@pytest.fixture
def server(store: str) -> str:
    """The same, for what only a server does."""
    if db.is_sqlite():
        pytest.fail("parametrise with on_server")
    return store


on_server = pytest.mark.parametrize("store_url", ["postgresql"], indirect=True)
