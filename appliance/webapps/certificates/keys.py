"""Reads uploaded private keys; hostile keys are rejected first, because the library's own checks of them can block the process
for minutes."""

import base64
import binascii
import re

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa

from appliance.core.errors import Detail, ValidationFailed
from appliance.core.sentences import Sentence

Key = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey

LONGEST = 64 << 10  # characters of one PEM text
LEAST_RSA, MOST_RSA = 2048, 8192
_LONGEST_EXPONENT = 64  # bits
_CURVES = (ec.SECP256R1, ec.SECP384R1, ec.SECP521R1)
_POINTER = "/private_key"
_BLOCK = re.compile(r"-----BEGIN ((?:RSA |EC |DSA )?PRIVATE KEY)-----([^-]*)-----END \1-----")
_LENGTH = rb"(?:[\x00-\x7f]|\x81.|\x82..|\x83...)"
_PKCS8 = re.compile(rb"\x30" + _LENGTH + rb"\x02\x01.\x30" + _LENGTH + rb"(\x06.*)", re.DOTALL)
_SUPPORTED_OIDS = (bytes.fromhex("06092a864886f70d010101"), bytes.fromhex("06072a8648ce3d0201"))  # rsaEncryption, ecPublicKey


def invalid(pointer: str, code: str, message: str) -> ValidationFailed:
    """A ValidationFailed for one text of the pair, with a code."""
    return ValidationFailed(message, details=[Detail(pointer, code, message)])


def to_ascii(text: str) -> bytes:
    """Encode PEM, which must be ASCII and of limited length; ValueError."""
    if len(text) > LONGEST:
        raise ValueError("too long")
    return text.encode("ascii")


def read_private_key(text: str) -> Key:
    """The first private key of a PEM text, of a type and size that browsers accept; ValidationFailed with a code."""
    if "\nProc-Type: 4,ENCRYPTED" in text or "BEGIN ENCRYPTED PRIVATE KEY" in text:
        raise invalid(_POINTER, "encrypted_key", "the private key is encrypted; send it decrypted (it is stored encrypted)")
    try:
        block = _find_block(to_ascii(text).decode("ascii"))
        # The library's primality tests would block every other thread; the key is tested by `_check_rsa` below instead.
        key = serialization.load_pem_private_key(block, None, unsafe_skip_rsa_key_validation=True)
    except (ValueError, TypeError) as error:
        raise invalid(_POINTER, "unreadable", "the private key is not readable as PEM (PKCS #8, PKCS #1 or SEC 1)") from error
    except ValidationFailed:
        raise
    except Exception as error:
        raise _unsupported() from error
    if isinstance(key, rsa.RSAPrivateKey):
        _check_rsa(key)
        return key
    if isinstance(key, ec.EllipticCurvePrivateKey) and isinstance(key.curve, _CURVES):
        return key
    raise _unsupported()


def _unsupported() -> ValidationFailed:
    return invalid(_POINTER, "unsupported_key", "browsers accept RSA and the curves P-256, P-384 and P-521; use one of them")


def _find_block(text: str) -> bytes:
    """The PEM block of the key. Types other than RSA and ECDSA are refused here, because a Diffie-Hellman key takes minutes to
    load."""
    block = _BLOCK.search(text)
    if block is None:
        raise ValueError("no private key")
    try:
        der = base64.b64decode("".join(block[2].split()), validate=True)
    except binascii.Error as error:
        raise ValueError("not base64") from error
    generic = _PKCS8.match(der)
    if block[1] == "DSA PRIVATE KEY" or (generic is not None and not generic[1].startswith(_SUPPORTED_OIDS)):
        raise _unsupported()
    if block[1] == "PRIVATE KEY" and generic is None:
        raise ValueError("no PKCS #8")
    return block[0].encode("ascii")


def _check_rsa(key: rsa.RSAPrivateKey) -> None:
    """Check the size before computing anything with the key, then that its numbers are consistent, then that it can sign."""
    if not LEAST_RSA <= key.key_size <= MOST_RSA:
        raise invalid(
            _POINTER,
            "weak_key",
            Sentence(
                "the RSA key has %(key_size)s bits; it must have %(least_rsa)s to %(most_rsa)s",
                least_rsa=LEAST_RSA, most_rsa=MOST_RSA, key_size=key.key_size,
            ),
        )
    try:
        if not _is_consistent(key.private_numbers()):
            raise ValueError("inconsistent key numbers")
        probe = b"does this key sign?"
        signature = key.sign(probe, padding.PKCS1v15(), hashes.SHA256())
        key.public_key().verify(signature, probe, padding.PKCS1v15(), hashes.SHA256())
    except (ValueError, InvalidSignature) as error:
        raise invalid(_POINTER, "unreadable", "the private key is damaged: its numbers are inconsistent") from error


def _is_consistent(key: rsa.RSAPrivateNumbers) -> bool:
    public, p, q = key.public_numbers, key.p, key.q
    parts = (p, q, key.d, key.dmp1, key.dmq1, key.iqmp)
    if max(part.bit_length() for part in parts) > public.n.bit_length() or public.e.bit_length() > _LONGEST_EXPONENT:
        return False
    if p < 3 or q < 3 or not p & q & 1 or p * q != public.n:
        return False
    inverse = (public.e * key.d - 1) % (p - 1) == 0 == (public.e * key.d - 1) % (q - 1)
    return inverse and key.dmp1 == key.d % (p - 1) and key.dmq1 == key.d % (q - 1) and key.iqmp * q % p == 1
