"""The contract suite and searches against a real slapd."""

import base64
from typing import Any

import pytest
from gos_connector_ldap import LdapConnector

from appliance.connectors.contract import ConfigError, Context, Rejected
from appliance.connectors.testing import ConnectorContract, schema_problems

Directory = Any
PEOPLE = "ou=people,dc=example,dc=com"
NAMES = {"anna": "Anna Müller", "bob": "Bob (the) *builder*\\", "carla": "Carla Ångström"}


class TestContract(ConnectorContract):
    connector = LdapConnector

    @pytest.fixture
    def settings(self, directory: Directory) -> dict[str, Any]:
        return dict(directory.tls)

    @pytest.fixture
    def broken_settings(self) -> dict[str, Any]:
        return {"host": "127.0.0.1", "port": 1}


@pytest.fixture
def it(directory: Directory) -> LdapConnector:
    return LdapConnector(directory.tls)


def search_uids(it: LdapConnector, ctx: Context, **params: Any) -> list[str]:
    entries = it.call("search", {"base": PEOPLE, "scope": "one", "attributes": ["uid"], **params}, ctx)["entries"]
    return sorted(entry["attributes"]["uid"][0] for entry in entries)


@pytest.mark.parametrize("encryption", ["tls", "starttls", "off"])
def test_every_encryption_lets_search(directory: Directory, ctx: Context, encryption: str) -> None:
    it = LdapConnector(getattr(directory, encryption))
    assert search_uids(it, ctx, where={"uid": "anna"}, limit=10) == ["anna"]
    message = it.check(ctx)
    assert ("answers without a sign-in" if encryption == "off" else "as cn=gos,dc=example,dc=com") in message
    assert "; dc=example,dc=com is visible" in message


def test_signing_in_reveals_hidden_entries(directory: Directory, ctx: Context) -> None:
    hidden = {"dn": "uid=dora,ou=hidden,dc=example,dc=com"}
    assert LdapConnector(directory.starttls).call("get", hidden, ctx)["entry"]["attributes"]["cn"] == ["Dora"]
    assert LdapConnector(directory.off).call("get", hidden, ctx) == {"entry": None}


@pytest.mark.parametrize(
    ("where", "uids"),
    [
        ({"cn": NAMES["bob"]}, ["bob"]),
        ({"cn": "Bob*"}, []),
        ({"cn": "*)(uid=*"}, []),
        ({"cn": {"_contains": "*"}}, ["bob"]),
        ({"cn": {"_contains": "\\"}}, ["bob"]),
        ({"cn": {"_starts_with": "anna m", "_ends_with": "ÜLLER"}}, ["anna"]),
        ({"mail": "A.MUELLER@example.com"}, ["anna"]),
        ({"uid": {"_in": ["anna", "carla", "nobody"]}}, ["anna", "carla"]),
        ({"uid": {"_nin": ["anna", "carla"]}}, ["bob"]),
        ({"employeeType": {"_neq": "builder"}}, ["anna", "carla"]),
        ({"manager": {"_null": False}}, ["carla"]),
        ({"manager": {"_null": True}, "mail": {"_null": False}}, ["anna", "bob"]),
        ({"manager": "uid=anna, ou=people, dc=example, dc=com"}, ["carla"]),
        ({"roomNumber": 7}, ["carla"]),
        ({"_or": [{"uid": "anna"}, {"_and": [{"uid": "bob"}, {"sn": "bob"}]}]}, ["anna", "bob"]),
        ({"_not": {"_or": [{"uid": "anna"}, {"uid": "bob"}]}}, ["carla"]),
        ({"cn": {"_rule": {"id": "2.5.13.5", "value": "Anna Müller"}}}, ["anna"]),
        ({"cn": {"_rule": {"id": "2.5.13.5", "value": "ANNA MÜLLER"}}}, []),
        ({"modifyTimestamp": {"_gte": "20200101000000Z"}}, ["anna", "bob", "carla"]),
        ({"modifyTimestamp": {"_lte": "20200101000000Z"}}, []),
        ({}, ["anna", "bob", "carla"]),
    ],
)
def test_conditions_match_the_expected_entries(it: LdapConnector, ctx: Context, where: dict[str, Any], uids: list[str]) -> None:
    assert search_uids(it, ctx, where=where) == uids


@pytest.mark.parametrize(
    ("text", "uids"),
    [
        ("(uid=anna)", ["anna"]),
        ("(&(objectClass=person)(|(uid=anna)(uid=bob))(!(uid=bob)))", ["anna"]),
        (r"(cn=bob \28the\29 \2abuilder\2a\5c)", ["bob"]),
        ("(cn=*a*r*)", ["anna", "carla"]),
        ("(cn=A*)", ["anna"]),
        (r"(cn=*m\c3\bcller)", ["anna"]),
        ("(manager=*)", ["carla"]),
        ("(cn~=anna müller)", ["anna"]),
        ("(cn:2.5.13.5:=Anna Müller)", ["anna"]),
        ("(ou:dn:=people)", ["anna", "bob", "carla"]),
        ("(modifyTimestamp>=20200101000000Z)", ["anna", "bob", "carla"]),
        ("(modifyTimestamp<=20200101000000Z)", []),
    ],
)
def test_ldap_filters_match_the_expected_entries(it: LdapConnector, ctx: Context, text: str, uids: list[str]) -> None:
    assert search_uids(it, ctx, filter=text) == uids


def test_text_values_stay_text_and_bytes_become_base64(it: LdapConnector, ctx: Context) -> None:
    params = {"dn": f"uid=anna,{PEOPLE}", "attributes": ["CN", "jpegphoto", "mail", "uid"], "binary": ["UID"]}
    entry = it.call("get", params, ctx)["entry"]
    assert entry["dn"] == f"uid=anna,{PEOPLE}"
    assert entry["attributes"] == {
        "CN": ["Anna Müller"],
        "jpegphoto": [{"base64": base64.b64encode(bytes(range(256))).decode()}],
        "mail": ["anna@example.com", "a.mueller@example.com"],
        "uid": [{"base64": "YW5uYQ=="}],
    }


def test_a_missing_entry_is_null(it: LdapConnector, ctx: Context) -> None:
    assert it.call("get", {"dn": f"uid=nobody,{PEOPLE}"}, ctx) == {"entry": None}
    with pytest.raises(Rejected, match="has no entry with this DN"):
        it.call("search", {"base": f"ou=nowhere,{PEOPLE}"}, ctx)


@pytest.mark.parametrize(("page_size", "limit", "count", "truncated"), [
    (500, 10_000, 620, False), (100, 10_000, 620, False), (500, 620, 620, False), (100, 619, 619, True), (500, 1, 1, True),
])  # fmt: skip
def test_pages_are_read_until_the_limit(
    directory: Directory, ctx: Context, page_size: int, limit: int, count: int, truncated: bool
) -> None:
    it = LdapConnector({**directory.tls, "page_size": page_size})
    answer = it.call("search", {"where": {"sn": "many"}, "attributes": ["cn"], "limit": limit}, ctx)
    assert (len({entry["dn"] for entry in answer["entries"]}), answer["truncated"]) == (count, truncated)


def test_a_size_limit_of_the_directory_truncates_the_result(directory: Directory, ctx: Context) -> None:
    it = LdapConnector({**directory.off, "page_size": 200})
    answer = it.call("search", {"where": {"sn": "many"}, "attributes": ["cn"], "limit": 10_000}, ctx)
    assert (len(answer["entries"]), answer["truncated"]) == (300, True)


def test_a_page_size_the_directory_refuses_is_reported(directory: Directory, ctx: Context) -> None:
    with pytest.raises(Rejected, match="lower `page_size`"):
        LdapConnector(directory.off).call("search", {"where": {"sn": "many"}}, ctx)


def test_referrals_are_returned_and_not_followed(it: LdapConnector, ctx: Context) -> None:
    answer = it.call("search", {"where": {"uid": "anna"}}, ctx)
    assert [entry["dn"] for entry in answer["entries"]] == [f"uid=anna,{PEOPLE}"]
    assert answer["referrals"] == ["ldap://127.0.0.2:9/ou=branch,dc=example,dc=com??sub"]
    with pytest.raises(Rejected, match="query the servers in `referrals`") as caught:
        it.call("search", {"base": "ou=x,ou=branch,ou=elsewhere,dc=example,dc=com"}, ctx)
    assert caught.value.details["referrals"][0].startswith("ldap://127.0.0.2:9/")


def test_describe_names_the_trees(it: LdapConnector, ctx: Context) -> None:
    root = it.call("describe", {}, ctx)["root"]
    assert root["namingContexts"] == ["dc=example,dc=com"]
    assert "1.2.840.113556.1.4.319" in root["supportedControl"]


@pytest.mark.parametrize(
    ("params", "error"),
    [
        ({"where": {"uid": "a"}, "filter": "(uid=a)"}, "not both"),
        ({"where": {"uid)(": "a"}}, "not a valid attribute name"),
        ({"where": {"uid": {"_like": "a"}}}, "no operator '_like'"),
        ({"where": {"uid": {}}}, "uid is empty"),
        ({"where": {"uid": None}}, "use `_null`"),
        ({"where": {"uid": {"_contains": ""}}}, "non-empty"),
        ({"where": {"uid": {"_in": []}}}, "list of values"),
        ({"where": {"_or": []}}, "list of conditions"),
        ({"where": {"_or": [{}]}}, "condition is empty"),
        ({"where": {"_not": "a"}}, "condition must be an object"),
        ({"where": {"uid": {"_null": "yes"}}}, "true or false"),
        ({"where": {"uid": {"_rule": {"id": "2.5:", "value": "a"}}}}, "id` of a matching rule"),
        ({"where": {"uid": "\ud800"}}, "unpaired surrogate"),
        ({"filter": "(uid=a"}, "position 7"),
        ({"filter": "uid=a"}, "position 1"),
        ({"filter": "(uid=a))"}, "position 8"),
        ({"filter": "(&)"}, "position 3"),
        ({"filter": "(uid=a\\zz)"}, "are escaped"),
        ({"filter": "(uid=a\x00)"}, "are escaped"),
        ({"filter": "(uid=a**b)"}, "without \\*\\*"),
        ({"filter": "(:=a)"}, "position 2"),
        ({"filter": "(uid>=a*)"}, "are escaped"),
        ({"filter": "(!" * 60 + "(uid=a)" + ")" * 60}, "more than 50 deep"),
    ],
)
def test_invalid_searches_are_rejected_before_sending(params: dict[str, Any], error: str, ctx: Context) -> None:
    it = LdapConnector({"host": "127.0.0.1", "port": 1, "base_dn": "dc=x"})
    with pytest.raises(ConfigError, match=error):
        it.call("search", params, ctx)


def test_conditions_that_are_nested_too_deep_are_refused(it: LdapConnector, ctx: Context) -> None:
    where: dict[str, Any] = {"uid": "a"}
    for _ in range(60):
        where = {"_not": where}
    with pytest.raises(ConfigError, match="more than 50 deep"):
        it.call("search", {"where": where}, ctx)


def test_a_search_needs_a_base(directory: Directory, ctx: Context) -> None:
    settings = {name: value for name, value in directory.tls.items() if name != "base_dn"}
    with pytest.raises(ConfigError, match="has no base"):
        LdapConnector(settings).call("search", {"where": {"uid": "anna"}}, ctx)


@pytest.mark.parametrize(
    ("settings", "fits"),
    [
        ({"host": "a"}, True),
        ({"host": "a", "bind_dn": "cn=a", "password": "b"}, True),
        ({"host": "a", "bind_dn": "cn=a"}, False),
        ({"host": "a", "bind_dn": "cn=a", "password": ""}, False),
        ({"host": "a", "bind_dn": "", "password": "b"}, False),
        ({"host": "a", "password": "b"}, False),
    ],
)
def test_settings_require_a_non_empty_password_with_bind_dn(settings: dict[str, Any], fits: bool) -> None:
    assert (schema_problems(LdapConnector.settings_schema, settings) == []) is fits
