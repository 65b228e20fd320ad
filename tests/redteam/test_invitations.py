"""Surface: invitations, passwords and sessions: links used again, too late or by others, and sessions that are planted."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from appliance.core import clock
from appliance.core.database import db
from appliance.core.errors import ApplianceError, Gone, ScopeMissing, ValidationFailed
from appliance.core.scope import TenantScope
from appliance.tenants import InvitationSpec, invitations, people, scopes_of_role
from appliance.tenants import service as tenants
from appliance.tenants.keys import keys
from appliance.tenants.sign_in import SignInFailed
from appliance.testing.running import Running
from tests.api.resources import fresh
from tests.console.browser import Browser
from tests.redteam.attempts import Attempts, attempts

PASSWORD, OTHER = "correct horse battery", "another horse, another battery"


class Guild:
    """A tenant with people who invite."""

    def __init__(self, running: Running, name: str) -> None:
        self.running, self.name, self.sealer = running, name, running.services.sealer
        self.system = running.tenant(name)

    def person(self, role: str | None) -> tuple[str, TenantScope]:
        login = f"{fresh('member')}@{self.name}.test"
        user_id = self.running.user(login, PASSWORD, self.name if role else None, role or "viewer")
        return login, TenantScope(self.name, f"user:{user_id}", scopes_of_role(role or "viewer"))

    def invite(self, scope: TenantScope, role: str = "builder", login: str = "") -> tuple[str, str, str]:
        """Login, id and token of a new invitation."""
        login = login or f"{fresh('guest')}@{self.name}.test"
        invitation, token = invitations.invite(scope, self.sealer, InvitationSpec(login, role))
        return login, invitation.id, token

    def accept(self, token: str, password: str = PASSWORD) -> Any:
        return invitations.accept(self.sealer, token, password)

    def members(self) -> set[str]:
        return {f"{member.login} {member.role}" for member in people.list_members(self.system)}


@pytest.fixture(scope="module")
def guild(running: Running) -> Guild:
    return Guild(running, "guild")


def test_an_invitation_link_works_once_and_only_as_issued(running: Running, guild: Guild) -> None:
    _, owner = guild.person("owner")
    guild.person("owner")
    with attempts() as table:
        login, _, token = guild.invite(owner)
        before = guild.members()
        for name, wrong in {
            "the end cut off": token[:-1],
            "a letter more": token + "A",
            "in capitals": token.upper(),
            "turned around": token[::-1],
            "a space behind": token + " ",
            "nothing": "",
            "a NUL": token + "\0",
            "half a surrogate": "\ud800",
            "a novel": "A" * 100_000,
            "a wildcard": "%",
            "its digest": guild.sealer.digest(f"invitation/{token}".encode()).hex(),
        }.items():
            table.refused(name, lambda: guild.accept(wrong), Gone)  # noqa: B023
        table.check("nobody came by them", guild.members() == before)
        table.refused("a password of eleven letters", lambda: guild.accept(token, "a" * 11), ValidationFailed)
        table.check("no account of it", not db.rows("SELECT 1 FROM person WHERE login = ?", (login,)))
        guild.accept(token)
        table.check("the control: it opens", f"{login} builder" in guild.members(), guild.members())
        table.refused("twice", lambda: guild.accept(token), Gone)
        table.refused("twice, another password", lambda: guild.accept(token, OTHER), Gone)
        _check_at_once(table, guild, owner)
        _check_old_links(table, guild, owner)
        _check_departed_inviters(table, guild)
        _check_existing_account(table, guild, owner)


def _check_at_once(table: Attempts, guild: Guild, owner: TenantScope) -> None:
    login, _, token = guild.invite(owner)

    def accept(number: int) -> str:
        try:
            guild.accept(token, f"{PASSWORD} {number}")
        except ApplianceError as error:
            return error.code
        return "in"

    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(accept, range(8)))
    accounts = db.rows("SELECT count(*) FROM person WHERE login = ?", (login,))
    table.check("eight at once", answers.count("in") == 1 and accounts == [(1,)], (answers, accounts))


def _check_old_links(table: Attempts, guild: Guild, owner: TenantScope) -> None:
    """Links that were good once."""
    _, revoked, token = guild.invite(owner)
    invitations.revoke_invitation(owner, revoked)
    table.refused("taken back", lambda: guild.accept(token), Gone)
    login, _, replaced = guild.invite(owner, "owner")
    guild.invite(owner, "viewer", login)
    table.refused("replaced by a smaller role", lambda: guild.accept(replaced), Gone)
    _, late, old = guild.invite(owner)
    db.write(lambda: db.execute("UPDATE invitation SET expires_at = ? WHERE id = ?", (clock.now_ms(), late)))
    table.refused("too old", lambda: guild.accept(old), Gone)
    foreign = Guild(guild.running, fresh("lodge"))
    foreign.person("owner")
    _, theirs = foreign.person("owner")
    _, _, elsewhere = foreign.invite(theirs)
    table.refused("revoked by another tenant", lambda: invitations.revoke_invitation(owner, foreign_id(foreign)), ApplianceError)
    before = guild.members()
    foreign.accept(elsewhere)
    table.check("another tenant's link leads there alone", guild.members() == before)
    _, _, orphan = foreign.invite(theirs)
    tenants.delete_tenant(foreign.name)
    table.refused("of a tenant that is gone", lambda: guild.accept(orphan), Gone)


def foreign_id(guild: Guild) -> str:
    return invitations.list_invitations(guild.system)[0].id


def _check_departed_inviters(table: Attempts, guild: Guild) -> None:
    """Whoever invited may not any more."""
    for name, change in {
        "the inviter was removed": lambda scope, login: people.remove_member(guild.system, scope.actor.partition(":")[2]),
        "the inviter is a viewer now": lambda scope, login: people.add_member(guild.system, login, "viewer"),
        "the inviter is an operator now": lambda scope, login: people.add_member(guild.system, login, "operator"),
    }.items():
        login, inviter = guild.person("owner")
        _, _, token = guild.invite(inviter, "owner")
        change(inviter, login)  # type: ignore[no-untyped-call]
        table.refused(name, lambda: guild.accept(token), Gone)  # noqa: B023
    _, owner = guild.person("owner")
    row, _ = keys.issue_key(owner, guild.sealer, keys.KeySpec("ci", sorted(owner.scopes)))
    _, _, token = guild.invite(owner.with_actor(f"key:{row.id}"))
    keys.revoke_key(owner, row.id)
    table.refused("the key that invited was revoked", lambda: guild.accept(token), Gone)
    for role, target in (("viewer", "viewer"), ("viewer", "owner"), ("operator", "builder"), ("builder", "owner")):
        _, scope = guild.person(role)
        if scopes_of_role(target) - scope.scopes:
            table.refused(f"a {role} invites a {target}", lambda: guild.invite(scope, target), ScopeMissing)  # noqa: B023


def _check_existing_account(table: Attempts, guild: Guild, owner: TenantScope) -> None:
    """Links for somebody who has an account."""
    login, _ = guild.person(None)
    _, _, token = guild.invite(owner, "owner", login.upper())
    table.refused("somebody else's account, a new password", lambda: guild.accept(token, OTHER), SignInFailed)
    table.refused("somebody else's account, no password", lambda: guild.accept(token, ""), SignInFailed)
    table.check("its password is what it was", people.check_password(login, PASSWORD).login == login)
    table.check("nobody came in", f"{login} owner" not in guild.members())
    people.add_member(guild.system, login, "viewer")
    table.refused("after a role was given", lambda: guild.accept(token), Gone)
    table.check("which stays as it was given", f"{login} viewer" in guild.members())


PATHS = [
    "forgot-password", "reset-password", "password/reset", "recover", "account/recover", "sign-in/forgot", "console/reset-password",
    "api/v1/password/reset", "users/password/new", "console/account/password?user=owner%40acme.test",
]  # fmt: skip


def test_changing_a_password_needs_the_old_one(running: Running, guild: Guild) -> None:
    """Without it, only a link by mail replaces a password, or whoever runs the machine (`gos user password`)."""
    login, _ = guild.person("owner")
    mine, elsewhere = Browser(running), Browser(running)
    for browser in (mine, elsewhere):
        assert browser.sign_in(login, PASSWORD, guild.name).status_code == 200
    address = mine.at(guild.name, "/console/account/password")
    new = {"password": OTHER, "again": OTHER}
    with attempts() as table:
        for host in ("", f"{guild.name}."):
            with running.client(f"{host}localhost", {"Sec-Fetch-Site": "same-origin"}) as client:
                for path in PATHS:
                    sent = client.post(f"/{path}", data={"login": login, "email": login, **new})
                    away = sent.status_code in (303, 401, 403, 404, 405)
                    table.check(f"{path} on {host or 'the base host'}", away, (sent.status_code, sent.headers, sent.text))
                for token in ("", "guessed", "%", "null", "A" * 43):
                    form = {"token": token, "login": login, "password": OTHER}
                    status = client.post("/password/new", data=form).status_code
                    table.check(f"a link of {token!r} on {host or 'the base host'}", status in (404, 410), status)
        for name, form in {
            "without the old one": new,
            "with an empty old one": new | {"old": ""},
            "with a wrong one": new | {"old": OTHER},
            "for somebody else": new | {"old": OTHER, "login": "owner@acme.test", "user_id": "usr_1"},
            "two that differ": {"old": PASSWORD, "password": OTHER, "again": PASSWORD},
            "a short one": {"old": PASSWORD, "password": "x", "again": "x"},
            "the same": {"old": PASSWORD, "password": PASSWORD, "again": PASSWORD},
        }.items():
            answer = mine.post(address, form)
            table.check(name, answer.status_code >= 400, (answer.status_code, answer.url))
        cross = mine.post(address, {"old": PASSWORD, **new}, **{"Sec-Fetch-Site": "cross-site"})
        table.check("by a form of another site", cross.status_code == 403, cross.status_code)
        table.check("it is what it was", people.check_password(login, PASSWORD).login == login)
        mine.post(address, {"old": PASSWORD, **new})
        table.refused("the old one afterwards", lambda: people.check_password(login, PASSWORD), SignInFailed)
        for name, browser in {"this session": mine, "a session elsewhere": elsewhere}.items():
            page = browser.get(browser.at(guild.name, "/console/account"))
            table.check(f"{name} goes on", 'name="old"' not in page.text, page.url)
        assert people.check_password(login, OTHER).login == login, "the control: it is the new one"


def test_signing_in_replaces_planted_session_cookies(running: Running, guild: Guild) -> None:
    login, _ = guild.person("owner")
    control = Browser(running)
    control.sign_in(login, PASSWORD, guild.name)
    jars = {host: dict(jar) for host, jar in control.cookies.items()}
    planted = {host: {name: f"planted-{number}" for number, name in enumerate(jar)} for host, jar in jars.items()}
    victim = Browser(running, {host: dict(jar) for host, jar in planted.items()})
    assert victim.sign_in(login, PASSWORD, guild.name).status_code == 200
    unchanged = [
        (host, name) for host, jar in planted.items() for name, value in jar.items() if victim.cookies[host].get(name) == value
    ]
    sessions = [each for each in unchanged if "session" in each[1].lower()]
    assert sessions == []
    thief = Browser(running, planted)
    assert 'name="password"' in thief.get(thief.at(guild.name, "/console/")).text
