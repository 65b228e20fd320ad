"""What a real directory answers: who somebody is, their password, their groups; and that no login can change a question."""

import socket
from collections.abc import Iterator
from contextlib import suppress
from threading import Thread
from typing import Any

import pytest

from appliance.connectors.egress import Egress
from appliance.connectors.testing import free_port
from appliance.core.config import load_config
from appliance.tenants.directories import DirectoryClient, DirectoryFailed, parse_dn
from tests.directory_server import PASSWORD, PEOPLE, POSIX, REPLACE, DirectoryServer, running_directory


@pytest.fixture(scope="module")
def server() -> Iterator[DirectoryServer]:
    with running_directory() as server:
        server.hire("ann", "ops")
        server.hire("bob", "backend")
        server.hire("weird)(uid=*", "dev", cn="Weird")
        server.hire(POSIX)
        yield server


def client_of(server: DirectoryServer, **changed: Any) -> DirectoryClient:
    config = load_config(environment={}, flags={"sign_in.directories": [server.describe(**changed)]})
    return DirectoryClient(config.sign_in.directories[0], Egress.of(["127.0.0.0/8"]))


def names_of(groups: frozenset[str]) -> set[str]:
    return {each.partition(",")[0].removeprefix("cn=") for each in groups}


# -- who somebody is


@pytest.mark.parametrize("url", ["url", "starttls_url"])
def test_somebody_is_known_by_each_login_attribute(server: DirectoryServer, url: str) -> None:
    client = client_of(server, urls=[getattr(server, url)])
    by_uid, by_mail = client.find_person("ann"), client.find_person("ANN@corp.test")
    assert by_uid is not None
    assert by_uid == by_mail
    assert (by_uid.dn, by_uid.login, by_uid.is_disabled) == (f"uid=ann,{PEOPLE}", "ann@corp.test", False)
    assert len(by_uid.subject) == 36
    assert client.find_person("nobody") is None
    assert client.find_people([by_uid.subject, "7f000000-0000-4000-8000-000000000000"]) == {by_uid.subject: by_uid}


HOSTILE = ["*", "a*", "*)(uid=*", "ann)(objectClass=*", "ann)(|(uid=*", "\\2a", "a\\nn", "ann\x00", "(", ")", "&"]


@pytest.mark.parametrize("login", HOSTILE)
def test_no_login_is_part_of_a_filter(server: DirectoryServer, login: str) -> None:
    assert client_of(server).find_person(login) is None


def test_a_login_with_the_signs_of_filters_is_only_that_login(server: DirectoryServer) -> None:
    person = client_of(server).find_person("weird)(uid=*")
    assert person is not None
    assert person.name == "weird)(uid=*"
    assert names_of(client_of(server).list_groups(person)) == {"dev"}


def test_a_filter_restricts_who_may_sign_in(server: DirectoryServer) -> None:
    client = client_of(server, user_filter="(&(objectClass=person)(!(uid=ann)))")
    assert client.find_person("ann") is None
    assert client.find_person("bob") is not None


def test_two_entries_with_one_login_are_nobody(server: DirectoryServer) -> None:
    with pytest.raises(DirectoryFailed, match="two entries have the same login"):
        client_of(server, login_attributes=["objectClass"]).find_person("inetOrgPerson")


# -- passwords


def test_a_password_is_right_or_not(server: DirectoryServer) -> None:
    client = client_of(server)
    ann = client.find_person("ann")
    assert ann is not None
    assert client.is_password_right(ann, PASSWORD)
    assert not client.is_password_right(ann, "wrong")


def test_an_empty_password_never_reaches_the_directory(server: DirectoryServer) -> None:
    ann = client_of(server).find_person("ann")
    assert ann is not None
    unreachable = client_of(server, urls=[f"ldaps://127.0.0.1:{free_port()}"])
    assert not unreachable.is_password_right(ann, "")


def test_a_locked_account_is_refused_though_its_password_is_right(server: DirectoryServer) -> None:
    dn = server.hire("lock")
    client = client_of(server)
    person = client.find_person("lock")
    assert person is not None
    assert client.is_password_right(person, PASSWORD)
    server.change(dn, REPLACE, "pwdAccountLockedTime", "000001010000Z")
    assert not client.is_password_right(person, PASSWORD)
    locked = client.find_person("lock")
    assert locked is not None
    assert locked.is_disabled


# -- groups


def test_groups_by_search_memberof_and_nesting(server: DirectoryServer) -> None:
    for how, name, groups in (
        ("none", "ann", set()), ("search", "ann", {"ops"}), ("member_of", "ann", {"ops"}), ("search", "bob", {"backend"}),
        ("member_of", "bob", {"backend"}), ("nested", "bob", {"backend", "dev"}),
    ):  # fmt: skip
        client = client_of(server, groups=how, **({"roles": []} if how == "none" else {}))
        person = client.find_person(name)
        assert person is not None
        assert names_of(client.list_groups(person)) == groups, how


def test_groups_that_list_logins(server: DirectoryServer) -> None:
    client = client_of(server, group_attribute="memberUid")
    pam, ann = client.find_person(POSIX), client.find_person("ann")
    assert pam is not None
    assert ann is not None
    assert (names_of(client.list_groups(pam)), client.list_groups(ann)) == ({"unix"}, frozenset())


def test_active_directory_is_asked_for_nested_groups_by_its_rule(server: DirectoryServer, monkeypatch: pytest.MonkeyPatch) -> None:
    searches: list[Any] = []
    client = client_of(server, groups="in_chain")
    bob = client.find_person("bob")
    assert bob is not None

    def search(search: Any, *, is_complete: bool) -> list[Any]:
        searches.append(search)
        return []

    monkeypatch.setattr(client, "_search", search)
    assert client.list_groups(bob) == frozenset()
    escaped = f"uid=bob,{PEOPLE}".replace("=", "\\3d").replace(",", "\\2c")
    assert searches[0]["filter"] == f"(member:1.2.840.113556.1.4.1941:={escaped})"
    monkeypatch.undo()
    assert client.list_groups(bob) == frozenset(), "slapd understands the filter, and has no such rule"


def test_names_of_groups_are_compared_as_directories_do() -> None:
    assert parse_dn("CN=Ops\\, Night,  OU=Groups,dc=corp") == parse_dn("cn=ops\\2c night,ou=groups,DC=Corp")
    assert parse_dn("cn=a+ou=b,dc=x") == parse_dn("OU=B + CN=A , DC=X")
    assert parse_dn("cn=ops,ou=groups") != parse_dn("cn=ops\\,ou=groups")
    assert parse_dn("cn=ops,ou=groups") != parse_dn("cn=ops,ou=groups,dc=evil")


# -- servers


def test_the_next_server_is_asked_and_remembered(server: DirectoryServer) -> None:
    dead = f"ldaps://127.0.0.1:{free_port()}"
    client = client_of(server, urls=[dead, server.url])
    assert client.find_person("ann") is not None
    assert client._first == 1
    with pytest.raises(DirectoryFailed, match="does not accept connections"):
        client_of(server, urls=[dead, dead]).find_person("ann")


def test_what_is_wrong_with_the_settings_is_said(server: DirectoryServer) -> None:
    assert "127.0.0.1" in client_of(server).check()
    for changed, words in (
        ({"bind_password": "wrong"}, "does not accept"), ({"base_dn": f"ou=none,{PEOPLE}"}, "no entry with this DN"),
        ({"ca_file": ""}, "add its authority to `ca_file`"), ({"urls": [server.url.replace("ldaps", "ldap")]}, "127.0.0.1"),
        ({"id_attribute": "employeeNumber"}, "has no employeeNumber"), ({"user_filter": "(uid=)(x)"}, "syntax error"),
    ):  # fmt: skip
        client = client_of(server, **{"timeout_seconds": 2, **changed})
        with pytest.raises(DirectoryFailed, match=words):
            client.check()


def test_a_server_that_refers_to_another_one_is_not_followed(server: DirectoryServer) -> None:
    server.add(
        f"ou=abroad,{PEOPLE}", objectClass=("referral", "extensibleObject"), ou="abroad", ref=f"ldap://127.0.0.2:9/{PEOPLE}"
    )
    try:
        assert client_of(server).find_person("ann") is not None
        assert client_of(server).find_person("elsewhere") is None
    finally:
        server.remove(f"ou=abroad,{PEOPLE}")


def test_a_directory_outside_the_rules_of_egress_is_not_reached(server: DirectoryServer) -> None:
    config = load_config(environment={}, flags={"sign_in.directories": [server.describe()]})
    with pytest.raises(DirectoryFailed, match="not reachable from here"):
        DirectoryClient(config.sign_in.directories[0], Egress.of([])).find_person("ann")


def test_a_directory_that_never_answers_takes_its_time_limit_only(server: DirectoryServer) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        accepting = Thread(target=_accept, args=(silent,), daemon=True)
        accepting.start()
        client = client_of(server, urls=[f"ldaps://127.0.0.1:{silent.getsockname()[1]}"], timeout_seconds=1)
        with pytest.raises(DirectoryFailed, match="did not answer in time"):
            client.find_person("ann")
        accepting.join(20)


def _accept(silent: socket.socket) -> None:
    """Read what comes until the client hangs up, and answer nothing."""
    with suppress(OSError), silent.accept()[0] as client:
        while client.recv(65536):
            pass


def test_a_value_in_bytes_identifies_somebody(server: DirectoryServer) -> None:
    """As objectGUID does in Active Directory: it is compared byte by byte."""
    dn = server.hire("photo")
    server.change(dn, REPLACE, "jpegPhoto", "\u00ff(\u0000*)")
    client = client_of(server, id_attribute="jpegPhoto", user_filter="(jpegPhoto=*)")
    person = client.find_person("photo")
    assert person is not None
    assert person.subject == "hex:" + "\u00ff(\u0000*)".encode().hex()
