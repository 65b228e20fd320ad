"""An appliance with two people, and a clock to move."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from appliance.core import clock
from appliance.core.config import Config, load_config
from appliance.core.crypto import Sealer
from appliance.core.scope import TenantScope
from appliance.tenants import SignedIn
from appliance.tenants.second_factors import SecondFactors
from tests.tenants.second_factors.proofs import ANN, BOB, HOST, Move, sign_up


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return load_config(environment={}, flags={"domains.base": HOST, "storage.data": str(tmp_path), "server.port": 8080})


@pytest.fixture
def service(config: Config, sealer: Sealer) -> SecondFactors:
    return SecondFactors(config, sealer)


@pytest.fixture
def ann(one: TenantScope, two: TenantScope, sealer: Sealer) -> SignedIn:
    return sign_up(ANN, {one.tenant_id: "owner", two.tenant_id: "viewer"}, sealer)


@pytest.fixture
def bob(one: TenantScope, sealer: Sealer) -> SignedIn:
    return sign_up(BOB, {one.tenant_id: "viewer"}, sealer)


@pytest.fixture
def move() -> Iterator[Move]:
    """Moves the clock until the end of the test."""
    moved: list[int] = []

    def forward(ms: int) -> None:
        moved.append(ms)
        clock.move(ms)

    yield forward
    clock.move(-sum(moved))
