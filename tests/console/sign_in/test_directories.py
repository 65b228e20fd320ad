"""Sign-in with a login and password of a directory: accounts, roles, second factors, and what happens when it does not answer."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import httpx
import pytest

from appliance.core import clock
from appliance.core.database import db
from appliance.tenants import accounts, people
from appliance.tenants.directories import DirectoryClient
from appliance.tenants.models import DirectoryCheckRow, PersonIdentity
from appliance.testing.running import Running
from tests.console.browser import Browser
from tests.directory_server import ADD, DELETE, GROUPS, PASSWORD, PEOPLE, REPLACE, DirectoryServer, running_directory

LOCAL = "a local password here"


@pytest.fixture(scope="module")
def server() -> Iterator[DirectoryServer]:
    with running_directory() as server:
        yield server


@pytest.fixture(scope="module")
def live(
    start_appliance: Callable[..., Running], tmp_path_factory: pytest.TempPathFactory, server: DirectoryServer
) -> Iterator[Running]:
    running = start_appliance(
        tmp_path_factory.mktemp("directory"), sign_in__directories=[server.describe()], console__provision="off",
        console__administrators=["chief@corp.test"],
    )  # fmt: skip
    for tenant in ("acme", "globex"):
        running.tenant(tenant)
    running.user("owner@acme.test", LOCAL, "acme", "owner")
    yield running
    running.stop()


def enter(browser: Browser, login: str, password: str = PASSWORD) -> httpx.Response:
    """Send the sign-in form; returns the page that it leads to."""
    return browser.post(browser.at("", "/sign-in"), {"login": login, "password": password})


def forget_attempts(running: Running, login: str) -> None:
    """Let the next test begin without the tries of this one."""
    checks = running.services.limits.password_checks
    checks._addresses.succeed(("address", ""), "127.0.0.1")
    checks._pairs.succeed(("login", login), "127.0.0.1")
    checks._devices.succeed(("device", login), "127.0.0.1")


def members_of(running: Running, tenant: str) -> dict[str, tuple[str, bool]]:
    return {each.login: (each.role, each.approver) for each in people.list_members(running.tenant(tenant))}


def entries_about(running: Running, tenant: str, login: str) -> list[tuple[str, Any]]:
    """Action and provider of the audit entries about this person, oldest first."""
    with running.api(tenant) as api:
        entries = api.get("/api/v1/logs/audit", params={"limit": 500}).json()["data"]
    fields = [(each["action"], json.loads(each["fields"])) for each in reversed(entries) if each["actor"] == "system"]
    return [(action, each.get("provider")) for action, each in fields if each.get("login") == login]


def check_people(running: Running) -> None:
    """Look the people up now, as the periodic job does when it is due."""
    db.write(lambda: DirectoryCheckRow.update(due_at=0).execute())
    running.services.directories.check_people()


# -- accounts and roles


def test_a_first_sign_in_makes_an_account_with_the_roles_of_its_groups(live: Running, server: DirectoryServer) -> None:
    server.hire("ann", "ops", "dev")
    browser = Browser(live)
    assert enter(browser, "ann").status_code == 200
    assert browser.get(browser.at("acme", "/console/")).status_code == 200
    assert members_of(live, "acme")["ann@corp.test"] == ("builder", False)
    assert members_of(live, "globex")["ann@corp.test"] == ("viewer", False)
    assert people.find_user("ann@corp.test").password_hash == ""
    assert entries_about(live, "acme", "ann@corp.test") == [("member.add", "corp")]


def test_roles_follow_the_groups_at_each_sign_in(live: Running, server: DirectoryServer) -> None:
    dn = server.hire("bob", "ops")
    for group, role in (("bosses", ("owner", True)), ("", ("operator", False))):
        if group:
            server.change(f"cn={group},{GROUPS}", ADD, "member", dn)
        enter(Browser(live), "bob@corp.test")
        assert members_of(live, "acme")["bob@corp.test"] == role
        server.change(f"cn=bosses,{GROUPS}", DELETE, "member", dn) if group else None
    server.change(f"cn=ops,{GROUPS}", DELETE, "member", dn)
    page = enter(Browser(live), "bob")
    assert (page.status_code, "your groups at the provider give you no role" in page.text.lower()) == (403, True)
    assert "bob@corp.test" not in members_of(live, "acme")


@pytest.mark.parametrize(("login", "password"), [
    ("cat", "wrong"), ("cat", ""), ("cat", "x" * 2000), ("*", PASSWORD), ("*)(uid=*", PASSWORD), ("c*", PASSWORD),
    ("c\u00adat", PASSWORD), ("\uff43at", PASSWORD), ("nobody", PASSWORD), ("", PASSWORD),
])  # fmt: skip
def test_who_does_not_know_login_and_password_does_not_enter(
    live: Running, server: DirectoryServer, login: str, password: str
) -> None:
    if not _is_hired(server, "cat"):
        server.hire("cat", "ops")
    page = enter(Browser(live), login, password)
    forget_attempts(live, login.lower())
    assert (page.status_code, "The login or the password is wrong" in page.text) == (401, True)


def _is_hired(server: DirectoryServer, name: str) -> bool:
    try:
        server.change(f"uid={name},{PEOPLE}", REPLACE, "description", "hired")
    except AssertionError:
        return False
    return True


def test_tries_are_counted_with_those_of_local_passwords(live: Running, server: DirectoryServer) -> None:
    server.hire("dan", "ops")
    for _ in range(5):
        assert enter(Browser(live), "dan", "wrong").status_code == 401
    page = enter(Browser(live), "dan")
    forget_attempts(live, "dan")
    assert page.status_code == 429
    assert "Retry-After" in page.headers
    assert enter(Browser(live), "dan").status_code == 200


# -- accounts that exist already


def test_a_local_account_is_not_taken_over(live: Running, server: DirectoryServer) -> None:
    live.user("eve@corp.test", LOCAL, "acme", "owner")
    server.hire("eve", "ops")
    assert enter(Browser(live), "eve@corp.test").status_code == 401, "the password of the directory is not one of this account"
    page = enter(Browser(live), "eve")
    assert (page.status_code, "There is already an account eve@corp.test" in page.text) == (403, True)
    assert enter(Browser(live), "eve@corp.test", LOCAL).status_code == 200
    assert not PersonIdentity.select().where(PersonIdentity.user_id == people.find_user("eve@corp.test").id).exists()


def test_nobody_becomes_an_administrator_by_an_entry(live: Running, server: DirectoryServer) -> None:
    server.hire("chief", "bosses")
    page = enter(Browser(live), "chief")
    assert (page.status_code, "administrator of this appliance" in page.text) == (403, True)


def test_a_new_address_changes_nothing(live: Running, server: DirectoryServer) -> None:
    dn = server.hire("fay", "ops")
    enter(Browser(live), "fay")
    server.change(dn, REPLACE, "mail", "married@corp.test")
    enter(Browser(live), "married@corp.test")
    assert "fay@corp.test" in members_of(live, "acme")
    assert "married@corp.test" not in members_of(live, "acme")


# -- people who leave


def test_whoever_leaves_is_signed_out_and_their_keys_pause_until_they_are_back(live: Running, server: DirectoryServer) -> None:
    for name in ("gus", "hal"):
        server.hire(name, "bosses")
        enter(Browser(live), name)
    browser = Browser(live)
    enter(browser, "gus")
    url = browser.at("acme", "/console/")
    assert browser.get(url).status_code == 200
    check_people(live)
    assert browser.get(url).url.path == "/console/"
    assert "/sign-in" not in browser.url

    server.change(f"uid=gus,{PEOPLE}", REPLACE, "pwdAccountLockedTime", "000001010000Z")
    check_people(live)
    browser.get(url)
    assert "/sign-in" in browser.url
    assert people.find_user("gus@corp.test").disabled_at is not None
    assert people.find_user("hal@corp.test").disabled_at is None
    assert enter(Browser(live), "gus").status_code == 401

    server.change(f"uid=gus,{PEOPLE}", DELETE, "pwdAccountLockedTime")
    check_people(live)
    assert people.find_user("gus@corp.test").disabled_at is None
    assert enter(Browser(live), "gus").status_code == 200
    audited = [action for action, provider in entries_about(live, "acme", "gus@corp.test") if provider == "corp"]
    assert audited == ["member.add", "user.disable", "user.enable"]


def test_whoever_is_deleted_and_whoever_the_filter_excludes_are_gone(live: Running, server: DirectoryServer) -> None:
    dn = server.hire("ida", "ops")
    enter(Browser(live), "ida")
    server.remove(dn)
    assert enter(Browser(live), "ida@corp.test").status_code == 401
    check_people(live)
    assert people.find_user("ida@corp.test").disabled_at is not None


def test_what_the_operator_disabled_stays_disabled(live: Running, server: DirectoryServer) -> None:
    server.hire("jon", "ops")
    enter(Browser(live), "jon")
    accounts.disable_account("jon@corp.test")
    check_people(live)
    page = enter(Browser(live), "jon")
    assert (page.status_code, "disabled" in page.text) == (403, True)


def test_a_directory_that_loses_most_people_at_once_is_not_believed(
    live: Running, server: DirectoryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"kim{number}" for number in range(6)]
    for name in names:
        server.hire(name, "ops")
        enter(Browser(live), name)
    client = live.services.directories.clients[0]
    with monkeypatch.context() as patched:
        patched.setattr(client, "directory", replace(client.directory, user_filter="(uid=kim0)"))
        check_people(live)
    assert all(people.find_user(f"{name}@corp.test").disabled_at is None for name in names)
    assert "are gone at once" in DirectoryCheckRow.get().problem
    check_people(live)
    assert DirectoryCheckRow.get().problem == ""


def test_one_process_checks_every_five_minutes(live: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    checked: list[str] = []

    def check(client: DirectoryClient) -> str:
        checked.append(client.directory.id)
        return ""

    monkeypatch.setattr("appliance.tenants.single_sign_on.departures.check_directory", check)
    check_people(live)
    live.services.directories.check_people()
    assert checked == ["corp"]
    row = DirectoryCheckRow.get()
    assert 290_000 < row.due_at - clock.now_ms() <= 300_000


# -- a directory that does not answer


def test_a_directory_that_does_not_answer_is_said_and_local_accounts_still_work(live: Running, server: DirectoryServer) -> None:
    server.hire("lea", "ops")
    enter(Browser(live), "lea")
    server.stop()
    try:
        for login in ("lea", "lea@corp.test", "unheard-of"):
            page = enter(Browser(live), login)
            assert (page.status_code, "Corp cannot check passwords at the moment" in page.text) == (503, True)
        assert enter(Browser(live), "owner@acme.test", LOCAL).status_code == 200
        assert enter(Browser(live), "owner@acme.test", "wrong").status_code == 401
        check_people(live)
        assert "does not accept connections" in DirectoryCheckRow.get().problem
        assert people.find_user("lea@corp.test").disabled_at is None
    finally:
        server.start()
    assert enter(Browser(live), "lea").status_code == 200
