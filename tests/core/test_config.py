"""Settings: strict, typed, from file, environment and flags in that order."""

import json
from pathlib import Path
from typing import Any

import pytest

from appliance.core import yaml12
from appliance.core.config import Config, load_config, setting_names
from appliance.core.config.example import example
from appliance.core.config.sign_in import read_client_secret
from appliance.core.config.view import list_settings
from appliance.core.errors import ConfigInvalid

ROOT = Path(__file__).parents[2]


def write(folder: Path, text: str) -> Path:
    file = folder / "config.yaml"
    file.write_text(text, "utf8")
    return file


def test_the_example_in_the_root_is_the_generated_one() -> None:
    assert (ROOT / "config.example.yaml").read_text("utf8") == example(), "run: gos config example > config.example.yaml"


def test_the_example_lists_every_setting_with_its_default(tmp_path: Path) -> None:
    document = yaml12.load(example())
    assert [f"{section}.{name}" for section, settings in document.items() for name in settings] == setting_names()
    assert load_config(write(tmp_path, example()), environment={}) == Config()


def test_flags_win_over_environment_over_file(tmp_path: Path) -> None:
    file = write(tmp_path, "server: {port: 1, host: a, max_in_flight: 7}\n")
    environment = {"GOS_PORT": "2", "GOS_HOST": "b", "HOME": "/", "GOS_API_KEY": "not a setting"}
    config = load_config(file, environment=environment, flags={"server.port": 3, "server.host": None})
    assert (config.server.port, config.server.host, config.server.max_in_flight) == (3, "b", 7)


@pytest.mark.parametrize(
    ("variable", "text", "name", "value"),
    [
        ("GOS_DATA", "/x", "storage.data", "/x"),
        ("GOS_SERVER_TRUSTED_PROXIES", "10.0.0.0/8, 192.0.2.1/32", "server.trusted_proxies", ("10.0.0.0/8", "192.0.2.1/32")),
        ("GOS_DEMO_ORDER_SYSTEM", "true", "demo.order_system", True),
        ("GOS_DEMO_ORDER_SYSTEM", "0", "demo.order_system", False),
        ("GOS_LIMITS_JSON_BODY_KB", "64", "limits.json_body_kb", 64),
        ("GOS_LOGS_FORMAT", "text", "logs.format", "text"),
    ],
)
def test_the_environment_is_read_as_the_settings_type(variable: str, text: str, name: str, value: Any) -> None:
    section, setting = name.split(".")
    assert getattr(getattr(load_config(environment={variable: text}), section), setting) == value


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("server: {prot: 8080}", ["server.prot", "server.port", "config.yaml"]),
        ("storage: {writers: 0}", ["storage.writers", "at least 1"]),
        ("sever: {port: 8080}", ["'sever'", "did you mean"]),
        ("server: {port: '8080x'}", ["server.port", "whole number"]),
        ("server: {port: -1}", ["server.port", "zero or more"]),
        ("server: {port: true}", ["server.port", "whole number"]),
        ("server: {tls: maybe}", ["server.tls", "auto, off, internal, files"]),
        ("server: {tls: [auto]}", ["server.tls"]),
        ("server: {tls: files}", ["server.certificate"]),
        ("server: {trusted_proxies: 10.0.0.1/8}", ["10.0.0.1/8", "network"]),
        ("server: {trusted_proxies: [1]}", ["server.trusted_proxies", "list of texts"]),
        ("server: 5", ["section server"]),
        ("- server", ["mapping of sections"]),
        ("server: {port: 1, port: 2}", ["line 1", "appears twice"]),
        ("server: {port", ["line"]),
        ("domains: {base: a.test, content: a.test}", ["must differ"]),
        ("demo: {order_system: 'yes'}", ["true or false"]),
        ("domains: {base: 5}", ["domains.base", "a text"]),
    ],
)
def test_a_wrong_setting_is_named(tmp_path: Path, text: str, words: list[str]) -> None:
    with pytest.raises(ConfigInvalid) as refusal:
        load_config(write(tmp_path, text), environment={})
    assert all(word in refusal.value.message for word in words), refusal.value.message


@pytest.mark.parametrize("content", [b"\xff\xfe", b"a: \x00"])
def test_a_file_that_is_not_text_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "config.yaml").write_bytes(content)
    with pytest.raises(ConfigInvalid, match=r"config\.yaml"):
        load_config(tmp_path / "config.yaml", environment={})


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigInvalid, match="No such file"):
        load_config(tmp_path / "none.yaml", environment={})


@pytest.mark.parametrize(
    ("variable", "near"),
    [
        ("GOS_SERVER_PROT", "GOS_PORT (for server.port)"),
        ("GOS_LIMITS_RATE_REQUEST", "GOS_LIMITS_RATE_REQUESTS (for limits.rate_requests)"),
        ("GOS_SERVICE_HOST", "GOS_"),
        ("GOS_", "GOS_"),
    ],
)
def test_an_unknown_variable_is_ignored_with_a_warning_that_names_the_nearest_setting(variable: str, near: str) -> None:
    config = load_config(environment={variable: "1", "GOS_PORT": "81", "OTHER": "x"})
    assert (config.server.port, len(config.warnings)) == (81, 1)
    assert config.warnings[0].startswith(f"the variable {variable} is not a setting")
    assert near in config.warnings[0]
    assert load_config(environment={"GOS_PORT": "81", "GOS_API_KEY": "k"}).warnings == ()


def test_an_unknown_flag_names_the_nearest_setting() -> None:
    with pytest.raises(ConfigInvalid, match=r"'storage\.data'"):
        load_config(environment={}, flags={"storage.date": "x"})


@pytest.mark.parametrize(
    ("flags", "url"),
    [
        ({}, "http://acme.localhost:8080"),
        ({"server.port": 80}, "http://acme.localhost"),
        ({"server.host": "0.0.0.0", "server.port": 443}, "https://acme.localhost"),
        ({"server.host": "0.0.0.0", "server.tls": "off"}, "http://acme.localhost:8080"),
        ({"server.trusted_proxies": ["127.0.0.1/32"], "server.public_port": 443}, "https://acme.localhost"),
        ({"domains.base": "gos.example", "server.public_port": 8443}, "http://acme.gos.example:8443"),
        ({"server.host": "::1"}, "http://acme.localhost:8080"),
    ],
)
def test_the_address_of_a_tenant(flags: dict[str, Any], url: str) -> None:
    assert load_config(environment={}, flags=flags).tenant_url("acme") == url


PROVIDER = {"id": "corp", "issuer": "https://id.example.com", "client_id": "gos"}
ROLE = {"group": "ops", "tenant": "acme", "role": "operator"}


def provider_flags(*providers: Any, **settings: Any) -> dict[str, Any]:
    return {"sign_in.providers": list(providers), **{f"sign_in.{name}": value for name, value in settings.items()}}


def test_providers_are_read_with_their_roles(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("hush\n")
    text = (
        "sign_in:\n  local_accounts: false\n  break_glass: root@example.com\n  providers:\n"
        "    - {id: corp, issuer: 'https://id.example.com', client_id: gos, groups_claim: groups, allow_unknown: true,\n"
        f"       client_secret_file: {secret}, roles: [{{group: ops, tenant: acme, role: operator, approver: true}}]}}\n"
    )
    section = load_config(write(tmp_path, text), environment={}).sign_in
    (provider,) = section.providers
    assert (provider.label, provider.scopes, provider.link_by) == ("corp", ("email", "profile"), "none")
    assert [(each.group, each.tenant, each.role, each.approver) for each in provider.roles] == [("ops", "acme", "operator", True)]
    assert (section.local_accounts, read_client_secret(provider)) == (False, "hush")


def test_a_section_of_two_words_is_read_from_the_environment() -> None:
    environment = {"GOS_SIGN_IN_BREAK_GLASS": "root@example.com", "GOS_SIGN_IN_PROVIDERS": json.dumps([PROVIDER])}
    section = load_config(environment=environment).sign_in
    assert (section.break_glass, [each.id for each in section.providers]) == ("root@example.com", ["corp"])
    with pytest.raises(ConfigInvalid, match=r"GOS_SIGN_IN_PROVIDERS: sign_in\.providers"):
        load_config(environment={"GOS_SIGN_IN_PROVIDERS": "[{"})


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({"sign_in.providers": PROVIDER}, ["sign_in.providers must be a list"]),
        (provider_flags("corp"), ["sign_in.providers[0] must be a mapping"]),
        (provider_flags({**PROVIDER, "isuer": "x"}), ["sign_in.providers[0].isuer", "issuer"]),
        (provider_flags({"id": "corp", "client_id": "gos"}), ["sign_in.providers[0].issuer is missing"]),
        (provider_flags({**PROVIDER, "allow_unknown": "perhaps"}), ["sign_in.providers[0].allow_unknown", "true or false"]),
        (provider_flags(PROVIDER, {**PROVIDER, "id": "b"}), ["two providers have the issuer https://id.example.com"]),
        (provider_flags(PROVIDER, {**PROVIDER, "issuer": "https://b.example"}), ["two providers have the id corp"]),
        (provider_flags({**PROVIDER, "id": "Corp"}), ["sign_in.providers[0].id", "lower-case"]),
        (provider_flags({**PROVIDER, "issuer": "http://id.example.com"}), ["sign_in.providers[0].issuer", "https"]),
        (provider_flags({**PROVIDER, "client_id": ""}), ["sign_in.providers[0].client_id", "empty"]),
        (provider_flags({**PROVIDER, "scopes": ["a b"]}), ["sign_in.providers[0].scopes", "'a b'"]),
        (provider_flags({**PROVIDER, "client_secret": "a", "client_secret_file": "/b"}), ["cannot be combined"]),
        (provider_flags({**PROVIDER, "client_secret_file": "b"}), ["client_secret_file must be an absolute path"]),
        (provider_flags({**PROVIDER, "link_by": "email_verified", "login_claim": "upn"}), ["login_claim must be email"]),
        (provider_flags({**PROVIDER, "groups_claim": "groups"}), ["groups_claim and roles must be set together"]),
        (provider_flags({**PROVIDER, "roles": [ROLE]}), ["groups_claim and roles must be set together"]),
        (
            provider_flags({**PROVIDER, "groups_claim": "groups", "roles": [{**ROLE, "role": "boss"}]}),
            ["sign_in.providers[0].roles[0].role", "owner, builder, operator, viewer"],
        ),
        (
            provider_flags({**PROVIDER, "groups_claim": "groups", "roles": [{**ROLE, "tenant": ""}]}),
            ["sign_in.providers[0].roles", "tenant must not be empty"],
        ),
        (provider_flags(PROVIDER, local_accounts=False), ["sign_in.break_glass"]),
        (provider_flags(local_accounts=False, break_glass="root"), ["sign_in.providers needs a provider"]),
    ],
)
def test_a_wrong_provider_is_named(flags: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(ConfigInvalid) as refusal:
        load_config(environment={}, flags=flags)
    assert all(word in refusal.value.message for word in words), refusal.value.message


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({"second_factor.required_for": ["owner", "boss"]}, "required_for: 'boss' is not a role; the roles are owner, builder"),
        ({"second_factor.step_up_minutes": 0}, "step_up_minutes is 0; it must be from 1 to 1440"),
        ({"second_factor.step_up_minutes": 1441}, "step_up_minutes is 1441; it must be from 1 to 1440"),
        ({"second_factor.step_up_password": "perhaps"}, "step_up_password must be true or false"),
    ],
)
def test_a_wrong_setting_of_second_factors_is_named(flags: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigInvalid, match=words):
        load_config(environment={}, flags=flags)


@pytest.mark.parametrize(("content", "words"), [(None, "No such file"), (b" \n", "is empty"), (b"\xff", "not UTF-8")])
def test_a_secret_that_cannot_be_read_is_named(tmp_path: Path, content: bytes | None, words: str) -> None:
    file = tmp_path / "secret"
    if content is not None:
        file.write_bytes(content)
    config = load_config(environment={}, flags=provider_flags({**PROVIDER, "client_secret_file": str(file)}))
    with pytest.raises(ConfigInvalid, match=f"client_secret_file of corp: {file}.*{words}"):
        read_client_secret(config.sign_in.providers[0])


def test_a_client_secret_is_not_shown() -> None:
    with pytest.raises(ConfigInvalid, match=r"providers\[0\]\.client_secret must be a text$"):
        load_config(environment={}, flags=provider_flags({**PROVIDER, "client_secret": 81347}))
    config = load_config(environment={}, flags=provider_flags({**PROVIDER, "client_secret": "hush81f3"}))
    (view,) = [each for each in list_settings(config)["sign_in"] if each.name == "sign_in.providers"]
    assert (view.value, "hush81f3" in repr(config)) == ("corp: https://id.example.com", False)
