"""Roles that need a second factor are led to add one, and accounts without one enter their password if configured."""

from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

import pytest

from appliance.tenants import people
from appliance.testing.running import Running
from tests.console.conftest import PASSWORD
from tests.console.sign_in.factor_holder import Holder
from tests.console.sign_in.test_step_up import confirm, is_off, request_of, send_again, switch_off

MINUTE = 60_000


@pytest.fixture(scope="module")
def live(start_appliance: Callable[..., Running], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("required")
    running = start_appliance(folder, second_factor__required_for=["owner"], second_factor__step_up_password=True)
    running.tenant("acme")
    running.user("boss@acme.test", PASSWORD, "acme", "owner")
    running.user("late@acme.test", PASSWORD, "acme", "owner")
    running.user("builder@acme.test", PASSWORD, "acme", "builder")
    yield running
    running.stop()


def test_a_role_that_needs_a_factor_is_led_to_it(live: Running) -> None:
    boss = Holder(live, "boss@acme.test")
    page = boss.sign_in("/console/executions?state=failed")
    assert urlsplit(boss.browser.url).path == "/factors/new"
    assert "Your role requires a second factor" in page.text
    query = f"?{urlsplit(boss.browser.url).query}"
    for path in ("/", "/hand-over?tenant=acme&state=s", "/visit?host=app--acme.localhost&state=s"):
        boss.browser.get(boss.at(path))
        assert urlsplit(boss.browser.url).path == "/factors/new", path
    boss.browser.get(boss.at(f"/factors/app{query}"))
    token, codes = boss.browser.url, boss.add_app(query)
    assert (len(codes), token) == (10, boss.at(f"/factors/app{query}"))
    boss.browser.get(boss.at("/"))
    assert urlsplit(boss.browser.url).path == "/console/"


def test_where_the_role_is_new_the_console_leads_there(live: Running) -> None:
    """A session from before is led there as well, and a form that it sends is kept meanwhile."""
    person = Holder(live, "builder@acme.test")
    assert person.sign_in().status_code == 200
    assert person.is_signed_in()
    people.add_member(live.tenant("acme"), "builder@acme.test", "owner")
    person.browser.get(person.browser.at("acme", "/console/executions"))
    assert person.browser.url == person.at("/factors/new?tenant=acme")
    switch_off(person, "led")
    assert urlsplit(person.browser.url).path == "/factors/new"
    query = f"?{urlsplit(person.browser.url).query}"
    assert not is_off(person, "led")
    person.add_app(query)
    page = person.browser.get(person.at(f"/confirm{query}"))
    send_again(person.browser, page)
    assert is_off(person, "led")


def test_signing_out_stays_possible(live: Running) -> None:
    late = Holder(live, "late@acme.test")
    late.sign_in()
    late.browser.post(late.at("/sign-out"), {})
    assert urlsplit(late.browser.url).path == "/sign-in"


def test_the_password_stands_in_for_a_missing_factor(live: Running) -> None:
    live.user("plain@acme.test", PASSWORD, "acme", "builder")
    plain = Holder(live, "plain@acme.test")
    plain.sign_in()
    assert switch_off(plain, "at-once").status_code == 200, "the sign-in is a proof"
    live.move_clock(11 * MINUTE)
    page = switch_off(plain, "plain")
    assert 'name="password"' in page.text
    token = request_of(plain)
    assert plain.browser.post(plain.at("/confirm"), {"request": token, "password": "wrong"}).status_code == 401
    assert confirm(plain, token, "000000").status_code == 401
    page = plain.browser.post(plain.at("/confirm"), {"request": token, "password": PASSWORD})
    send_again(plain.browser, page)
    assert is_off(plain, "plain")
    assert plain.actions("step_up")[0] == ("step_up.confirm", {"method": "password", "page": "/console/kill-switches/off"})
