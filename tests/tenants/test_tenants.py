"""Tenants, their hosts and their secrets."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.core.config import Domains
from appliance.core.crypto import Sealer
from appliance.core.database import db
from appliance.core.errors import AlreadyExists, NotFound, ValidationFailed
from appliance.core.logs import redact
from appliance.core.scope import TenantScope
from appliance.tenants import service
from appliance.tenants.hosts import HostMatch, match_host, split_host
from appliance.tenants.scopes import validate_scopes


def test_a_tenant_is_created_once(one: TenantScope) -> None:
    with pytest.raises(AlreadyExists):
        service.create_tenant("one", "Again")
    assert [tenant.id for tenant in service.list_tenants()] == ["one"]


@pytest.mark.parametrize("tenant", ["", "A", "a--b", "api", "cdn", "v1", "v2-x", "x" * 25, "a.b", "-a"])
def test_a_tenant_name_must_be_a_valid_host_label(database: None, tenant: str) -> None:
    with pytest.raises(ValidationFailed):
        service.create_tenant(tenant, "Name")


@pytest.mark.parametrize("login", ["ann@example.com", "Ünal", "42@x", "", "a" * 99, "!!!"])
def test_a_sandbox_is_named_after_its_user(database: None, login: str) -> None:
    first, second = service.create_sandbox_tenant(login), service.create_sandbox_tenant(login)
    assert first.id != second.id
    assert first.kind == "sandbox"
    assert first.id.startswith("sandbox-")


def test_a_deleted_tenant_leaves_nothing(one: TenantScope, two: TenantScope, sealer: Sealer) -> None:
    for scope in (one, two):
        service.set_secret(scope, sealer, "token", "value")
    assert service.tenant_exists("one")
    service.delete_tenant("one")
    assert not service.tenant_exists("one")
    for table in db.database.obj.get_tables():
        if "tenant_id" in {column.name for column in db.database.obj.get_columns(table)}:
            assert db.rows(f"SELECT count(*) FROM {table} WHERE tenant_id = 'one'") == [(0,)], table  # noqa: S608
    assert [secret.name for secret in service.list_secrets(two)] == ["token"]
    with pytest.raises(NotFound):
        service.delete_tenant("one")


def test_a_secret_is_sealed_for_its_tenant_and_name(one: TenantScope, two: TenantScope, sealer: Sealer) -> None:
    service.set_secret(one, sealer, "token", "first value")
    service.set_secret(one, sealer, "token", "second value")
    assert service.unseal_secret(one, sealer, "token") == "second value"
    assert redact("it is second value") == "it is [redacted]"
    with pytest.raises(NotFound):
        service.unseal_secret(two, sealer, "token")
    sealed = db.rows("SELECT sealed FROM secret")[0][0]
    assert b"second" not in sealed
    db.write(lambda: db.execute("INSERT INTO secret VALUES ('two', 'token', ?, 0)", (sealed,)))
    with pytest.raises(Exception, match="cannot be decrypted"):
        service.unseal_secret(two, sealer, "token")


@pytest.mark.parametrize("names", [[], ["nope"], ["logs.read", "logs.*"], ["*"]])
def test_only_known_scopes_are_granted(names: list[str]) -> None:
    with pytest.raises(ValidationFailed):
        validate_scopes(names)
    assert validate_scopes(["logs.read", "keys.read", "logs.read"]) == ["keys.read", "logs.read"]


DOMAINS = Domains("gos.example", "gos-content.example")


@pytest.mark.parametrize(
    ("host", "match"),
    [
        ("gos.example", HostMatch("base")),
        ("GOS.example.:8443", HostMatch("base")),
        ("one.gos.example", HostMatch("tenant", "one")),
        ("two.gos.example", HostMatch("unknown")),
        ("a.one.gos.example", HostMatch("unknown")),
        ("onegos.example", HostMatch("unknown")),
        ("gos-content.example", HostMatch("unknown")),
        ("app--one.gos-content.example", HostMatch("webapp", "one", "app")),
        ("v12-app--one.gos-content.example", HostMatch("preview", "one", "app", 12)),
        ("v0-app--one.gos-content.example", HostMatch("unknown")),
        ("v2-v3-app--one.gos-content.example", HostMatch("unknown")),
        ("v2--one.gos-content.example", HostMatch("unknown")),
        ("v2-cdn--one.gos-content.example", HostMatch("unknown")),
        ("app--two.gos-content.example", HostMatch("unknown")),
        ("cdn--one.gos-content.example", HostMatch("cdn", "one")),
        ("cdn--two.gos-content.example", HostMatch("unknown")),
        ("app.gos-content.example", HostMatch("unknown")),
        ("a.app--one.gos-content.example", HostMatch("unknown")),
        ("127.0.0.1", HostMatch("unknown")),
        ("localhost", HostMatch("unknown")),
        ("one.gos.example:80:80", HostMatch("unknown")),
        ("one.gos.example, evil", HostMatch("unknown")),
        ("", HostMatch("unknown")),
    ],
)
def test_the_host_table_is_exact(one: TenantScope, host: str, match: HostMatch) -> None:
    assert match_host(host, DOMAINS) == match


def test_loopback_counts_as_base_only_where_the_base_is_localhost(one: TenantScope) -> None:
    for host in ("127.0.0.1:8080", "[::1]:8080", "localhost"):
        assert match_host(host, Domains()) == HostMatch("base")
    assert match_host("one.content.localhost", Domains()) == HostMatch("unknown")


@given(st.text(max_size=80))
def test_no_host_header_breaks_the_table(text: str) -> None:
    name = split_host(text)
    assert name == "" or all(c.isascii() and (c.isalnum() or c in ".-[]:") for c in name)
