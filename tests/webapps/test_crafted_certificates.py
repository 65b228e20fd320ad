"""Hostile keys and certificates are refused with a code before anything slow is computed with them."""

import base64
import math
import random
import ssl
from collections.abc import Callable

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa, x25519

from appliance.core.errors import ValidationFailed
from appliance.webapps.certificates.validation import check_pair
from tests.sites.signing import Authority, Leaf, pem_of, text_of

HOST = "shop.example.com"
ROOT = Authority()
LEAF = Leaf([HOST])
GOOD = text_of(ROOT.sign(LEAF))
NUMBERS = random.Random(7)  # noqa: S311  the same numbers in every run; none of them is a secret


def der(tag: int, content: bytes) -> bytes:
    size = len(content)
    if size < 128:
        return bytes([tag, size]) + content
    length = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes([tag, 0x80 | len(length)]) + length + content


def integers(*numbers: int) -> bytes:
    return der(0x30, b"".join(der(2, number.to_bytes(number.bit_length() // 8 + 1, "big")) for number in numbers))


def pem(label: str, content: bytes) -> str:
    return f"-----BEGIN {label}-----\n{base64.encodebytes(content).decode()}-----END {label}-----\n"


def odd(bits: int) -> int:
    return NUMBERS.getrandbits(bits) | 1 | 1 << (bits - 1) | 1 << (bits - 2)


def rsa_of(p: int, q: int, d: int = 0, inverse: int = 0) -> str:
    """An RSA key with these factors, which need not be primes."""
    e = 65537
    exponent = d or pow(e, -1, math.lcm(p - 1, q - 1))
    inverse = inverse or (pow(q, -1, p) if p & 1 else 1)
    return pem("RSA PRIVATE KEY", integers(0, p * q, e, exponent, p, q, exponent % (p - 1), exponent % (q - 1), inverse))


def of_composites(bits: int) -> str:
    """The key is consistent, but its factors are not primes."""
    while True:
        p, q = odd(bits), odd(bits)
        if math.gcd(p, q) == math.gcd(65537, (p - 1) * (q - 1)) == 1:
            return rsa_of(p, q)


def of_the_wrong_exponent() -> str:
    numbers = rsa.generate_private_key(65537, 2048).private_numbers()
    return rsa_of(numbers.p, numbers.q, d=numbers.d ^ 2)


def of_an_endless_exponent() -> str:
    """The key would sign, but slowly."""
    numbers = rsa.generate_private_key(65537, 2048).private_numbers()
    return rsa_of(numbers.p, numbers.q, d=numbers.d + (math.lcm(numbers.p - 1, numbers.q - 1) << 20_000))


def of_a_damaged_part() -> str:
    """The key still signs, because the library falls back to a slower method."""
    numbers = rsa.generate_private_key(65537, 2048).private_numbers()
    return rsa_of(numbers.p, numbers.q, inverse=numbers.iqmp ^ 2)


def diffie_hellman() -> bytes:
    """A key of a group that takes the library a while to judge; a larger one takes it minutes."""
    group = der(0x30, bytes.fromhex("06092a864886f70d010301") + integers((1 << 1279) - 1, 2))
    return der(0x30, der(2, b"\0") + group + der(4, der(2, b"\x05")))


def inside_another() -> str:
    return f"-----BEGIN RSA PRIVATE KEY-----\n{pem('PRIVATE KEY', diffie_hellman())}-----END RSA PRIVATE KEY-----\n"


KEYS: dict[str, tuple[Callable[[], str], str]] = {
    "larger than any that is served": (lambda: of_composites(4500), "weak_key"),
    "no primes": (lambda: of_composites(1024), "unreadable"),
    "an even factor": (lambda: rsa_of(odd(1024) + 1, odd(1024), d=odd(2047)), "unreadable"),
    "another exponent": (of_the_wrong_exponent, "unreadable"),
    "a number far longer than the key": (of_an_endless_exponent, "unreadable"),
    "a damaged part": (of_a_damaged_part, "unreadable"),
    "Diffie-Hellman": (lambda: pem("PRIVATE KEY", diffie_hellman()), "unsupported_key"),
    "Diffie-Hellman that says RSA": (lambda: pem("RSA PRIVATE KEY", diffie_hellman()), "unsupported_key"),
    "Diffie-Hellman in another key": (inside_another, "unsupported_key"),
    "an old DSA": (lambda: pem("DSA PRIVATE KEY", integers(0, odd(512), odd(160), 2, 3, 4)), "unsupported_key"),
    "no key within": (lambda: pem("PRIVATE KEY", integers(1, 2)), "unreadable"),
    "no base64": (lambda: "-----BEGIN PRIVATE KEY-----\n!\n-----END PRIVATE KEY-----\n", "unreadable"),
}


def codes(certificate: str, key: str, chain: str = "") -> list[tuple[str, str]]:
    with pytest.raises(ValidationFailed) as caught:
        check_pair(HOST, certificate, key, chain)
    return [(detail.code, detail.pointer) for detail in caught.value.details]


@pytest.mark.parametrize("case", KEYS)
def test_a_hostile_key_is_refused(case: str) -> None:
    make, code = KEYS[case]
    assert codes(GOOD, make()) == [(code, "/private_key")]


def test_a_key_after_its_parameters_is_found() -> None:
    parameters = pem("EC PARAMETERS", bytes.fromhex("06082a8648ce3d030107"))
    assert check_pair(HOST, GOOD, parameters + pem_of(LEAF.key))[1].names == (HOST,)


def patch_certificate(old: bytes, new: bytes, whole: str = GOOD) -> str:
    """A certificate with some bytes replaced, regardless of its signature."""
    content = ssl.PEM_cert_to_DER_cert(whole)
    assert old in content
    assert len(old) == len(new)
    return ssl.DER_cert_to_PEM_cert(content.replace(old, new))


CURVE, SIGNATURE = bytes.fromhex("2a8648ce3d030107"), bytes.fromhex("2a8648ce3d040302")
CRAFTED: dict[str, tuple[Callable[[], str], str]] = {
    "an unknown curve": (lambda: patch_certificate(CURVE, CURVE[:-1] + b"\x55"), "unreadable"),
    "an unknown signature": (lambda: patch_certificate(SIGNATURE, SIGNATURE[:-1] + b"\x55"), "unreadable"),
    "a name that is none": (lambda: patch_certificate(HOST.encode(), b"\xff" * len(HOST)), "unreadable"),
    "names twice": (lambda: patch_certificate(bytes.fromhex("551d25"), bytes.fromhex("551d11")), "unreadable"),
    "an unknown version": (lambda: patch_certificate(bytes.fromhex("a003020102"), bytes.fromhex("a003020105")), "unreadable"),
    "a key of another kind": (lambda: text_of(ROOT.sign(LEAF, x25519.X25519PrivateKey.generate().public_key())), "unsupported_key"),
}


@pytest.mark.parametrize("case", CRAFTED)
def test_a_crafted_certificate_is_refused(case: str) -> None:
    make, code = CRAFTED[case]
    assert codes(make(), pem_of(LEAF.key)) == [(code, "/certificate")]


def test_a_crafted_issuer_is_refused() -> None:
    root = patch_certificate(CURVE, CURVE[:-1] + b"\x55", text_of(ROOT.certificate))
    assert codes(GOOD, pem_of(LEAF.key), root) == [("unreadable", "/certificate")]
    other = text_of(ROOT.sign(LEAF, x25519.X25519PrivateKey.generate().public_key()))
    assert codes(GOOD, pem_of(LEAF.key), other) == [("unsupported_key", "/chain")]
