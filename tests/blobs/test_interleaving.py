"""Contents are collected, stored and referred to side by side: what is referred to is never lost."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from itertools import count
from typing import Any

import pytest

from appliance.blobs import GRACE_MS, Blobs, LocalPlaces
from appliance.core import clock
from appliance.core.database import db
from appliance.core.scope import TenantScope
from appliance.tenants import service as tenants
from tests.store.cluster import Cluster
from tests.store.interleaving import Pair, check_pair
from tests.store.opening import open_migrated

SCOPE = TenantScope("acme", "key:test")
HOLDER = "interleaved_content"
numbers = count(1)


@dataclass
class Contents:
    """Contents, and a table that refers to some of them."""

    blobs: Blobs

    def old(self) -> tuple[bytes, str]:
        """A content that nothing has referred to for a day."""
        content = f"content {next(numbers)}".encode()
        digest = self.blobs.put(SCOPE, content).sha256
        overdue = clock.now_ms() - 2 * GRACE_MS
        db.write(lambda: db.execute("UPDATE blob SET touched_at = ? WHERE sha256 = ?", (overdue, digest)))
        return content, digest

    def refer(self, digest: str) -> None:
        def insert() -> None:
            self.blobs.hold(SCOPE, digest)
            db.execute(f"INSERT INTO {HOLDER} VALUES ('acme', ?)", (digest,))  # noqa: S608  a constant

        db.write(insert)

    def put(self, content: bytes) -> None:
        self.blobs.put(SCOPE, content)

    def read(self, digest: str) -> Any:
        """Whether the content is there, is referred to, and can be read."""
        is_there = bool(db.rows("SELECT 1 FROM blob WHERE sha256 = ?", (digest,)))
        referring = len(db.rows(f"SELECT 1 FROM {HOLDER} WHERE sha256 = ?", (digest,)))  # noqa: S608  a constant
        return is_there, referring, is_there and self.blobs.read_whole(SCOPE, digest, 1000).startswith(b"content")


@pytest.fixture(scope="module")
def contents(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Contents]:
    open_migrated(cluster.emptied())
    tenants.create_tenant("acme", "Acme")
    columns = "tenant_id TEXT NOT NULL, sha256 TEXT NOT NULL, FOREIGN KEY (tenant_id, sha256) REFERENCES blob (tenant_id, sha256)"
    db.write(lambda: db.execute(f"CREATE TABLE {HOLDER} ({columns})"))
    yield Contents(Blobs(LocalPlaces(tmp_path_factory.mktemp("blobs")), [HOLDER]))
    db.close_database()


def a_content_is_collected_and_referred_to(of: Contents) -> Pair:
    _, digest = of.old()
    return Pair(of.blobs.collect, lambda: of.refer(digest), partial(of.read, digest))


def a_content_is_collected_and_stored_again(of: Contents) -> Pair:
    content, digest = of.old()
    return Pair(of.blobs.collect, lambda: of.put(content), partial(of.read, digest))


def a_content_is_stored_twice(of: Contents) -> Pair:
    content = f"content {next(numbers)}".encode()
    return Pair.of((partial(of.put, content),) * 2, lambda: of.read(sha256(content).hexdigest()))


def a_content_is_collected_twice(of: Contents) -> Pair:
    _, digest = of.old()
    return Pair.of((of.blobs.collect,) * 2, partial(of.read, digest))


PAIRS: dict[str, Callable[[Contents], Pair]] = {
    each.__name__: each
    for each in (
        a_content_is_collected_and_referred_to, a_content_is_collected_and_stored_again, a_content_is_stored_twice,
        a_content_is_collected_twice,
    )
}  # fmt: skip


@pytest.mark.parametrize("pair", PAIRS)
def test_both_orders(contents: Contents, pair: str, request: pytest.FixtureRequest) -> None:
    assert check_pair(lambda: PAIRS[pair](contents), reads=request.config.option.all) >= 4
