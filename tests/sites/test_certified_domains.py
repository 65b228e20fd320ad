"""From a verified domain to its certificate by configuration alone, and how the status is reported."""

import asyncio
import ssl
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from quart import Quart

from appliance.app.findings.checks import certificate_findings
from appliance.connectors.egress import Egress
from appliance.connectors.testing import free_port
from appliance.core import clock
from appliance.core.config import Config
from appliance.core.crypto import Sealer
from appliance.core.database import db
from appliance.core.errors import ConfigInvalid, NotFound
from appliance.core.scheduling import Scheduler
from appliance.core.scope import TenantScope
from appliance.sites.front import tls
from appliance.sites.front.root import build_root
from appliance.sites.front.tls import ServerConfig, build_server_config
from appliance.sites.front.transport import Transport
from appliance.tenants import match_host
from appliance.tenants import service as tenants
from appliance.testing.running import make_config
from appliance.web import answer
from appliance.webapps.certificates import (
    Certificates,
    Issued,
    Issuer,
    Worker,
    build_issuer,
    ca_certificate,
    check_pair,
    internal_certificate,
)
from appliance.webapps.domains import Domains, DomainSettings, Lookups, NewDomain, Prober
from appliance.webapps.models import WebAppRow
from tests.sites.acme_server import AcmeServer, acme_server
from tests.sites.live_server import await_that, peer, serving
from tests.sites.signing import Authority
from tests.store.opening import open_migrated

ACME = TenantScope("acme", "key:acme")
HOST, PARTNER = "shop.example.com", "www.shop.example.com"
DAY = 86_400_000


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A tenant with an app."""
    open_migrated(f"sqlite:///{tmp_path}/gos.db")
    tenants.create_tenant("acme", "Acme")
    now = clock.now_ms()
    row = {"id": "shop", "name": "Shop", "description": "", "last_version": 0, "created_at": now, "updated_at": now}
    db.write(lambda: ACME.insert(WebAppRow, **row))
    yield tmp_path
    db.close_database()


@pytest.fixture
def domains() -> Domains:
    settings = DomainSettings("localhost", "content.localhost", certificates=True)
    return Domains(settings, Prober(settings, Lookups(["127.0.0.1:9"]), Egress()))


@pytest.fixture
def certificates(folder: Path) -> Certificates:
    return Certificates(Sealer(b"k" * 32))


def prove(domains: Domains, **more: Any) -> None:
    domains.claim_domain(ACME, "shop", NewDomain(HOST, **more))
    domains.approve_domain(ACME, HOST)


def issuer_of(config: Config, certificates: Certificates) -> Issuer:
    return build_issuer(config, certificates, Worker("wrk_1", lambda name: name == "wrk_1"))


def run_rounds(issuer: Issuer, count: int = 8) -> None:
    for _ in range(count):
        issuer.run_round()
        db.write(lambda: db.execute("UPDATE certificate_order SET due_at = 0 WHERE order_url IS NOT NULL"))


def acme_config(folder: Path, authority: AcmeServer) -> Config:
    directory = f"{authority.url}/directory"
    authority.port = free_port()
    return make_config(
        folder, server__tls="internal", tls__http_port=authority.port, acme__directory=directory, acme__agree_terms=True
    )


def test_a_domain_gets_a_certificate_by_acme_and_becomes_active(folder: Path, domains: Domains, certificates: Certificates) -> None:
    with acme_server() as authority:
        config = acme_config(folder, authority)
        server = build_server_config(config, certificates)
        with serving(server, Transport(page, config, server)):
            prove(domains, redirect_from="www")
            assert domains.get_domain(ACME, "shop", HOST).state == "cert_pending"
            run_rounds(issuer_of(config, certificates))
    domain = domains.get_domain(ACME, "shop", HOST)
    certificate = certificates.get(ACME, HOST)
    assert domain.state == "active"
    assert domain.certificate is not None
    assert (domain.certificate.state, domain.certificate.not_after) == ("active", certificate.facts.not_after)
    assert certificates.get(ACME, PARTNER).facts.names == (PARTNER,)


def test_a_failed_certificate_is_explained_on_the_domain(folder: Path, domains: Domains, certificates: Certificates) -> None:
    with acme_server() as authority:
        config = acme_config(folder, authority)  # nobody listens where the authority asks
        prove(domains)
        run_rounds(issuer_of(config, certificates))
    domain = domains.get_domain(ACME, "shop", HOST)
    assert domain.state == "failed"
    assert domain.certificate is not None
    assert "urn:ietf:params:acme:error:connection" in (domain.certificate.error or "")
    findings = list(certificate_findings(config))
    assert [level for level, text in findings if HOST in text] == ["FAIL"]
    assert any("port 80" in text for _, text in findings)


def test_the_builtin_authority_issues_certificates(
    folder: Path, domains: Domains, certificates: Certificates
) -> None:
    config = make_config(folder, server__tls="internal")
    prove(domains)
    run_rounds(issuer_of(config, certificates), 2)
    assert domains.get_domain(ACME, "shop", HOST).state == "active"
    server = build_server_config(config, certificates)
    with serving(server, Transport(page, config, server)):
        response = ask(server, str(ca_certificate(config)))
    assert response.text == "a page"
    assert "strict-transport-security" not in response.headers, "a browser that does not trust it must not be locked out"


def test_without_a_source_the_domain_says_what_to_do(folder: Path, domains: Domains, certificates: Certificates) -> None:
    chain, key = folder / "own.pem", folder / "own.key"
    pair = Authority().pair("gos.example.com")
    chain.write_text(pair[0])
    key.write_text(pair[1])
    config = make_config(folder, server__tls="files", server__certificate=str(chain), server__private_key=str(key))
    prove(domains)
    run_rounds(issuer_of(config, certificates), 1)
    domain = domains.get_domain(ACME, "shop", HOST)
    assert domain.certificate is not None
    assert "upload one" in (domain.certificate.error or "")
    pair = Authority().pair("*.example.com")
    chain.write_text(pair[0])
    key.write_text(pair[1])
    run_rounds(issuer_of(config, certificates), 1)
    assert domains.get_domain(ACME, "shop", HOST).state == "active"


def test_a_released_domain_leaves_no_key_behind(folder: Path, domains: Domains, certificates: Certificates) -> None:
    config = make_config(folder, server__tls="internal")
    prove(domains, redirect_from="www")
    issuer = issuer_of(config, certificates)
    run_rounds(issuer, 2)
    assert len(certificates.load_changed({})[0]) == 2
    domains.release_domain(ACME, "shop", HOST)
    assert certificates.load_changed({})[0] == {}
    issuer.run_round()
    assert db.rows("SELECT host FROM certificate_order") == []


async def page(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] == "http":
        own = [(b"strict-transport-security", b"max-age=1")] if scope["path"] == "/own" else []
        await answer(send, 200, b"a page", own)


def ask(server: ServerConfig, trust: Any, path: str = "/") -> httpx.Response:
    context = ssl.create_default_context(cafile=trust) if isinstance(trust, str) else trust
    port = server.bind[0].rpartition(":")[2]
    with httpx.Client(verify=context, trust_env=False, timeout=30) as client:
        return client.get(f"https://127.0.0.1:{port}{path}", headers={"Host": HOST}, extensions={"sni_hostname": HOST})


def test_hsts_grows_step_by_step(folder: Path, certificates: Certificates) -> None:
    authority = Authority()
    certificates.upload(ACME, HOST, authority.pair(HOST))
    config = make_config(folder, server__tls="internal")
    server = build_server_config(config, certificates)
    headers = []
    with serving(server, Transport(page, config, server)):
        for days in (0, 2, 8, 31):
            since = clock.now_ms() - days * DAY
            db.write(lambda since=since: db.execute("UPDATE certificate SET since = ?, fingerprint = ?", (since, str(since))))  # type: ignore[misc]
            server.reload()
            headers.append(ask(server, authority.trust()).headers.get("strict-transport-security"))
        assert ask(server, authority.trust(), "/own").headers.get_list("strict-transport-security") == ["max-age=1"]
        db.write(lambda: db.execute("UPDATE certificate SET since = NULL, fingerprint = 'a'"))  # as of the built-in authority
        server.reload()
        assert "strict-transport-security" not in ask(server, authority.trust()).headers
        long_ago = clock.now_ms() - 400 * DAY
        expired = (long_ago, long_ago + DAY)
        db.write(lambda: db.execute("UPDATE certificate SET since = ?, not_after = ?, fingerprint = 'b'", expired))
        server.reload()
        assert server.offer(HOST) is None, "it has expired"
    assert headers == [None, "max-age=86400", "max-age=604800", "max-age=31536000"]
    certificates.upload(ACME, HOST, authority.pair(HOST))
    off = make_config(folder, server__tls="internal", tls__hsts=False)
    server = build_server_config(off, certificates)
    with serving(server, Transport(page, off, server)):
        assert "strict-transport-security" not in ask(server, authority.trust()).headers


async def hsts_for(server: ServerConfig, config: Config, host: str) -> bytes:
    """The HSTS header of a TLS response of this host; empty when there is none."""
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    scope = {"type": "http", "scheme": "https", "path": "/", "method": "GET", "headers": [(b"host", host.encode())]}
    await Transport(page, config, server)(scope, receive, send)
    header: bytes = dict(sent[0]["headers"]).get(b"strict-transport-security", b"")
    return header


def test_a_shared_certificate_sets_no_hsts(folder: Path, certificates: Certificates) -> None:
    pair, facts = check_pair("apps.example", *Authority().pair("apps.example", "*.apps.example"))
    db.write(lambda: certificates.store(Issued("apps.example", None, "acme", pair, facts)))
    db.write(lambda: db.execute("UPDATE certificate SET since = 1 WHERE host = 'apps.example'"))
    config = make_config(folder, server__tls="internal")
    server = build_server_config(config, certificates)
    server.create_ssl_context()
    headers = [asyncio.run(hsts_for(server, config, host)) for host in ("apps.example", "APPS.example:8443", "shop.apps.example")]
    assert headers == [b"max-age=31536000", b"max-age=31536000", b""]


def test_hsts_can_include_subdomains(folder: Path, certificates: Certificates) -> None:
    hosts = {"domains__base": "gos.example", "domains__content": "apps.gos.example", "tls__hsts_subdomains": True}
    chain, key = internal_certificate(make_config(folder, server__tls="internal", domains__base="gos.example"))
    config = make_config(folder, server__tls="files", server__certificate=str(chain), server__private_key=str(key), **hosts)
    server = build_server_config(config, certificates)
    server.create_ssl_context()
    assert asyncio.run(hsts_for(server, config, "acme.gos.example")) == b"max-age=31536000; includeSubDomains"
    assert asyncio.run(hsts_for(server, config, "shop--acme.apps.gos.example")) == b"", "left to the app"


def test_hsts_is_set_behind_a_proxy_that_terminates_tls(folder: Path, certificates: Certificates) -> None:
    async def front(scope: Any, receive: Any, send: Any) -> None:
        scope["scheme"] = dict(scope["headers"]).get(b"x-forwarded-proto", b"http").decode()  # as ours does for trusted proxies
        await page(scope, receive, send)

    async def read(config: Config, host: str, proto: str) -> bytes:
        sent: list[Any] = []

        async def send(message: Any) -> None:
            sent.append(message)

        async def receive() -> Any:
            return {"type": "http.request", "body": b"", "more_body": False}

        headers = [(b"host", host.encode()), (b"x-forwarded-proto", proto.encode())]
        scope = {"type": "http", "scheme": "http", "path": "/", "method": "GET", "headers": headers}
        await Transport(front, config, build_server_config(config, certificates))(scope, receive, send)
        header: bytes = dict(sent[0]["headers"]).get(b"strict-transport-security", b"")
        return header

    hosts: dict[str, Any] = {"domains__base": "gos.example", "domains__content": "apps.gos.example"}
    behind = make_config(folder, server__trusted_proxies=["127.0.0.1"], **hosts)
    requests = [("gos.example", "https"), ("acme.gos.example", "https"), ("acme.gos.example", "http"), ("a.localhost", "https"),
             ("shop--acme.apps.gos.example", "https")]  # fmt: skip
    year = b"max-age=31536000"
    assert [asyncio.run(read(behind, *each)) for each in requests] == [year, year, b"", b"", b""]
    without = make_config(folder, **hosts), make_config(folder, server__trusted_proxies=["127.0.0.1"], tls__hsts=False, **hosts)
    assert [asyncio.run(read(config, "gos.example", "https")) for config in without] == [b"", b""]


def test_the_base_host_and_tenants_set_hsts(folder: Path, certificates: Certificates) -> None:
    def read_hsts(config: Config) -> list[bytes]:
        server = build_server_config(config, certificates)
        server.create_ssl_context()
        others = ("shop--acme.apps.gos.example", "apps.gos.example", "gos.example.net")
        return [asyncio.run(hsts_for(server, config, host)) for host in ("gos.example", "acme.gos.example:8443", *others)]

    hosts = {"domains__base": "gos.example", "domains__content": "apps.gos.example"}
    internal = make_config(folder, server__tls="internal", **hosts)
    assert read_hsts(internal) == [b"max-age=86400"] * 2 + [b""] * 3, "with the built-in authority for a day"
    chain, key = internal_certificate(internal)
    files = make_config(folder, server__tls="files", server__certificate=str(chain), server__private_key=str(key), **hosts)
    assert read_hsts(files) == [b"max-age=31536000"] * 2 + [b""] * 3
    assert read_hsts(make_config(folder, server__tls="internal", tls__hsts=False, **hosts)) == [b""] * 5
    pair, facts = check_pair("gos.example", *Authority().pair("gos.example", "*.gos.example", "*.apps.gos.example"))
    db.write(lambda: certificates.store(Issued("gos.example", None, "acme", pair, facts)))
    assert read_hsts(internal) == [b"max-age=31536000"] * 2 + [b""] * 3, "a certificate for the appliance's own hosts by ACME"


def test_localhost_sets_no_hsts(folder: Path, certificates: Certificates) -> None:
    config = make_config(folder, server__tls="internal")
    server = build_server_config(config, certificates)
    server.create_ssl_context()
    hosts = ("localhost:8443", "acme.localhost", "shop--acme.content.localhost")
    headers = [asyncio.run(hsts_for(server, config, host)) for host in hosts]
    assert headers == [b""] * 3, "it would hold for every other port of the machine"


def test_the_doctor_reports_expiring_certificates(folder: Path, certificates: Certificates) -> None:
    certificates.upload(ACME, HOST, Authority().pair(HOST))
    config = make_config(folder, server__tls="internal")
    assert list(certificate_findings(config)) == []
    soon = clock.now_ms() + 3 * DAY + 60_000
    db.write(lambda: db.execute("UPDATE certificate SET not_after = ?", (soon,)))
    assert list(certificate_findings(config)) == [("note", f"the certificate for {HOST} expires in 3 days")]
    db.write(lambda: db.execute("UPDATE certificate SET not_after = 1"))
    assert [level for level, _ in certificate_findings(config)] == ["FAIL"]


def test_a_stored_certificate_is_served_at_once(folder: Path, certificates: Certificates, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls, "RELOAD_SECONDS", 3600.0)
    server = build_server_config(make_config(folder, server__tls="internal"), certificates)
    with server.keep_current(Scheduler()), serving(server):
        port = int(server.bind[0].rpartition(":")[2])
        before = peer(port, HOST)[0]
        certificates.upload(ACME, HOST, Authority().pair(HOST))
        await_that(lambda: peer(port, HOST)[0] != before)


@pytest.mark.parametrize(
    ("mode", "host", "status"),
    [("internal", "localhost", 200), ("internal", "acme.localhost", 404), ("internal", HOST, 404), ("off", "localhost", 404)],
)
async def test_the_root_certificate_is_served_on_the_base_host(folder: Path, mode: str, host: str, status: int) -> None:
    config = make_config(folder, server__tls=mode)
    internal_certificate(make_config(folder, server__tls="internal"))
    app = Quart(__name__)
    app.register_error_handler(NotFound, lambda error: (error.message, 404))
    app.register_blueprint(build_root(config, ThreadPoolExecutor(1)))
    response = await app.test_client().get("/ca.pem", scope_base={"gos.host": match_host(host, config.domains)})
    body = await response.get_data()
    assert (response.status_code, b"BEGIN CERTIFICATE" in body, b"PRIVATE" in body) == (status, status == 200, False)


DIRECTORY = {"acme__directory": "https://ca.example.com/directory", "acme__agree_terms": True}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"acme__directory": "ftp://ca.example.com/"}, "https address"),
        ({"acme__directory": "http://ca.example.com/directory", "acme__agree_terms": True}, "https address"),
        ({"acme__directory": "https://ca.example.com/directory"}, "agree_terms"),
        ({**DIRECTORY, "server__tls": "off"}, "server.tls is off"),
        ({**DIRECTORY, "server__tls": "internal"}, "tls.http_port"),
        ({**DIRECTORY, "server__tls": "internal", "tls__http_port": 80, "acme__eab_key_id": "kid"}, "must be set together"),
        ({**DIRECTORY, "server__tls": "internal", "tls__http_port": 80, "acme__own_hosts": True}, "wildcard certificates"),
        ({"tls__http_port": 80}, "tls.http_port"),
    ],
)
def test_invalid_settings_are_refused(tmp_path: Path, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigInvalid, match=message):
        make_config(tmp_path, **settings)
