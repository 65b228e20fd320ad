"""The built-in certificate authority: its root, the appliance's own certificate, and certificates for WebApps' domains."""

import datetime
import ipaddress
import os
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from appliance.core import clock
from appliance.core.config import Config
from appliance.tenants import service

from .records import Pair

CA_YEARS, LEAF_DAYS = 10, 397
RENEW_BEFORE_DAYS = 30


def ca_certificate(config: Config) -> Path:
    """The path of the root certificate, for clients to trust."""
    return config.data / "tls" / "ca.pem"


def internal_certificate(config: Config) -> tuple[Path, Path]:
    """Paths of the certificate and key for the base and tenant hosts, signed by the built-in authority; issued or renewed when
    due."""
    folder = _folder(config)
    ca_key, ca = _load_or_create_ca(folder)
    leaf, key_file = folder / "server.pem", folder / "server.key"
    if not _is_valid(leaf, config):
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = _sign_leaf(key, ca_key, ca, _names(config))
        _write(key_file, private_pem(key))
        _write(leaf, certificate.public_bytes(serialization.Encoding.PEM) + ca.public_bytes(serialization.Encoding.PEM))
    return leaf, key_file


def issue_internal(config: Config, host: str) -> Pair:
    """Issue a certificate and a new key for one host from the built-in authority."""
    ca_key, ca = _load_or_create_ca(_folder(config))
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = _sign_leaf(key, ca_key, ca, [x509.DNSName(host)])
    pem = serialization.Encoding.PEM
    return Pair(certificate.public_bytes(pem) + ca.public_bytes(pem), private_pem(key))


def private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """The key in PEM, as unencrypted PKCS #8."""
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())


def _folder(config: Config) -> Path:
    folder = config.data / "tls"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def _now() -> datetime.datetime:
    return datetime.datetime.fromtimestamp(clock.now_ms() / 1000, datetime.UTC)


def _names(config: Config) -> list[x509.GeneralName]:
    base, content = config.domains.base, config.domains.content
    # Clients reject a wildcard directly under a top-level name (*.localhost), so tenants are listed by name and apps are left
    # out.
    below = ["*"] if "." in base else [tenant.id for tenant in service.list_tenants()]
    apps = [f"*.{content}"] if "." in content else []
    hosts = dict.fromkeys([base, *(f"{name}.{base}" for name in below), *apps, "localhost"])
    names: list[x509.GeneralName] = [x509.DNSName(host) for host in hosts]
    try:
        address = ipaddress.ip_address(config.server.host)
    except ValueError:
        return names
    return names if address.is_unspecified else [*names, x509.IPAddress(address)]


def _is_valid(leaf: Path, config: Config) -> bool:
    if not leaf.exists():
        return False
    certificate = x509.load_pem_x509_certificate(leaf.read_bytes())
    soon = _now() + datetime.timedelta(days=RENEW_BEFORE_DAYS)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return certificate.not_valid_after_utc > soon and list(names) == _names(config)


def _load_or_create_ca(folder: Path) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    key_file, file = folder / "ca.key", folder / "ca.pem"
    if key_file.exists():
        key = serialization.load_pem_private_key(key_file.read_bytes(), None)
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise TypeError(f"{key_file} is not an EC key; restore the original file")
        return key, x509.load_pem_x509_certificate(file.read_bytes())
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Governed Operations Service built-in CA")])
    now = _now()
    certificate = (
        x509.CertificateBuilder(
            name, name, key.public_key(), x509.random_serial_number(), now, now + datetime.timedelta(days=365 * CA_YEARS)
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    _write(key_file, private_pem(key))
    _write(file, certificate.public_bytes(serialization.Encoding.PEM))
    return key, certificate


def _sign_leaf(
    key: ec.EllipticCurvePrivateKey, ca_key: ec.EllipticCurvePrivateKey, ca: x509.Certificate, names: Sequence[x509.GeneralName]
) -> x509.Certificate:
    now = _now()
    # A common name has at most 64 characters; clients only check the alternative names.
    first = names[0].value[:64] if isinstance(names[0], x509.DNSName) else "host"
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, first)])
    return (
        x509.CertificateBuilder(
            ca.subject, subject, key.public_key(), x509.random_serial_number(), now, now + datetime.timedelta(days=LEAF_DAYS)
        )
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False)
        .sign(ca_key, hashes.SHA256())
    )


def _write(path: Path, data: bytes) -> None:
    """Write atomically and durably: a truncated key left by a crash would be used forever."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
