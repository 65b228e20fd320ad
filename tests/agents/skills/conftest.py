"""The skills of two tenants, with people who may decide and one who may not."""

from pathlib import Path

import pytest

from appliance.agents.skills.service import HOLDERS, Skills
from appliance.blobs import Blobs, LocalPlaces
from appliance.core.scope import TenantScope
from appliance.tenants import SignedIn, people, scopes_of_role

KEY_SCOPES = frozenset({"skills.read", "skills.write"})


@pytest.fixture
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """SQLite, unless a test asks for both dialects."""
    if getattr(request, "param", "sqlite") == "sqlite":
        return f"sqlite:///{tmp_path}/gos.db"
    return str(request.getfixturevalue("cluster").emptied())


@pytest.fixture
def blobs(tmp_path: Path) -> Blobs:
    return Blobs(LocalPlaces(tmp_path / "blobs"), HOLDERS)


@pytest.fixture
def skills(two_tenants: None, blobs: Blobs) -> Skills:
    return Skills(blobs)


@pytest.fixture
def acme() -> TenantScope:
    return TenantScope("acme", "key:acme", KEY_SCOPES)


@pytest.fixture
def globex() -> TenantScope:
    return TenantScope("globex", "key:globex", KEY_SCOPES)


def member(scope: TenantScope, login: str, role: str, *, approver: bool = False) -> SignedIn:
    """A person who is signed in with this role."""
    user = people.create_user(login, "correct horse battery staple")
    everything = TenantScope(scope.tenant_id, "system", scopes_of_role("owner"))
    people.add_member(everything, login, role, approver=approver)
    own = TenantScope(scope.tenant_id, f"user:{user.id}", scopes_of_role(role))
    return SignedIn(user.id, login, role, own)
