"""Signatures of tokens (JWS, RS256 or ES256), and the keys that check them.

Imported by those who use it, when somebody signs in with a provider, because joserfc would make every start slower.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from joserfc import jws
from joserfc.errors import JoseError
from joserfc.jwk import ECKey, RSAKey

Keys = tuple[RSAKey | ECKey, ...]
ALGORITHMS: Mapping[str, type[RSAKey] | type[ECKey]] = {"RS256": RSAKey, "ES256": ECKey}
LONGEST_TOKEN = 32 << 10


class UnknownKey(Exception):
    """The key named in the token is not in the key set."""


def import_keys(entries: Iterable[Any]) -> Keys:
    """The keys of a key set usable with the supported algorithms; others are ignored."""
    keys: list[RSAKey | ECKey] = []
    for entry in entries:
        if isinstance(entry, dict) and entry.get("use", "sig") == "sig" and entry.get("kty") in ("RSA", "EC"):
            try:
                keys.append((RSAKey if entry["kty"] == "RSA" else ECKey).import_key(entry))
            except (JoseError, ValueError, TypeError, KeyError):
                continue
    return tuple(keys)


def verify_signature(keys: Keys, token: str) -> Mapping[str, Any]:
    """The claims of a token after checking its signature; the key must match the token's `kid` and an allowed algorithm.

    ValueError or TypeError for an invalid one, UnknownKey.
    """
    if not token or len(token) > LONGEST_TOKEN:
        raise ValueError("no token")
    try:
        return _verify(keys, token)
    except JoseError as error:
        raise ValueError("no valid signature") from error


def _verify(keys: Keys, token: str) -> Mapping[str, Any]:
    header = jws.extract_compact(token.encode("ascii")).protected
    algorithm = header.get("alg")
    kind = ALGORITHMS.get(algorithm) if isinstance(algorithm, str) else None
    if kind is None:
        raise ValueError("another algorithm")
    key_id = header.get("kid")
    candidates = [key for key in keys if isinstance(key, kind) and key.get("alg", algorithm) == algorithm]
    candidates = [key for key in candidates if key_id is None or key.get("kid") == key_id]
    if algorithm == "ES256":
        candidates = [key for key in candidates if key.get("crv") == "P-256"]
    if not candidates or (key_id is None and len(candidates) > 1):
        raise UnknownKey
    claims = json.loads(jws.deserialize_compact(token, candidates[0], algorithms=[str(algorithm)]).payload)
    if not isinstance(claims, dict):
        raise TypeError("no object")
    return claims
