"""People without an account are invited on the members page, by email or by link, and join on the base host."""

import re
from collections.abc import Iterator
from dataclasses import replace
from urllib.parse import urlsplit

import httpx
import pytest

from appliance.core.errors import Gone, ScopeMissing, ValidationFailed
from appliance.governance import Invitations
from appliance.governance.approvals import EmailDependencies
from appliance.tenants import InvitationSpec, invitations
from appliance.testing.external_systems import Mailbox
from appliance.testing.running import Running
from tests.console.browser import Browser
from tests.console.conftest import PASSWORD

CLUB, PAGE = "club", "/console/people"
LINK = re.compile(r'id="link">([^<]+)<')


@pytest.fixture(scope="module")
def club(running: Running) -> Running:
    running.user("olga@club.test", PASSWORD, CLUB, "owner")
    running.user("vera@club.test", PASSWORD, CLUB, "viewer")
    return running


@pytest.fixture(scope="module")
def olga(club: Running) -> Browser:
    return signed_in(club, "olga")


def signed_in(club: Running, name: str) -> Browser:
    browser = Browser(club)
    assert browser.sign_in(f"{name}@club.test", PASSWORD, CLUB).status_code == 200
    return browser


def invite(browser: Browser, name: str, role: str = "builder", **more: str) -> httpx.Response:
    return browser.post(browser.at(CLUB, PAGE), {"login": f"{name}@club.test", "role": role, **more})


def link_in(page: httpx.Response) -> str:
    assert page.status_code == 201
    (link,) = LINK.findall(page.text)
    return str(link)


def test_a_link_is_shown_once_and_accepted(club: Running, olga: Browser) -> None:
    link = link_in(invite(olga, "nina", approver="yes"))
    listed = olga.get(olga.at(CLUB, PAGE)).text
    assert "nina@club.test" in listed
    assert "link created" in listed
    assert link.partition("token=")[2] not in listed
    nina = Browser(club)
    page = nina.get(link).text
    assert "To <strong>Club</strong> as builder and approver" in page
    token = link.partition("token=")[2]
    form = {"token": token, "password": PASSWORD, "again": "something else"}
    assert "enter the same one twice" in nina.post(nina.at("", "/invitation"), form).text
    assert nina.post(nina.at("", "/invitation"), form | {"again": PASSWORD}).status_code == 200
    assert nina.url == nina.at(CLUB, "/console/")
    again = Browser(club).get(link)
    assert (again.status_code, "This invitation is no longer valid" in again.text) == (410, True)


def test_a_visitor_signed_in_as_another_is_warned(club: Running, olga: Browser) -> None:
    link = link_in(invite(olga, "otto"))
    page = olga.get(link).text
    assert "You are signed in as olga@club.test" in page
    assert "otto@club.test" in page


@pytest.mark.parametrize("base", ["signed in", "expired"])
def test_accepting_ends_the_session_of_another_account(club: Running, olga: Browser, base: str) -> None:
    name = f"otto-{base[:3]}"
    link = link_in(invite(olga, name))
    shared = signed_in(club, "olga")
    shared.get(shared.at(CLUB, "/console/people"))
    if base == "expired":
        shared.cookies.pop(urlsplit(shared.at("", "/")).netloc)
    form = {"token": link.partition("token=")[2], "password": PASSWORD, "again": PASSWORD}
    page = shared.post(shared.at("", "/invitation"), form)
    assert shared.url == shared.at(CLUB, "/console/")
    assert f"{name}@club.test" in page.text
    assert "olga@club.test" not in page.text
    assert invite(shared, "nobody").status_code == 403
    assert olga.get(olga.at(CLUB, PAGE)).status_code == 200


def test_an_unknown_link_ends_no_session(olga: Browser) -> None:
    olga.get(olga.at(CLUB, "/console/joined?code=guessed"))
    assert olga.url == olga.at(CLUB, "/console/")
    assert "olga@club.test" in olga.get(olga.at(CLUB, "/console/account")).text


def test_a_link_does_not_grant_administration_of_the_appliance(club: Running, olga: Browser) -> None:
    page = invite(olga, "boss")
    token, services = link_in(page).partition("token=")[2], club.services
    config = replace(club.config, console=replace(club.config.console, administrators=("Boss@Club.test",)))
    email = EmailDependencies(services.governance.executor, services.integrations, services.languages)
    inviting = Invitations(config, services.sealer, email)
    with pytest.raises(ValidationFailed, match="gos user add LOGIN") as caught:
        inviting.invite(club.tenant(CLUB), InvitationSpec(" BOSS@club.test", "viewer"))
    assert [each.pointer for each in caught.value.details] == ["/login"]
    with pytest.raises(ValidationFailed, match="gos user add LOGIN"):
        inviting.accept(token, PASSWORD)
    club.user("boss@club.test", PASSWORD, "acme", "viewer")
    assert inviting.invite(club.tenant(CLUB), InvitationSpec("boss@club.test", "viewer")).link


def test_the_pages_refuse_an_administrator_without_account(club: Running, olga: Browser) -> None:
    refused = olga.post(olga.at(CLUB, PAGE), {"login": "Nobody-Yet@Northgate.test", "role": "viewer"})
    assert refused.status_code == 422
    assert "gos user add LOGIN" in refused.text


def test_a_withdrawn_invitation_is_invalid(club: Running, olga: Browser) -> None:
    link = link_in(invite(olga, "pia"))
    page = olga.get(olga.at(CLUB, PAGE)).text
    section = page[page.index("pia@club.test") :]
    path = re.search(rf"{PAGE}/invitations/inv_\w+/revoke", section)
    assert path is not None
    assert olga.post(olga.at(CLUB, path[0]), {}).status_code == 200
    assert Browser(club).get(link).status_code == 410


def test_only_owners_invite(club: Running) -> None:
    vera = signed_in(club, "vera")
    assert invite(vera, "quentin").status_code == 403
    assert "Change the invitation of" not in vera.get(vera.at(CLUB, PAGE)).text


def test_a_form_of_another_site_accepts_nothing(club: Running, olga: Browser) -> None:
    link = link_in(invite(olga, "rita"))
    form = {"token": link.partition("token=")[2], "password": PASSWORD, "again": PASSWORD}
    answer = Browser(club).post(olga.at("", "/invitation"), form, **{"Sec-Fetch-Site": "cross-site"})
    assert answer.status_code == 403
    assert invitations.read_offer(club.services.sealer, form["token"]).login == "rita@club.test"


def test_the_api_invites_as_the_page_does(club: Running) -> None:
    with club.api(CLUB) as api:
        refused = api.post("/api/v1/members", json={"login": "sven@club.test", "role": "viewer"})
        assert (refused.status_code, "POST /api/v1/invitations" in refused.text) == (404, True)
        body = {"login": "sven@club.test", "role": "viewer"}
        invitation = api.post("/api/v1/invitations", json=body, headers={"Idempotency-Key": "sven"}).json()["data"]
        again = api.post("/api/v1/invitations", json=body, headers={"Idempotency-Key": "sven"}).json()["data"]
        assert urlsplit(invitation["link"]).path == "/invitation"
        assert "link" not in again or again["link"] is None
        assert again["id"] == invitation["id"]
        refused = api.post("/api/v1/invitations", json={**body, "by_email": True})
        assert refused.json()["error"]["details"][0]["pointer"] == "/by_email"
        api.delete(f"/api/v1/invitations/{invitation['id']}").raise_for_status()
    with pytest.raises(Gone):
        invitations.read_offer(club.services.sealer, invitation["link"].partition("token=")[2])


@pytest.fixture
def mailbox() -> Iterator[Mailbox]:
    box = Mailbox()
    yield box
    box.close()


def test_the_link_is_emailed_where_the_tenant_can_send_email(club: Running, mailbox: Mailbox) -> None:
    services, scope, tom = club.services, club.tenant(CLUB), InvitationSpec("tom@club.test", "viewer")
    config = replace(club.config, approvals=replace(club.config.approvals, email_integration="letters"))
    email = EmailDependencies(services.governance.executor, services.integrations, services.languages)
    inviting = Invitations(config, services.sealer, email)
    assert inviting.invite(scope, tom).link
    with club.api(CLUB) as api:
        body = {"slug": "letters", "connector": "email", "settings": mailbox.settings}
        api.post("/api/v1/integrations", json=body).raise_for_status()
        assert inviting.invite(scope, tom).link == ""
        (link,) = mailbox.wait_for(to="tom@club.test").links
        token = link.partition("token=")[2]
        assert token not in api.get("/api/v1/integrations/letters/executions").text
    person, joined = invitations.accept(services.sealer, token, PASSWORD)
    assert (person.login, joined) == ("tom@club.test", CLUB)


def test_without_invitations_accounts_are_created_by_the_operator(club: Running) -> None:
    services = club.services
    config = replace(club.config, console=replace(club.config.console, invitations="off"))
    email = EmailDependencies(services.governance.executor, services.integrations, services.languages)
    inviting = Invitations(config, services.sealer, email)
    with pytest.raises(ScopeMissing, match="gos user add LOGIN"):
        inviting.invite(club.tenant(CLUB), InvitationSpec("ute@club.test", "viewer"))
