"""An appliance of its own, on SQLite and on PostgreSQL, that is operated by REST."""

from collections.abc import Iterator

import httpx
import pytest

from appliance.tenants import APPLIANCE_SCOPES, appliance_scope
from appliance.tenants.keys import KeySpec, issue_key
from appliance.testing.running import Running, make_config, start
from tests.operations.examples import PROVIDERS
from tests.store.cluster import Cluster

ADMINISTRATOR, PASSWORD, PASSPHRASE = "root@acme.test", "correct horse battery", "a passphrase of the backups"


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def live(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    database = ""
    if request.param == "postgresql":
        cluster: Cluster = request.getfixturevalue("cluster")
        database = cluster.make_database()
    running = start(make_config(
        tmp_path_factory.mktemp("operated"), storage__database=database, backup__passphrase=PASSPHRASE,
        console__administrators=[ADMINISTRATOR], sign_in__providers=PROVIDERS,
    ))  # fmt: skip
    running.tenant("acme")
    running.user(ADMINISTRATOR, PASSWORD, "acme")
    yield running
    running.stop()


def issue(live: Running, *scopes: str) -> str:
    """A new key of the appliance, by default with every scope."""
    spec = KeySpec("test", scopes or tuple(APPLIANCE_SCOPES), rate_requests=1_000_000)
    return issue_key(appliance_scope(), live.services.sealer, spec)[1]


@pytest.fixture
def operator(live: Running) -> Iterator[httpx.Client]:
    """A client of the base host with a key of the appliance that has every scope."""
    with live.client(live.config.domains.base, {"X-API-Key": issue(live)}) as client:
        yield client
