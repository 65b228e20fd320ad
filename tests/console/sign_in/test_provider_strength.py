"""How strong, and how long ago, a sign-in with an identity provider was: `amr`, `acr` and `auth_time`."""

from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from appliance.core import clock
from appliance.testing.running import Running
from tests.console.sign_in.company import Employee, describe_provider
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
    strong = {"amr_values": ["mfa", "hwk"], "acr_values": ["gold", "silver"], "max_age_minutes": 10}
    running = start_appliance(
        tmp_path_factory.mktemp("strength"), sign_in__providers=[describe_provider(provider, **strong)],
        egress__allow=["127.0.0.0/8"], second_factor__required_for=["owner"],
    )  # fmt: skip
    running.tenant("acme")
    yield running
    running.stop()


def ago(minutes: float) -> int:
    return int(clock.now_ms() / 1000 - minutes * 60)


def test_the_provider_is_told_what_is_wanted(live: Running, provider: IdentityProvider) -> None:
    ann = Employee(live, provider)
    ann.sign_in("bosses", amr=["mfa"], acr="gold", auth_time=ago(1))
    assert provider.params["acr_values"] == "gold silver"
    assert provider.params["max_age"] == "600"


@pytest.mark.parametrize(
    ("claims", "leads_to"),
    [
        ({"amr": ["pwd", "mfa"], "acr": "silver"}, "/console/"),
        ({"amr": ["hwk"], "acr": "gold"}, "/console/"),
        ({"amr": ["pwd"], "acr": "gold"}, "/factors/new"),
        ({"amr": "mfa", "acr": "gold"}, "/factors/new"),
        ({"amr": [["mfa"]], "acr": "gold"}, "/factors/new"),
        ({"acr": "gold"}, "/factors/new"),
        ({"amr": ["mfa"], "acr": "bronze"}, "/factors/new"),
        ({"amr": ["mfa"], "acr": ["gold"]}, "/factors/new"),
        ({"amr": ["mfa"]}, "/factors/new"),
    ],
)
def test_only_a_strong_sign_in_counts_where_a_role_needs_a_factor(
    live: Running, provider: IdentityProvider, claims: dict[str, Any], leads_to: str
) -> None:
    ann = Employee(live, provider)
    ann.sign_in("bosses", auth_time=ago(1), **claims)
    assert urlsplit(ann.browser.url).path == leads_to


def test_a_role_that_needs_none_may_sign_in_weakly(live: Running, provider: IdentityProvider) -> None:
    bob = Employee(live, provider, "bob")
    bob.sign_in("ops", amr=["pwd"], acr="none", auth_time=ago(1))
    assert bob.can_open("acme")


def test_an_old_check_is_refused(live: Running, provider: IdentityProvider) -> None:
    cleo = Employee(live, provider, "cleo")
    page = cleo.sign_in("ops", auth_time=ago(30))
    assert page.status_code == 403
    assert "checked who you are too long ago; sign out there" in page.text
    assert not cleo.can_open("acme")


@pytest.mark.parametrize("auth_time", [None, "now", True])
def test_a_provider_that_does_not_say_it_signs_nobody_in(
    live: Running, provider: IdentityProvider, caplog: pytest.LogCaptureFixture, auth_time: object
) -> None:
    cleo = Employee(live, provider, "cleo")
    assert cleo.sign_in("ops", auth_time=auth_time).status_code == 502
    assert "its token has no auth_time" in caplog.text
    assert not cleo.can_open("acme")


def test_a_check_at_the_limit_counts(live: Running, provider: IdentityProvider) -> None:
    dan = Employee(live, provider, "dan")
    dan.sign_in("ops", auth_time=ago(10.5))
    assert dan.can_open("acme")
