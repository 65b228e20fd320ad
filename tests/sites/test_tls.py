"""The built-in authority's certificate covers every host of the appliance."""

import os
import ssl
from pathlib import Path

import pytest
from cryptography import x509

from appliance.core.config import Config
from appliance.testing.running import make_config
from appliance.webapps.certificates import Authority, Registration, ca_certificate, internal_certificate, issue_internal


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return make_config(tmp_path, domains__base="gos.example.com", domains__content="apps.example.net", server__tls="internal")


def names(leaf: Path) -> list[str]:
    certificate = x509.load_pem_x509_certificate(leaf.read_bytes())
    extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return extension.get_values_for_type(x509.DNSName)


def test_tenants_and_apps_are_covered(config: Config) -> None:
    leaf, _ = internal_certificate(config)
    assert names(leaf) == ["gos.example.com", "*.gos.example.com", "*.apps.example.net", "localhost"]


def test_the_certificate_is_renewed_when_a_domain_changes(config: Config, tmp_path: Path) -> None:
    leaf, key = internal_certificate(config)
    before = leaf.read_bytes()
    assert internal_certificate(config) == (leaf, key)
    assert leaf.read_bytes() == before
    changed = make_config(tmp_path, domains__base="gos.example.com", domains__content="other.example.net", server__tls="internal")
    internal_certificate(changed)
    assert "*.other.example.net" in names(leaf)


def test_keys_are_readable_by_the_appliance_only(config: Config) -> None:
    before = os.umask(0)
    try:
        leaf, key = internal_certificate(config)
        again = issue_internal(config, "shop.example.com")
    finally:
        os.umask(before)
    modes = {path.name: path.stat().st_mode & 0o777 for path in (leaf.parent, *leaf.parent.iterdir())}
    assert (modes["tls"], modes["server.key"], modes["ca.key"]) == (0o700, 0o600, 0o600)
    holding = {path.name for path in leaf.parent.iterdir() if b"PRIVATE KEY" in path.read_bytes()}
    assert (holding, key.name) == ({"server.key", "ca.key"}, "server.key")
    assert b"PRIVATE KEY" in again.private_key
    assert "PRIVATE" not in f"{again!r}"


@pytest.mark.parametrize("host", ["demo.gos.example.com", "shop--demo.apps.example.net"])
def test_a_client_that_trusts_the_ca_accepts_it(config: Config, host: str) -> None:
    leaf, key = internal_certificate(config)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(leaf, key)
    client = ssl.create_default_context(cafile=str(ca_certificate(config)))
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server, server_hostname=host),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(4):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
    assert ends[0].getpeercert()


def test_files_of_the_authority_are_replaced_atomically(config: Config) -> None:
    leaf, _ = internal_certificate(config)
    key = config.data / "tls" / "server.key"
    before = key.read_bytes()
    with key.open("rb") as reading:
        leaf.unlink()
        internal_certificate(config)
        assert reading.read() == before, "what was there is not cut short"
    assert key.read_bytes() != before
    assert sorted(file.name for file in key.parent.iterdir()) == ["ca.key", "ca.pem", "server.key", "server.pem"]
    assert {file.stat().st_mode & 0o777 for file in key.parent.iterdir()} == {0o600}


def test_the_acme_account_key_is_not_shown(tmp_path: Path) -> None:
    acme = {"acme__directory": "https://ca.example.com/directory", "acme__agree_terms": True, "tls__http_port": 80}
    config = make_config(tmp_path, server__tls="internal", acme__eab_key_id="kid", acme__eab_hmac_key="c2VjcmV0", **acme)
    registration = Registration("", config.acme.eab_key_id, config.acme.eab_hmac_key)
    text = f"{config} {registration} {Authority(config.acme.directory, registration)}"
    assert "kid" in text
    assert "c2VjcmV0" not in text
