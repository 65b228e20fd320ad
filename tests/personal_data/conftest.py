"""A database with two tenants, two people in both, and a row of each in every table that can name a person."""

from collections.abc import Iterator

import pytest

from appliance.core.database import db
from appliance.tenants import people, service
from tests.personal_data import filling
from tests.personal_data.filling import FIRST, SECOND, Human
from tests.store.opening import open_migrated

ANN, BOB, PASSWORD = "ann@example.com", "bob@example.com", "a long enough password"


@pytest.fixture
def empty(store_url: str) -> Iterator[None]:
    open_migrated(store_url)
    yield
    db.close_database()


@pytest.fixture
def humans(empty: None, store_url: str) -> list[Human]:
    """Ann and Bob, owners of both tenants."""
    for tenant in (FIRST, SECOND):
        service.create_tenant(tenant, tenant)
    both = [Human(str(people.create_user(login, PASSWORD).id), login, f"key_of_{login[:3]}") for login in (ANN, BOB)]
    for human in both:
        for tenant in (FIRST, SECOND):
            people.add_member(service.system_scope(tenant), human.login, "owner")
    filling.fill(store_url, both)
    return both


@pytest.fixture
def ann(humans: list[Human]) -> Human:
    return humans[0]


@pytest.fixture
def bob(humans: list[Human]) -> Human:
    return humans[1]
