"""An open database of a server with several writers, and a connection beside it."""

from collections.abc import Callable, Iterator

import psycopg
import pytest

from appliance.core.database import db
from tests.interleaving.stepping import Ends, Step, interleave
from tests.store.cluster import Cluster
from tests.store.opening import open_migrated

Interleave = Callable[[Callable[[], tuple[Step, Step]], Callable[[Ends], None]], int]


@pytest.fixture(scope="module")
def url(cluster: Cluster) -> Iterator[str]:
    """The URL of the open database."""
    url = cluster.emptied()
    open_migrated(url)
    yield url
    db.close_database()


@pytest.fixture
def interleaved(url: str) -> Iterator[Interleave]:
    """`interleave` for two functions on this database."""
    with psycopg.connect(url, autocommit=True) as watching:
        yield lambda begin, judge: interleave(watching, begin, judge)
