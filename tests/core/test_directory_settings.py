"""What the configuration says about directories, and what of it is refused."""

from pathlib import Path
from typing import Any

import pytest

from appliance.core.config import load_config
from appliance.core.config.directories import read_authority, read_bind_password, server_of
from appliance.core.config.view import list_settings
from appliance.core.errors import ConfigInvalid

DIRECTORY = {"id": "corp", "urls": ["ldaps://dc1.example.com"], "base_dn": "dc=example,dc=com"}
ROLE = {"group": "cn=ops,dc=example,dc=com", "tenant": "acme", "role": "operator"}


def load(*directories: Any, **settings: Any) -> Any:
    flags = {"sign_in.directories": list(directories), **{f"sign_in.{name}": value for name, value in settings.items()}}
    return load_config(environment={}, flags=flags)


def test_a_directory_is_read_with_its_defaults() -> None:
    (directory,) = load(DIRECTORY).sign_in.directories
    assert (directory.login_attributes, directory.id_attribute, directory.groups) == (("uid",), "entryUUID", "none")
    assert (directory.label, directory.issuer, directory.link_by) == ("corp", "directory:corp", "none")


@pytest.mark.parametrize(("url", "server"), [
    ("ldaps://dc1.example.com", ("dc1.example.com", 636, "tls")), ("ldap://dc1.example.com", ("dc1.example.com", 389, "starttls")),
    ("ldaps://[::1]:3269", ("::1", 3269, "tls")),
])  # fmt: skip
def test_every_server_is_reached_with_tls(url: str, server: tuple[str, int, str]) -> None:
    assert server_of(url) == server


@pytest.mark.parametrize(("changed", "words"), [
    ({"id": "Corp"}, "lower-case"), ({"urls": []}, "urls must not be empty"), ({"urls": ["https://dc1"]}, "urls contains 'https://dc1'"),
    ({"urls": ["ldaps://user@dc1"]}, "urls contains"), ({"urls": ["ldaps://dc1/dc=example"]}, "urls contains"),
    ({"base_dn": " "}, "base_dn must not be empty"), ({"user_filter": "uid=*"}, "in parentheses"),
    ({"login_attributes": []}, "login_attributes must not be empty"),
    ({"login_attributes": ["uid)(x"]}, "'uid)(x' is not the name of an attribute"), ({"timeout_seconds": 0}, "timeout_seconds"),
    ({"timeout_seconds": 61}, "timeout_seconds"), ({"bind_dn": "cn=gos"}, "must be set together"),
    ({"bind_password": "x"}, "must be set together"),
    ({"bind_dn": "cn=gos", "bind_password": "x", "bind_password_file": "/x"}, "cannot be combined"),
    ({"bind_dn": "cn=gos", "bind_password_file": "x"}, "bind_password_file must be an absolute path"),
    ({"ca_file": "x"}, "ca_file must be an absolute path"), ({"groups": "member_of"}, "groups and roles must be set together"),
    ({"roles": [ROLE]}, "groups and roles must be set together"),
    ({"groups": "search", "roles": [{**ROLE, "tenant": ""}]}, "group and tenant must not be empty"),
    ({"groups": "all"}, "one of none, member_of, search, nested, in_chain"), ({"link_by": "mail"}, "one of none, login"),
])  # fmt: skip
def test_a_wrong_directory_is_named(changed: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigInvalid) as refusal:
        load({**DIRECTORY, **changed})
    assert "sign_in.directories[0]" in refusal.value.message
    assert words in refusal.value.message


def test_no_two_sources_have_one_id() -> None:
    provider = {"id": "corp", "issuer": "https://id.example.com", "client_id": "gos"}
    with pytest.raises(ConfigInvalid, match="have the id corp"):
        load(DIRECTORY, providers=[provider])
    with pytest.raises(ConfigInvalid, match="have the id corp"):
        load(DIRECTORY, DIRECTORY)


def test_a_directory_is_enough_to_turn_local_accounts_off() -> None:
    assert not load(DIRECTORY, local_accounts=False, break_glass="root").sign_in.local_accounts
    with pytest.raises(ConfigInvalid, match="break_glass"):
        load(DIRECTORY, local_accounts=False)


def test_password_and_authority_are_read_from_files(tmp_path: Path) -> None:
    file = tmp_path / "password"
    settings = {**DIRECTORY, "bind_dn": "cn=gos", "bind_password_file": str(file), "ca_file": str(file)}
    (directory,) = load(settings).sign_in.directories
    for content, words in ((None, "No such file"), (b"\xff", "not UTF-8"), (b" \n", "is empty")):
        if content is not None:
            file.write_bytes(content)
        with pytest.raises(ConfigInvalid, match=f"bind_password_file of corp.*{words}"):
            read_bind_password(directory)
    file.write_text("hush\n")
    assert (read_bind_password(directory), read_authority(directory)) == ("hush", "hush\n")


def test_the_password_is_not_shown() -> None:
    config = load({**DIRECTORY, "bind_dn": "cn=gos", "bind_password": "hush81f3"})
    (view,) = [each for each in list_settings(config)["sign_in"] if each.name == "sign_in.directories"]
    assert (view.value, "hush81f3" in repr(config)) == ("corp: ldaps://dc1.example.com", False)
