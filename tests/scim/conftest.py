"""An appliance whose people are provisioned by the provider `corp`."""

from collections.abc import Callable, Iterator

import pytest

from appliance.testing.running import Running
from tests.console.sign_in.company import PASSWORD, describe_provider
from tests.scim.provider import ADMINISTRATOR, BREAK_GLASS, Directory
from tests.webapps.identity_provider import IdentityProvider


@pytest.fixture(scope="module")
def provider() -> Iterator[IdentityProvider]:
    instance = IdentityProvider()
    yield instance
    instance.close()


@pytest.fixture(scope="module")
def live(
    start_appliance: Callable[..., Running], tmp_path_factory: pytest.TempPathFactory, provider: IdentityProvider
) -> Iterator[Running]:
    providers = [
        describe_provider(provider, scim=True, groups_claim=""),
        describe_provider(
            provider, id="trusted", issuer=f"{provider.issuer}/trusted", scim=True, groups_claim="", link_by="email_verified",
            roles=[],
        ),
        describe_provider(provider, id="plain", issuer=f"{provider.issuer}/plain", groups_claim="", roles=[]),
    ]
    running = start_appliance(
        tmp_path_factory.mktemp("scim"), sign_in__providers=providers, sign_in__break_glass=BREAK_GLASS,
        egress__allow=["127.0.0.0/8"], console__provision="off", console__administrators=[ADMINISTRATOR],
    )  # fmt: skip
    for tenant in ("acme", "globex", "lonely"):
        running.tenant(tenant)
    running.user("owner@acme.test", PASSWORD, "acme", "owner")
    yield running
    running.stop()


@pytest.fixture
def corp(live: Running) -> Iterator[Directory]:
    with Directory(live, "corp") as directory:
        yield directory


@pytest.fixture
def trusted(live: Running) -> Iterator[Directory]:
    with Directory(live, "trusted") as directory:
        yield directory
