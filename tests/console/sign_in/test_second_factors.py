"""Signing in with a second factor or a passkey, and adding factors."""

import re
from urllib.parse import urlsplit

import pytest

from appliance.tenants import InvitationSpec, invitations
from appliance.testing.running import Running
from tests.console.browser import Browser
from tests.console.conftest import PASSWORD
from tests.console.sign_in.factor_holder import Holder, first_link

SESSION, PENDING = "__Host-gos", "__Host-gos-factor"


@pytest.fixture
def holder(staff: Running, request: pytest.FixtureRequest) -> Holder:
    """A viewer of acme, signed in."""
    login = f"{request.node.name.partition('[')[0].replace('_', '-')[:60]}@acme.test"
    staff.user(login, PASSWORD, "acme", "viewer")
    person = Holder(staff, login)
    assert person.sign_in().status_code == 200
    return person


@pytest.fixture
def elsewhere(holder: Holder) -> Holder:
    """The same person in another browser."""
    return Holder(holder.running, holder.login)


def base_cookies(holder: Holder) -> dict[str, str]:
    return holder.browser.cookies.get(urlsplit(holder.at("/")).netloc, {})


def test_a_password_alone_no_longer_signs_in(holder: Holder, elsewhere: Holder) -> None:
    holder.add_app()
    elsewhere.secret = holder.secret
    page = elsewhere.sign_in("/console/executions?state=failed")
    assert urlsplit(elsewhere.browser.url).path == "/sign-in/factor"
    assert "Code from your authenticator app" in page.text
    assert SESSION not in base_cookies(elsewhere)
    wrong = elsewhere.browser.post(elsewhere.at("/sign-in/factor"), {"code": "000000"})
    assert (wrong.status_code, "This code is wrong" in wrong.text) == (401, True)
    replayed = elsewhere.browser.post(elsewhere.at("/sign-in/factor"), {"code": holder.first_code})
    assert replayed.status_code == 401, "the code added the app"
    done = elsewhere.browser.post(elsewhere.at("/sign-in/factor"), {"code": elsewhere.code(1)})
    assert done.status_code == 200
    assert elsewhere.browser.url == elsewhere.browser.at("acme", "/console/executions?state=failed")
    assert PENDING not in base_cookies(elsewhere)
    assert ("sign_in.refuse", "totp") in [(action, fields["factor"]) for action, fields in elsewhere.actions("sign_in")]


def test_the_pending_sign_in_grants_nothing(holder: Holder, elsewhere: Holder) -> None:
    holder.add_app()
    elsewhere.sign_in()
    pending = base_cookies(elsewhere)[PENDING]
    for path in ("/", "/factors/new", "/factors/app", "/hand-over?tenant=acme&state=s"):
        elsewhere.browser.get(elsewhere.at(path))
        assert urlsplit(elsewhere.browser.url).path == "/sign-in", path
    assert elsewhere.browser.get(elsewhere.at("/factors/passkey/options")).status_code == 403
    base_cookies(elsewhere)[SESSION] = pending
    assert not elsewhere.is_signed_in()
    del base_cookies(elsewhere)[PENDING]
    elsewhere.browser.post(elsewhere.at("/sign-in/factor"), {"code": holder.code(1)})
    assert urlsplit(elsewhere.browser.url).path == "/sign-in"


def test_the_earlier_session_of_the_browser_ends(holder: Holder) -> None:
    """Session fixation: whoever put a session into the browser does not get the one that follows."""
    holder.add_app()
    planted = Browser(holder.running)
    planted.sign_in("viewer@acme.test", PASSWORD, "acme")
    host = urlsplit(holder.at("/")).netloc
    other = Holder(holder.running, holder.login)
    other.browser.get(other.browser.at("acme", "/console/"))
    other.browser.post(other.browser.url, {"login": other.login, "password": PASSWORD})
    other.browser.cookies[host][SESSION] = planted.cookies[host][SESSION]
    other.secret = holder.secret
    other.browser.post(other.at("/sign-in/factor"), {"code": other.code(1)})
    assert other.is_signed_in()
    assert other.browser.cookies[host][SESSION] != planted.cookies[host][SESSION]
    assert "Sign out" not in planted.get(planted.at("acme", "/console/account")).text


def test_a_recovery_code_signs_in_once(holder: Holder, elsewhere: Holder) -> None:
    codes = holder.add_app()
    assert len(codes) == 10
    for expected in (True, False):
        person = Holder(holder.running, holder.login)
        person.sign_in()
        person.browser.post(person.at("/sign-in/factor"), {"code": codes[0]})
        assert person.is_signed_in() is expected
    assert holder.actions("factor")[0] == ("factor.use_recovery_code", {"left": 9})


def test_a_passkey_signs_in_alone_or_after_the_password(holder: Holder, elsewhere: Holder) -> None:
    device = holder.make_device()
    added = holder.add_passkey(device)
    assert (added.status_code, "recovery-codes" in added.text) == (201, True)
    elsewhere.sign_in()
    elsewhere.use_passkey(device, "/sign-in/factor/options", "/sign-in/factor")
    assert elsewhere.is_signed_in()
    alone = Holder(holder.running, holder.login)
    alone.browser.get(alone.browser.at("acme", "/console/logs"))
    query = urlsplit(alone.browser.url).query
    page = alone.use_passkey(device, "/sign-in/passkey/options", f"/sign-in/passkey?{query}")
    assert (page.status_code, alone.browser.url) == (200, alone.browser.at("acme", "/console/logs"))


def test_a_passkey_of_somebody_else_is_no_second_factor(holder: Holder, elsewhere: Holder, staff: Running) -> None:
    holder.add_passkey(holder.make_device())
    staff.user("mallory@acme.test", PASSWORD, "acme", "viewer")
    mallory = Holder(staff, "mallory@acme.test")
    mallory.sign_in()
    hers = mallory.make_device()
    mallory.add_passkey(hers)
    elsewhere.sign_in()
    page = elsewhere.use_passkey(hers, "/sign-in/factor/options", "/sign-in/factor")
    assert (page.status_code, elsewhere.is_signed_in()) == (401, False)


def test_a_replayed_passkey_does_not_sign_in(holder: Holder) -> None:
    device = holder.make_device()
    holder.add_passkey(device)
    first, second = (Holder(holder.running, holder.login) for _ in range(2))
    ceremony = first.begin("/sign-in/passkey/options")
    form = {"token": ceremony["token"], "response": device.use(ceremony["options"])}
    first.browser.post(first.at("/sign-in/passkey"), form)
    again = second.browser.post(second.at("/sign-in/passkey"), form)
    assert (again.status_code, "used already" in again.text) == (400, True)
    assert (first.is_signed_in(), second.is_signed_in()) == (True, False)


def test_a_passkey_of_another_origin_does_not_sign_in(holder: Holder) -> None:
    device = holder.make_device()
    holder.add_passkey(device)
    for origin in (holder.browser.at("acme", ""), "http://localhost", "https://evil.test"):
        device.origin = origin
        person = Holder(holder.running, holder.login)
        page = person.use_passkey(device, "/sign-in/passkey/options", "/sign-in/passkey")
        assert (page.status_code, "was not accepted" in page.text, person.is_signed_in()) == (401, True, False)


def test_forms_of_other_sites_are_refused(holder: Holder) -> None:
    base = ("/sign-in/factor", "/sign-in/passkey", "/factors/passkey", "/factors/app", "/factors/recovery-codes", "/confirm")
    console = ("/console/account/recovery-codes", "/console/account/factors/x/remove")
    for address in (*map(holder.at, base), *(holder.browser.at("acme", path) for path in console)):
        for site in ("cross-site", "same-site"):
            page = holder.browser.post(address, {"code": "000000"}, **{"Sec-Fetch-Site": site})
            assert (page.status_code, "another site" in page.text) == (403, True), address


def test_an_invitation_does_not_replace_the_second_factor(holder: Holder, staff: Running) -> None:
    """The password joins the tenant, and signs in no further than at the sign-in page."""
    holder.add_app()
    scope = staff.tenant("globex")
    _, invited = invitations.invite(scope, staff.services.sealer, InvitationSpec(holder.login, "viewer", False, 7))
    person = Holder(staff, holder.login, "globex")
    person.secret = holder.secret
    person.browser.post(person.at("/invitation"), {"token": invited, "password": PASSWORD})
    assert urlsplit(person.browser.url).path == "/sign-in/factor"
    assert not person.is_signed_in()
    person.sign_in()
    person.browser.post(person.at("/sign-in/factor"), {"code": person.code(1)})
    assert person.is_signed_in()


def test_the_account_page_lists_renames_and_removes(holder: Holder) -> None:
    link = first_link(holder.browser.get(holder.browser.at("acme", "/console/account")).text, "add-factor")
    page = holder.browser.get(link).text
    assert first_link(page, "choose-app") == "/factors/app?tenant=acme"
    holder.add_app("?tenant=acme")
    page = holder.browser.get(holder.browser.at("acme", "/console/account")).text
    assert "<strong>Phone</strong>" in page
    assert "Recovery codes left: 10" in page
    ((factor_id,),) = [re.findall(r'data-testid="factor" data-id="(\w+)"', page)]
    path = f"/console/account/factors/{factor_id}"
    page = holder.browser.post(holder.browser.at("acme", f"{path}/rename"), {"name": "<b>Old"}).text
    assert "<strong>&lt;b&gt;Old</strong>" in page
    assert holder.browser.post(holder.browser.at("acme", f"{path}/rename"), {"name": ""}).status_code == 422
    page = holder.browser.post(holder.browser.at("acme", f"{path}/remove"), {}).text
    assert 'data-testid="factor"' not in page
    assert holder.browser.post(holder.browser.at("acme", f"{path}/remove"), {}).status_code == 404


def test_recovery_codes_are_shown_once_and_downloaded(holder: Holder, elsewhere: Holder) -> None:
    old = holder.add_app()
    page = holder.browser.post(holder.browser.at("acme", "/console/account/recovery-codes"), {})
    codes = re.findall(r"<li><code>([a-z0-9-]{29})</code></li>", page.text)
    assert (page.status_code, len(codes), set(codes) & set(old)) == (201, 10, set())
    (sealed,) = re.findall(r'name="codes" value="([\w=-]+)"', page.text)
    file = holder.browser.post(holder.browser.at("acme", "/console/account/recovery-codes/file"), {"codes": sealed})
    assert file.headers["content-disposition"] == "attachment; filename=gos-recovery-codes.txt"
    assert file.headers["content-type"].startswith("text/plain")
    assert file.text.split("\n")[2:12] == codes
    assert holder.login in file.text
    viewer = Browser(holder.running)
    viewer.sign_in("viewer@acme.test", PASSWORD, "acme")
    refused = viewer.post(viewer.at("acme", "/console/account/recovery-codes/file"), {"codes": sealed})
    assert (refused.status_code, codes[0] in refused.text) == (410, False)


def test_the_picture_for_the_app_has_its_secret(holder: Holder) -> None:
    answer = holder.browser.get(holder.at("/factors/app"))
    page = answer.text
    (picture,) = re.findall(r'src="data:image/svg\+xml[^,]*,([^"]+)"', page)
    assert "svg" in picture
    assert "default-src 'none'; script-src 'self'" in answer.headers["content-security-policy"]


def test_a_stale_session_adds_no_factor(holder: Holder) -> None:
    """Whoever finds a browser unlocked cannot add a device of theirs to an account with a factor."""
    holder.add_app()
    holder.grow_stale()
    holder.browser.get(holder.at("/factors/new?tenant=acme"))
    assert urlsplit(holder.browser.url).path == "/confirm"
    request = holder.browser.url.partition("request=")[2]
    assert holder.browser.get(holder.at("/factors/passkey/options")).status_code == 403
    answer = holder.browser.post(holder.at("/confirm"), {"request": request, "code": holder.code()})
    assert answer.status_code == 200, answer.text
    assert holder.browser.url == holder.at("/factors/new?tenant=acme")
    assert holder.actions("step_up")[0] == ("step_up.confirm", {"method": "totp", "page": "/factors/new"})
    assert holder.add_passkey(holder.make_device()).status_code == 201
