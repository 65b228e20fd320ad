"""Uploaded certificates: problems are reported with a code; valid ones are stored, and their key is never shown."""

import re
from collections.abc import Callable

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID

from appliance.core.crypto import Sealer
from appliance.core.database import db
from appliance.core.errors import NotFound, ValidationFailed
from appliance.core.scope import TenantScope
from appliance.webapps.certificates.service import Certificates
from appliance.webapps.certificates.validation import check_pair
from appliance.webapps.service import WebApps
from tests.sites.signing import Authority, Leaf, pem_of, text_of

HOST = "shop.example.com"
ROOT = Authority()
BETWEEN = Authority("Between", ROOT)
SHORT = rsa.generate_private_key(65537, 1024)  # noqa: S505  what is to be refused
KOBLITZ = ec.generate_private_key(ec.SECP256K1())
GARBAGE = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----"
Upload = tuple[str, str, str]


def signed_pair(leaf: Leaf, by: Authority = ROOT) -> Upload:
    return text_of(by.sign(leaf)), pem_of(leaf.key), ""


def good() -> Upload:
    return signed_pair(Leaf([HOST]))


def reversed_chain() -> Upload:
    leaf = Leaf([HOST])
    return text_of(BETWEEN.certificate, BETWEEN.sign(leaf)), pem_of(leaf.key), ""


def disordered_issuers() -> Upload:
    leaf = Leaf([HOST])
    return text_of(BETWEEN.sign(leaf)), pem_of(leaf.key), text_of(ROOT.certificate, BETWEEN.certificate)


def foreign_issuer() -> Upload:
    certificate, key, _ = good()
    return certificate, key, text_of(Authority("Authority of the tests").certificate)


def encrypted() -> Upload:
    leaf = Leaf([HOST])
    return text_of(ROOT.sign(leaf)), pem_of(leaf.key, b"secret"), ""


def of_ed25519() -> Upload:
    key = ed25519.Ed25519PrivateKey.generate().private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return good()[0], key.decode(), ""


REFUSED: dict[str, tuple[Callable[[], Upload], str, str]] = {
    "another key": (lambda: (good()[0], good()[1], ""), "key_mismatch", "/private_key"),
    "expired": (lambda: signed_pair(Leaf([HOST], begins=-20, ends=-1)), "expired", "/certificate"),
    "not yet": (lambda: signed_pair(Leaf([HOST], begins=1)), "not_yet_valid", "/certificate"),
    "another host": (lambda: signed_pair(Leaf(["other.example.com"])), "host_not_covered", "/certificate"),
    "a wildcard two labels up": (lambda: signed_pair(Leaf(["*.com"])), "host_not_covered", "/certificate"),
    "no name at all": (lambda: signed_pair(Leaf([])), "host_not_covered", "/certificate"),
    "the issuer first": (reversed_chain, "chain_order", "/certificate"),
    "issuers in another order": (disordered_issuers, "chain_order", "/chain"),
    "an issuer that did not sign": (foreign_issuer, "chain_order", "/chain"),
    "an encrypted key": (encrypted, "encrypted_key", "/private_key"),
    "garbage for a certificate": (lambda: (GARBAGE, good()[1], ""), "unreadable", "/certificate"),
    "nothing for a certificate": (lambda: ("", good()[1], ""), "unreadable", "/certificate"),
    "garbage for a key": (lambda: (good()[0], "no key", ""), "unreadable", "/private_key"),
    "letters beyond ASCII": (lambda: (good()[0], "schlüssel", ""), "unreadable", "/private_key"),
    "garbage for a chain": (lambda: (*good()[:2], "no chain"), "unreadable", "/chain"),
    "far too long": (lambda: (good()[0] + " " * 100_000, good()[1], ""), "unreadable", "/certificate"),
    "an endless chain": (lambda: (*good()[:2], text_of(ROOT.certificate) * 11), "unreadable", "/chain"),
    "RSA of 1024 bits": (lambda: signed_pair(Leaf([HOST], SHORT)), "weak_key", "/private_key"),
    "a curve of no browser": (lambda: signed_pair(Leaf([HOST], KOBLITZ)), "unsupported_key", "/private_key"),
    "Ed25519": (of_ed25519, "unsupported_key", "/private_key"),
    "for clients": (lambda: signed_pair(Leaf([HOST], usage=ExtendedKeyUsageOID.CLIENT_AUTH)), "not_for_servers", "/certificate"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_an_invalid_pair_is_refused_with_a_code(case: str) -> None:
    make, code, pointer = REFUSED[case]
    with pytest.raises(ValidationFailed) as caught:
        check_pair(HOST, *make())
    assert [(detail.code, detail.pointer) for detail in caught.value.details] == [(code, pointer)]
    assert "PRIVATE KEY" not in caught.value.message


@pytest.mark.parametrize(
    "leaf", [Leaf([HOST]), Leaf(["a.example.com", "*.example.com"]), Leaf([HOST], rsa.generate_private_key(65537, 2048))]
)
def test_a_valid_pair_is_accepted(leaf: Leaf) -> None:
    pair, facts = check_pair(HOST, text_of(BETWEEN.sign(leaf)), pem_of(leaf.key), text_of(BETWEEN.certificate, ROOT.certificate))
    assert pair.chain.count(b"BEGIN CERTIFICATE") == 3
    assert facts.issuer == "Between"
    assert re.fullmatch("[0-9a-f]{64}", facts.fingerprint)


@pytest.fixture
def certificates(webapps: WebApps) -> Certificates:
    return Certificates(Sealer(b"k" * 32))


@pytest.mark.parametrize("store_url", ["sqlite", "postgresql"], indirect=True)
def test_a_stored_certificate_is_shown_without_its_key_to_its_tenant_only(
    certificates: Certificates, acme: TenantScope, globex: TenantScope
) -> None:
    certificate, key, _ = good()
    stored = certificates.upload(acme, HOST, (certificate, key))
    assert stored == certificates.get(acme, HOST)
    assert (stored.origin, stored.facts.names, stored.facts.key) == ("uploaded", (HOST,), "ECDSA secp256r1")
    assert "PRIVATE" not in repr(certificates.load_changed({}))
    with pytest.raises(NotFound):
        certificates.get(globex, HOST)
    with pytest.raises(NotFound):
        certificates.delete_uploaded(globex, HOST)
    certificates.delete_uploaded(acme, HOST)
    with pytest.raises(NotFound):
        certificates.get(acme, HOST)


def test_a_replaced_certificate_keeps_its_since_time(certificates: Certificates, acme: TenantScope) -> None:
    first = certificates.upload(acme, HOST, good()[:2])
    db.write(lambda: db.execute("UPDATE certificate SET since = since - 86400000"))
    second = certificates.upload(acme, HOST, good()[:2])
    assert first.since is not None
    assert (second.since, second.facts.fingerprint != first.facts.fingerprint) == (first.since - 86_400_000, True)


def test_a_refused_pair_keeps_the_previous_certificate(certificates: Certificates, acme: TenantScope) -> None:
    before = certificates.upload(acme, HOST, good()[:2])
    with pytest.raises(ValidationFailed):
        certificates.upload(acme, HOST, (good()[0], good()[1]))
    assert certificates.get(acme, HOST) == before
