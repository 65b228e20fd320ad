"""An authenticator in software: creates and uses passkeys as a browser with a device would."""

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from secrets import token_bytes
from typing import Any, cast

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from fido2.cose import ES256
from fido2.webauthn import Aaguid, AttestationObject, AttestedCredentialData, AuthenticatorData

FLAG = AuthenticatorData.FLAG


@dataclass
class Authenticator:
    """A device with one passkey.  Its members say what it claims, so that tests can make it lie."""

    origin: str
    rp_id: str
    counter: int = 0
    is_verified: bool = True
    client: dict[str, Any] = field(default_factory=dict)
    user_handle: str = ""
    credential_id: bytes = field(default_factory=lambda: token_bytes(32))
    key: ec.EllipticCurvePrivateKey = field(default_factory=lambda: ec.generate_private_key(ec.SECP256R1()))

    def create(self, options: Mapping[str, Any]) -> str:
        """The response to options for a new passkey."""
        self.user_handle = options["user"]["id"]
        public = cast(Any, ES256).from_cryptography_key(self.key.public_key())
        credential = AttestedCredentialData.create(Aaguid.NONE, self.credential_id, public)
        data = AuthenticatorData.create(self._rp_hash(), self._flags() | FLAG.AT, self.counter, credential)
        attestation = AttestationObject.create("none", data, {})
        client = self._client_data("webauthn.create", options["challenge"])
        return self._respond({"clientDataJSON": encode(client), "attestationObject": encode(bytes(attestation))})

    def use(self, options: Mapping[str, Any]) -> str:
        """The response to options to use a passkey."""
        data = AuthenticatorData.create(self._rp_hash(), self._flags(), self.counter)
        client = self._client_data("webauthn.get", options["challenge"])
        signature = self.key.sign(bytes(data) + sha256(client).digest(), ec.ECDSA(hashes.SHA256()))
        members = {
            "clientDataJSON": encode(client), "authenticatorData": encode(bytes(data)), "signature": encode(signature),
            "userHandle": self.user_handle,
        }  # fmt: skip
        return self._respond(members)

    def _rp_hash(self) -> bytes:
        return sha256(self.rp_id.encode()).digest()

    def _flags(self) -> AuthenticatorData.FLAG:
        return FLAG.UP | (FLAG.UV if self.is_verified else FLAG(0))

    def _client_data(self, kind: str, challenge: str) -> bytes:
        members = {"type": kind, "challenge": challenge, "origin": self.origin, "crossOrigin": False, **self.client}
        return json.dumps(members).encode()

    def _respond(self, response: Mapping[str, str]) -> str:
        name = encode(self.credential_id)
        return json.dumps({"id": name, "rawId": name, "type": "public-key", "response": response})


def encode(content: bytes) -> str:
    """Base64url without padding."""
    return urlsafe_b64encode(content).rstrip(b"=").decode("ascii")


def decode(text: str) -> bytes:
    """The content of base64url without padding."""
    return urlsafe_b64decode(f"{text}{'=' * (-len(text) % 4)}")
