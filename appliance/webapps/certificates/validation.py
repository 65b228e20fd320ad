"""Validates a certificate and its key: they match, cover the host, and are accepted by clients."""

from collections.abc import Sequence
from datetime import datetime
from itertools import pairwise

from cryptography import x509
from cryptography.exceptions import InternalError, InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID, PublicKeyAlgorithmOID

from appliance.core import clock

from .keys import Key, invalid, read_private_key, to_ascii
from .records import CertificateDetails, Pair

MOST_IN_CHAIN = 10
_KEY_ALGORITHMS = (PublicKeyAlgorithmOID.RSAES_PKCS1_v1_5, PublicKeyAlgorithmOID.EC_PUBLIC_KEY)
_MALFORMED = (
    UnsupportedAlgorithm, InternalError, ValueError, x509.DuplicateExtension, x509.InvalidVersion, x509.UnsupportedGeneralNameType,
)  # fmt: skip
_OLD_HASHES = (hashes.MD5, hashes.SHA1)


def check_pair(host: str, certificate: str, private_key: str, chain: str = "") -> tuple[Pair, CertificateDetails]:
    """The normalized pair (one chain in order, unencrypted key) and the certificate's details; ValidationFailed with one detail
    whose code is one of:

    unreadable, encrypted_key, unsupported_key, weak_key, key_mismatch, chain_order, host_not_covered, expired, not_yet_valid,
    weak_signature, not_for_servers.
    """
    key = read_private_key(private_key)
    try:
        return _check_certificates(host, key, certificate, chain)
    except _MALFORMED as error:
        raise invalid("/certificate", "unreadable", "the certificate or one of its chain is malformed") from error


def _check_certificates(host: str, key: Key, certificate: str, chain: str) -> tuple[Pair, CertificateDetails]:
    certificates = _read_certificates(certificate, "/certificate")
    certificates += _read_certificates(chain, "/chain") if chain.strip() else []
    if len(certificates) > MOST_IN_CHAIN:
        raise invalid("/chain", "unreadable", f"a chain has at most {MOST_IN_CHAIN} certificates; leave out unrelated ones")
    public = _public_bytes(key.public_key())
    if _public_bytes(certificates[0].public_key()) != public:
        if any(_public_bytes(other.public_key()) == public for other in certificates[1:]):
            raise invalid("/certificate", "chain_order", "the host's own certificate must come first, then its issuers in order")
        raise invalid("/private_key", "key_mismatch", "the private key does not belong to the certificate; send the pair")
    _check_chain(certificates)
    details = read_details(certificates[0])
    _check_leaf(certificates[0], details, host)
    text = b"".join(certificate_in_chain.public_bytes(serialization.Encoding.PEM) for certificate_in_chain in certificates)
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return Pair(text, pem), details


def read_details(certificate: x509.Certificate) -> CertificateDetails:
    """The details of a certificate."""
    legal_name = certificate.issuer.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
    common = certificate.issuer.get_attributes_for_oid(NameOID.COMMON_NAME)
    issuer = ", ".join(str(attribute.value) for attribute in (*common[:1], *legal_name[:1]))
    return CertificateDetails(
        names=tuple(_names(certificate)), issuer=issuer[:200] or certificate.issuer.rfc4514_string()[:200],
        fingerprint=certificate.fingerprint(hashes.SHA256()).hex(), key=_key_description(certificate),
        not_before=_ms(certificate.not_valid_before_utc), not_after=_ms(certificate.not_valid_after_utc),
    )  # fmt: skip


def subject_of(chain: bytes) -> str:
    """The subject of the first certificate in a PEM text (RFC 4514); empty if it has none or cannot be read."""
    try:
        return x509.load_pem_x509_certificates(chain)[0].subject.rfc4514_string()[:500]
    except _MALFORMED:
        return ""


def covers(names: Sequence[str], host: str) -> bool:
    """Whether a certificate with these names covers the host; a wildcard matches exactly one label."""
    parent = host.partition(".")[2]
    return host in names or f"*.{parent}" in names


def _read_certificates(text: str, pointer: str) -> list[x509.Certificate]:
    try:
        certificates = x509.load_pem_x509_certificates(to_ascii(text))
    except ValueError as error:
        raise invalid(pointer, "unreadable", "there is no readable certificate; send PEM (-----BEGIN CERTIFICATE-----)") from error
    # Checked before the keys are loaded: loading a Diffie-Hellman key takes minutes and blocks every thread.
    if any(certificate.public_key_algorithm_oid not in _KEY_ALGORITHMS for certificate in certificates):
        raise invalid(pointer, "unsupported_key", "browsers accept certificates with RSA and ECDSA keys; use one of these")
    return certificates


def _public_bytes(key: object) -> bytes:
    encoded: bytes = key.public_bytes(  # type: ignore[attr-defined]  # every public key has it
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return encoded


def _check_chain(chain: Sequence[x509.Certificate]) -> None:
    for lower, upper in pairwise(chain):
        try:
            lower.verify_directly_issued_by(upper)
        except (ValueError, TypeError, InvalidSignature) as error:
            raise invalid("/chain", "chain_order", "each certificate must be followed by the one of its issuer") from error


def _check_leaf(leaf: x509.Certificate, details: CertificateDetails, host: str) -> None:
    now = clock.now_ms()
    if not covers(details.names, host):
        names = ", ".join(details.names[:5]) or "nothing"
        raise invalid("/certificate", "host_not_covered", f"the certificate does not cover {host}; it covers {names[:200]}")
    if details.not_after <= now:
        raise invalid("/certificate", "expired", f"the certificate expired on {clock.rfc3339(details.not_after)}; renew it")
    if details.not_before > now:
        raise invalid("/certificate", "not_yet_valid", f"the certificate is valid only from {clock.rfc3339(details.not_before)}")
    if isinstance(leaf.signature_hash_algorithm, _OLD_HASHES):
        raise invalid("/certificate", "weak_signature", "the certificate is signed with MD5 or SHA-1, which browsers refuse")
    try:
        usage = leaf.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except x509.ExtensionNotFound:
        return
    if ExtendedKeyUsageOID.SERVER_AUTH not in usage:
        raise invalid("/certificate", "not_for_servers", "the certificate is not for servers; request one with serverAuth")


def _names(certificate: x509.Certificate) -> list[str]:
    try:
        extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    return [name.lower() for name in extension.get_values_for_type(x509.DNSName)]


def _key_description(certificate: x509.Certificate) -> str:
    key = certificate.public_key()
    if isinstance(key, rsa.RSAPublicKey):
        return f"RSA {key.key_size}"
    return f"ECDSA {key.curve.name}" if isinstance(key, ec.EllipticCurvePublicKey) else type(key).__name__


def _ms(time: datetime) -> int:
    return int(time.timestamp() * 1000)
