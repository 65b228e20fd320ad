"""Tenants of their own for pairs of verbs, with two owners each."""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from appliance.core import ids
from appliance.core.crypto import Sealer
from appliance.core.database import db
from appliance.core.pages import PageRequest
from appliance.core.scope import TenantScope
from appliance.tenants import ALL_SCOPES, people, service
from appliance.tenants.grants.secret_bindings import SecretDestination
from appliance.tenants.keys import keys, lineage
from appliance.tenants.keys.keys import KeySpec
from appliance.tenants.models import Person
from tests.store.cluster import Cluster
from tests.store.opening import open_migrated

HOUR = 3_600_000
PASSWORD, OTHER_PASSWORD = "a long enough password", "another long password"
numbers = itertools.count(1)


@dataclass
class Office:
    """Each pair of verbs has a tenant of its own, with ann and bob as its owners."""

    sealer: Sealer
    scope: TenantScope
    ann: TenantScope
    bob: TenantScope

    @classmethod
    def make(cls, sealer: Sealer) -> "Office":
        tenant = f"t{next(numbers)}"
        service.create_tenant(tenant, tenant)
        scope = service.system_scope(tenant)
        ann, bob = (TenantScope(tenant, f"user:{join(scope, 'owner')}", ALL_SCOPES) for _ in range(2))
        return cls(sealer, scope, ann, bob)

    def roles(self) -> list[str]:
        return sorted(member.role for member in people.list_members(self.scope))

    def issue(self, by: TenantScope, *scopes: str) -> keys.ApiKey:
        return keys.issue_key(by, self.sealer, KeySpec("ci", scopes or ["keys.write", "keys.read"]))[0]

    def key_states(self) -> list[tuple[bool, bool, bool]]:
        """Of each key whether it is revoked, runs out soon, and may still do something."""
        rows = [keys.get_key(self.scope, each.id) for each in keys.list_keys(self.scope, PageRequest(100)).items]
        return sorted(
            (row.revoked_at is not None, row.grace_until is not None, bool(lineage.build_authority(row).scopes)) for row in rows
        )

    def count(self, table: str) -> int:
        return int(db.rows(f"SELECT count(*) FROM {table} WHERE tenant_id = ?", (self.scope.tenant_id,))[0][0])  # noqa: S608

    def destination(self) -> SecretDestination:
        return SecretDestination("process", "orders")


def add_person(password: str = "") -> Person:
    login = f"p{next(numbers)}@firma.test"
    row = people.prepare_user(login, password) if password else None
    return db.write(lambda: people.insert_user(row or Person(id=ids.new("usr"), login=login, password_hash="", created_at=1)))


def join(scope: TenantScope, role: str) -> str:
    person = add_person()
    people.add_member(scope, person.login, role)
    return str(person.id)


def user_of(scope: TenantScope) -> str:
    return scope.actor.removeprefix("user:")


@contextmanager
def open_offices(cluster: Cluster) -> Iterator[Sealer]:
    """What seals the secrets of the open database."""
    open_migrated(cluster.emptied())
    try:
        yield Sealer(b"k" * 32)
    finally:
        db.close_database()
