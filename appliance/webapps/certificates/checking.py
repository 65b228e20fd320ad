"""A certificate with its key is judged before it is believed: does it fit, whom does it name, will clients accept it?"""

from collections.abc import Sequence
from datetime import datetime
from itertools import pairwise

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from appliance.core import clock
from appliance.core.errors import Detail, ValidationFailed

from .records import Facts, Pair

LONGEST = 64 << 10  # characters of one PEM text
MOST_IN_CHAIN = 10
LEAST_RSA, MOST_RSA = 2048, 8192
_CURVES = (ec.SECP256R1, ec.SECP384R1, ec.SECP521R1)
_OLD_HASHES = (hashes.MD5, hashes.SHA1)


def check_pair(host: str, certificate: str, private_key: str, chain: str = "") -> tuple[Pair, Facts]:
    """The pair in one order and one form, and what it says; ValidationFailed whose detail has a code for what is wrong.

    Codes: unreadable, encrypted_key, unsupported_key, weak_key, key_mismatch, chain_order, host_not_covered, expired,
    not_yet_valid, weak_signature, not_for_servers.
    """
    key = _read_key(private_key)
    found = _read_certificates(certificate, "/certificate")
    found += _read_certificates(chain, "/chain") if chain.strip() else []
    if len(found) > MOST_IN_CHAIN:
        raise _wrong("/chain", "unreadable", f"a chain has at most {MOST_IN_CHAIN} certificates; send those up to the root only")
    public = _public_bytes(key.public_key())
    if _public_bytes(found[0].public_key()) != public:
        if any(_public_bytes(other.public_key()) == public for other in found[1:]):
            raise _wrong("/certificate", "chain_order", "the host's own certificate must come first, then its issuers in order")
        raise _wrong("/private_key", "key_mismatch", "the private key does not belong to the certificate; send the pair")
    _check_chain(found)
    facts = describe(found[0])
    _check_leaf(found[0], facts, host)
    text = b"".join(each.public_bytes(serialization.Encoding.PEM) for each in found)
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return Pair(text, pem), facts


def describe(certificate: x509.Certificate) -> Facts:
    """What a certificate says about itself."""
    legal = certificate.issuer.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
    common = certificate.issuer.get_attributes_for_oid(NameOID.COMMON_NAME)
    issuer = ", ".join(str(attribute.value) for attribute in (*common[:1], *legal[:1]))
    return Facts(
        names=tuple(_names(certificate)), issuer=issuer[:200] or certificate.issuer.rfc4514_string()[:200],
        fingerprint=certificate.fingerprint(hashes.SHA256()).hex(), key=_kind(certificate),
        not_before=_ms(certificate.not_valid_before_utc), not_after=_ms(certificate.not_valid_after_utc),
    )  # fmt: skip


def covers(names: Sequence[str], host: str) -> bool:
    """Whether a certificate with these names is one for the host; a wildcard stands for exactly one label."""
    parent = host.partition(".")[2]
    return host in names or f"*.{parent}" in names


def _wrong(pointer: str, code: str, message: str) -> ValidationFailed:
    return ValidationFailed(message, details=[Detail(pointer, code, message)])


def _read_key(text: str) -> rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey:
    pointer = "/private_key"
    if "\nProc-Type: 4,ENCRYPTED" in text or "BEGIN ENCRYPTED PRIVATE KEY" in text:
        raise _wrong(pointer, "encrypted_key", "the private key is encrypted; send it decrypted, it is sealed here")
    try:
        key: PrivateKeyTypes = serialization.load_pem_private_key(_ascii(text), None)
    except (ValueError, TypeError) as error:
        raise _wrong(pointer, "unreadable", "the private key is not readable as PEM (PKCS #8, PKCS #1 or SEC 1)") from error
    except Exception as error:
        raise _wrong(pointer, "unsupported_key", "the private key is of a kind that is not served; use RSA or ECDSA") from error
    if isinstance(key, rsa.RSAPrivateKey):
        if not LEAST_RSA <= key.key_size <= MOST_RSA:
            raise _wrong(pointer, "weak_key", f"an RSA key has {LEAST_RSA} to {MOST_RSA} bits, this one {key.key_size}")
        return key
    if isinstance(key, ec.EllipticCurvePrivateKey) and isinstance(key.curve, _CURVES):
        return key
    raise _wrong(pointer, "unsupported_key", "browsers accept RSA and the curves P-256, P-384 and P-521; use one of them")


def _read_certificates(text: str, pointer: str) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(_ascii(text))
    except ValueError as error:
        raise _wrong(pointer, "unreadable", "there is no readable certificate; send PEM (-----BEGIN CERTIFICATE-----)") from error


def _ascii(text: str) -> bytes:
    if len(text) > LONGEST:
        raise ValueError("too long")
    return text.encode("ascii")


def _public_bytes(key: object) -> bytes:
    encoded: bytes = key.public_bytes(  # type: ignore[attr-defined]  # every public key has it
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return encoded


def _check_chain(found: Sequence[x509.Certificate]) -> None:
    for lower, upper in pairwise(found):
        try:
            lower.verify_directly_issued_by(upper)
        except (ValueError, TypeError, InvalidSignature) as error:
            raise _wrong("/chain", "chain_order", "each certificate must be followed by the one of its issuer") from error


def _check_leaf(leaf: x509.Certificate, facts: Facts, host: str) -> None:
    now = clock.now_ms()
    if not covers(facts.names, host):
        named = ", ".join(facts.names[:5]) or "nothing"
        raise _wrong("/certificate", "host_not_covered", f"the certificate is not one for {host}; it names {named[:200]}")
    if facts.not_after <= now:
        raise _wrong("/certificate", "expired", f"the certificate has expired on {clock.rfc3339(facts.not_after)}; renew it")
    if facts.not_before > now:
        raise _wrong("/certificate", "not_yet_valid", f"the certificate is valid only from {clock.rfc3339(facts.not_before)}")
    if isinstance(leaf.signature_hash_algorithm, _OLD_HASHES):
        raise _wrong("/certificate", "weak_signature", "the certificate is signed with MD5 or SHA-1, which browsers refuse")
    try:
        usage = leaf.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except x509.ExtensionNotFound:
        return
    if ExtendedKeyUsageOID.SERVER_AUTH not in usage:
        raise _wrong("/certificate", "not_for_servers", "the certificate is not meant for servers; ask for one with serverAuth")


def _names(certificate: x509.Certificate) -> list[str]:
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    return [name.lower() for name in found.get_values_for_type(x509.DNSName)]


def _kind(certificate: x509.Certificate) -> str:
    key = certificate.public_key()
    if isinstance(key, rsa.RSAPublicKey):
        return f"RSA {key.key_size}"
    return f"ECDSA {key.curve.name}" if isinstance(key, ec.EllipticCurvePublicKey) else type(key).__name__


def _ms(time: datetime) -> int:
    return int(time.timestamp() * 1000)
