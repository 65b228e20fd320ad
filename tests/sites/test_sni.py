"""Each host is served with its own certificate, and with a new one without a restart."""

import ssl
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from appliance.core import clock
from appliance.core.crypto import Sealer
from appliance.core.database import db
from appliance.core.scope import TenantScope
from appliance.sites.front.tls import ServerConfig, build_server_config
from appliance.tenants import service as tenants
from appliance.testing.running import make_config
from appliance.webapps.certificates import Certificates, Issued, ca_certificate, check_pair, internal_certificate
from tests.sites.live_server import await_that, fingerprint, peer, serving
from tests.sites.signing import Authority
from tests.store.opening import open_migrated

ACME, GLOBEX = TenantScope("acme", "key:acme"), TenantScope("globex", "key:globex")
HOST = "shop.example.com"
DAY = 86_400_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("sni")
    open_migrated(f"sqlite:///{folder}/gos.db")
    for name in ("acme", "globex"):
        tenants.create_tenant(name, name)
    yield folder
    db.close_database()


@pytest.fixture(scope="module")
def listening(folder: Path) -> Iterator[tuple[ServerConfig, Certificates]]:
    """A server that takes up certificates as they are stored."""
    certificates = Certificates(Sealer(b"k" * 32))
    config = build_server_config(make_config(folder, server__tls="internal"), certificates)
    withdraw = certificates.on_change(config.reload)
    with serving(config):
        yield config, certificates
    withdraw()


@pytest.fixture
def certificates(listening: tuple[ServerConfig, Certificates]) -> Certificates:
    """None of a test before."""
    db.write(lambda: db.execute("DELETE FROM certificate"))
    listening[0].reload()
    return listening[1]


@pytest.fixture
def server(listening: tuple[ServerConfig, Certificates], certificates: Certificates) -> ServerConfig:
    return listening[0]


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


def port_of(server: ServerConfig) -> int:
    return int(server.bind[0].rpartition(":")[2])


def fingerprint_of(chain: str) -> str:
    return fingerprint(ssl.PEM_cert_to_DER_cert(chain[: chain.index("-----END")] + "-----END CERTIFICATE-----\n"))


def fallback(folder: Path) -> str:
    return fingerprint_of((folder / "tls" / "server.pem").read_text())


def test_a_host_gets_its_own_certificate_and_others_the_fallback(
    server: ServerConfig, certificates: Certificates, authority: Authority, folder: Path
) -> None:
    assert peer(port_of(server), HOST) == (fallback(folder), "h2")
    pair = authority.pair(HOST)
    certificates.upload(ACME, HOST, pair)
    for name in (HOST, HOST.upper()):
        assert peer(port_of(server), name) == (fingerprint_of(pair[0]), "h2")
    unknown: tuple[str | None, ...] = ("other.example.com", "sub.shop.example.com", None)
    for other in unknown:
        assert peer(port_of(server), other) == (fallback(folder), "h2")
    certificates.delete_uploaded(ACME, HOST)
    assert peer(port_of(server), HOST)[0] == fallback(folder)


def test_a_certificate_is_replaced_without_breaking_connections(
    server: ServerConfig, certificates: Certificates, authority: Authority
) -> None:
    first, second = authority.pair(HOST), authority.pair(HOST)
    certificates.upload(ACME, HOST, first)
    with httpx.Client(verify=authority.trust(), trust_env=False, http2=False, timeout=30) as client:
        ask = client.build_request(
            "GET", f"https://127.0.0.1:{port_of(server)}/", headers={"Host": HOST}, extensions={"sni_hostname": HOST}
        )
        before = client.send(ask)
        certificates.upload(ACME, HOST, second)
        after = client.send(ask)
        streams = [answer.extensions["network_stream"].get_extra_info("ssl_object") for answer in (before, after)]
    assert (before.text, after.text) == ("1.1", "1.1")
    assert streams[0] is streams[1], "the connection was kept"
    assert peer(port_of(server), HOST)[0] == fingerprint_of(second[0])


def test_http_2_works_with_a_hosts_own_certificate(
    server: ServerConfig, certificates: Certificates, authority: Authority
) -> None:
    certificates.upload(ACME, HOST, authority.pair(HOST))
    with httpx.Client(verify=authority.trust(), trust_env=False, http2=True, timeout=30) as client:
        response = client.get(f"https://127.0.0.1:{port_of(server)}/", extensions={"sni_hostname": HOST}, headers={"Host": HOST})
    assert (response.text, response.http_version) == ("2", "HTTP/2")


def test_old_versions_of_tls_are_refused(server: ServerConfig, certificates: Certificates, authority: Authority) -> None:
    certificates.upload(ACME, HOST, authority.pair(HOST))
    for context in (server.offer(HOST), None):
        used = context.context if context else server.create_ssl_context()
        assert used is not None
        assert used.minimum_version == ssl.TLSVersion.TLSv1_2


def test_certificates_stored_by_another_process_are_loaded(
    server: ServerConfig, certificates: Certificates, authority: Authority, folder: Path
) -> None:
    other, pair = Certificates(Sealer(b"k" * 32)), authority.pair(HOST)
    other.upload(ACME, HOST, pair)
    assert peer(port_of(server), HOST)[0] == fallback(folder)
    server.reload()
    assert peer(port_of(server), HOST)[0] == fingerprint_of(pair[0])


def test_a_certificate_naming_foreign_hosts_serves_only_its_own(
    server: ServerConfig, certificates: Certificates, authority: Authority, folder: Path
) -> None:
    certificates.upload(GLOBEX, HOST, authority.pair(HOST, "bank.example.com", "*.example.com"))
    for name in ("bank.example.com", "any.example.com"):
        assert peer(port_of(server), name)[0] == fallback(folder)


def test_an_exact_name_takes_precedence_over_a_wildcard(
    server: ServerConfig, certificates: Certificates, authority: Authority
) -> None:
    chain, key = authority.pair("apps.example.com", "*.apps.example.com")
    pair, facts = check_pair("apps.example.com", chain, key)
    db.write(lambda: certificates.store(Issued("apps.example.com", None, "acme", pair, facts)))
    own = authority.pair("shop.apps.example.com")
    certificates.upload(ACME, "shop.apps.example.com", own)
    offers = [server.offer(f"{name}apps.example.com") for name in ("", "any.", "shop.", "any.shop.", "x")]
    hosts = [offer and offer.certificate.host for offer in offers]
    assert hosts == ["apps.example.com", "apps.example.com", "shop.apps.example.com", None, None]


def test_an_expired_certificate_is_not_served(
    server: ServerConfig, certificates: Certificates, authority: Authority, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chain, key = authority.pair("apps.example.com", "*.apps.example.com")
    pair, facts = check_pair("apps.example.com", chain, key)
    wide = replace(facts, not_after=facts.not_after + 60 * DAY)
    db.write(lambda: certificates.store(Issued("apps.example.com", None, "acme", pair, wide)))
    for host in (HOST, "shop.apps.example.com"):
        certificates.upload(ACME, host, authority.pair(host))
    now = clock.now_ms
    monkeypatch.setattr(clock, "now_ms", lambda: now() + 40 * DAY)
    assert peer(port_of(server), HOST)[0] == fallback(folder)
    assert peer(port_of(server), "shop.apps.example.com")[0] == fingerprint_of(chain)


def test_a_broken_key_does_not_affect_other_hosts(
    server: ServerConfig, certificates: Certificates, authority: Authority, folder: Path
) -> None:
    pair = authority.pair("good.example.com")
    Certificates(Sealer(b"another key file".ljust(32))).upload(ACME, HOST, authority.pair(HOST))
    certificates.upload(ACME, "good.example.com", pair)
    assert peer(port_of(server), HOST)[0] == fallback(folder)
    assert peer(port_of(server), "good.example.com")[0] == fingerprint_of(pair[0])


def test_the_key_is_stored_sealed(certificates: Certificates, authority: Authority) -> None:
    pair = authority.pair(HOST)
    certificates.upload(ACME, HOST, pair)
    sealed = bytes(db.rows("SELECT private_key FROM certificate")[0][0])
    assert b"PRIVATE KEY" not in sealed
    assert certificates.unseal(sealed, HOST).decode() == pair[1]


def test_a_renewed_fallback_is_loaded_and_a_broken_one_is_not(
    folder: Path, certificates: Certificates, authority: Authority
) -> None:
    chain, key = folder / "own.pem", folder / "own.key"
    first, second = authority.pair("gos.example.com"), authority.pair("gos.example.com")
    chain.write_text(first[0])
    key.write_text(first[1])
    config = make_config(folder, server__tls="files", server__certificate=str(chain), server__private_key=str(key))
    server = build_server_config(config, certificates)
    with serving(server):
        chain.write_text(second[0])  # the key is still the first one's
        server.reload()
        assert peer(port_of(server), "gos.example.com")[0] == fingerprint_of(first[0])
        key.write_text(second[1])
        server.reload()
        assert peer(port_of(server), "gos.example.com")[0] == fingerprint_of(second[0])


def test_the_builtin_authority_is_the_fallback(server: ServerConfig, folder: Path) -> None:
    trust = ssl.create_default_context(cafile=str(ca_certificate(make_config(folder))))
    assert internal_certificate(make_config(folder, server__tls="internal"))[0].exists()
    with httpx.Client(verify=trust, trust_env=False, timeout=30) as client:
        sni = {"sni_hostname": "localhost"}
        await_that(lambda: client.get(f"https://127.0.0.1:{port_of(server)}/", extensions=sni).status_code == 200)


def test_cipher_suites_are_authenticated_and_forward_secret(server: ServerConfig) -> None:
    context = server.create_ssl_context()
    assert context is not None
    suites = [suite for suite in context.get_ciphers() if suite["protocol"] != "TLSv1.3"]
    assert suites, "TLS 1.2 is offered beside 1.3"
    assert [suite["name"] for suite in suites if not suite["aead"] or suite["kea"] not in ("kx-ecdhe", "kx-dhe")] == []
    assert min(suite["strength_bits"] for suite in context.get_ciphers()) >= 128
    assert context.maximum_version in (ssl.TLSVersion.MAXIMUM_SUPPORTED, ssl.TLSVersion.TLSv1_3)


def test_no_client_certificate_is_asked_for(server: ServerConfig, certificates: Certificates, authority: Authority) -> None:
    certificates.upload(ACME, HOST, authority.pair(HOST))
    offer = server.offer(HOST)
    assert offer is not None
    for context in (offer.context, server.create_ssl_context()):
        assert context is not None
        assert context.verify_mode == ssl.CERT_NONE
