"""Members of a tenant are added, changed and removed by owners only, and the last owner stays."""

import httpx
import pytest

from appliance.tenants import people
from appliance.testing.running import Running
from tests.console.browser import Browser
from tests.console.conftest import PASSWORD

HOUSE, PAGE = "household", "/console/people"


@pytest.fixture(scope="module")
def house(running: Running) -> Running:
    """A tenant with an owner and a viewer, and an account without a tenant."""
    running.user("ann@household.test", PASSWORD, HOUSE, "owner")
    running.user("vera@household.test", PASSWORD, HOUSE, "viewer")
    running.user("newcomer@household.test", PASSWORD)
    return running


@pytest.fixture
def ann(house: Running) -> Browser:
    return signed_in(house, "ann")


def signed_in(house: Running, name: str) -> Browser:
    browser = Browser(house)
    assert browser.sign_in(f"{name}@household.test", PASSWORD, HOUSE).status_code == 200
    return browser


def members(house: Running) -> list[people.Member]:
    return people.list_members(house.tenant(HOUSE))


def roles(house: Running) -> dict[str, tuple[str, ...]]:
    return {each.login.partition("@")[0]: each.roles for each in members(house)}


def send(browser: Browser, name: str, role: str, **more: str) -> httpx.Response:
    return browser.post(browser.at(HOUSE, PAGE), {"login": f"{name}@household.test", "role": role, **more})


def test_somebody_is_added_changed_and_removed(house: Running, ann: Browser) -> None:
    assert send(ann, "newcomer", "operator", approver="yes").status_code == 200
    assert roles(house)["newcomer"] == ("operator", "approver")
    guest = signed_in(house, "newcomer")
    send(ann, "newcomer", "builder")
    assert roles(house)["newcomer"] == ("builder",)
    (path,) = [f"{PAGE}/{each.user_id}/remove" for each in members(house) if each.login.startswith("newcomer@")]
    assert "No API keys depend on them." in ann.get(ann.at(HOUSE, path)).text
    ann.post(ann.at(HOUSE, path), {})
    assert "newcomer" not in roles(house)
    assert "Sign in" in guest.get(guest.at(HOUSE, "/console/processes")).text or "No such tenant" in guest.get(guest.url).text
    actions = [each["action"] for each in audit_of(house)]
    assert actions[:4] == ["member.handover", "member.remove", "member.add", "member.add"]


def audit_of(house: Running) -> list[dict[str, str]]:
    with house.api(HOUSE) as api:
        entries = api.get("/api/v1/logs/audit").json()["data"]
    return [each for each in entries if each["action"].startswith("member.")]


def test_the_last_owner_stays_and_the_page_says_why(house: Running, ann: Browser) -> None:
    page = send(ann, "ann", "viewer")
    message = "must have at least one owner whose account is enabled; make somebody else owner first"
    assert (page.status_code, message in page.text) == (409, True)
    (path,) = [f"{PAGE}/{each.user_id}/remove" for each in members(house) if each.login.startswith("ann@")]
    assert ann.post(ann.at(HOUSE, path), {}).status_code == 409
    assert roles(house)["ann"] == ("owner",)


def test_a_person_without_an_account_is_invited(ann: Browser) -> None:
    page = send(ann, "nobody", "viewer")
    assert (page.status_code, "nobody@household.test is invited" in page.text) == (201, True)


def test_a_viewer_sees_people_and_changes_nothing(house: Running) -> None:
    vera = signed_in(house, "vera")
    page = vera.get(vera.at(HOUSE, PAGE)).text
    assert "ann@household.test" in page
    assert "Remove from the tenant" not in page
    assert 'name="role"' not in page
    assert send(vera, "vera", "owner").status_code == 403
    assert roles(house)["vera"] == ("viewer",)
