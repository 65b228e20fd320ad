"""A certificate authority for tests, which signs valid and invalid certificates."""

import datetime
import ssl
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID, ObjectIdentifier

Key = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey
PEM = serialization.Encoding.PEM


def pem_of(key: Key, password: bytes | None = None) -> str:
    protection = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
    return key.private_bytes(PEM, serialization.PrivateFormat.PKCS8, protection).decode()


def text_of(*certificates: x509.Certificate) -> str:
    return "".join(certificate.public_bytes(PEM).decode() for certificate in certificates)


def new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


@dataclass
class Leaf:
    """The content of a certificate; `begins` and `ends` are days from now."""

    names: Sequence[str]
    key: Key = field(default_factory=new_key)
    begins: float = -1
    ends: float = 30
    usage: ObjectIdentifier = ExtendedKeyUsageOID.SERVER_AUTH


class Authority:
    """A root authority that signs certificates."""

    def __init__(self, name: str = "Authority of the tests", parent: "Authority | None" = None) -> None:
        self.key = new_key()
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        signer = parent or self
        builder = signer.builder(self.name, self.key.public_key(), (-2, 3000))
        self.certificate = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True).sign(
            signer.key, hashes.SHA256()
        )

    def sign(self, leaf: Leaf, public: object = None) -> x509.Certificate:
        """The certificate for a leaf's public key, or for another one."""
        names = x509.SubjectAlternativeName([x509.DNSName(name) for name in leaf.names])
        builder = self.builder(x509.Name([]), public or leaf.key.public_key(), (leaf.begins, leaf.ends))
        builder = builder.add_extension(names, critical=True).add_extension(x509.ExtendedKeyUsage([leaf.usage]), critical=False)
        return builder.sign(self.key, hashes.SHA256())

    def pair(self, *names: str) -> tuple[str, str]:
        """Chain and key in PEM, good for a month."""
        leaf = Leaf(names)
        return text_of(self.sign(leaf)), pem_of(leaf.key)

    def trust(self) -> ssl.SSLContext:
        """The context of a client that trusts only this authority."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(cadata=text_of(self.certificate))
        return context

    def builder(self, subject: x509.Name, public: Any, days: tuple[float, float]) -> x509.CertificateBuilder:
        """A certificate of this authority that is still to be completed and signed."""
        now = datetime.datetime.now(datetime.UTC)
        begins, ends = (now + datetime.timedelta(days=day) for day in days)
        return x509.CertificateBuilder(
            self.name, subject, public, x509.random_serial_number(), begins, ends
        ).add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()), critical=False)  # fmt: skip
