"""The signed record that says how far an audit trail goes: the last line of an export, and now and then a record of a stream.

It is a line of JSON with the owner of the trail, the number and hash of the last entry before it, the time, and the key.  As each
entry's hash covers its predecessors, it vouches for all entries up to there.  In an export it also has the number of entries and
the SHA-256 of all bytes before it.  Its last member `signature` is the Ed25519 signature, in base64, of the same line without it.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

from appliance.core import clock
from appliance.monitor.audit import CHECKPOINT, GENESIS

from .keys import SigningKey

_SIGNED = re.compile(rb'(\{.+), "signature": "([A-Za-z0-9+/=]+)"\}', re.DOTALL)


def make_checkpoint(key: SigningKey, tenant_id: str, seq: int, last_hash: str, **more: Any) -> str:
    """The line, with its end, that vouches for a trail up to the entry `seq` with this hash."""
    members = {
        "tenant_id": tenant_id, "seq": seq, "at": clock.now_ms(), "action": CHECKPOINT, "hash": last_hash, **more,
        "key": key.fingerprint,
    }  # fmt: skip
    text = json.dumps(members, ensure_ascii=False)
    signature = key.sign(f"{text}\n".encode())
    return f'{text[:-1]}, "signature": "{signature}"}}\n'


def sign_export(key: SigningKey, tenant_id: str, lines: Iterable[str], *, is_filtered: bool = False) -> Iterator[str]:
    """The exported lines, followed by their checkpoint.  `is_filtered`: entries in between were left out on purpose."""
    digest, count, last = hashlib.sha256(), 0, ""
    for line in lines:
        digest.update(line.encode())
        count, last = count + 1, line
        yield line
    entry: dict[str, Any] = json.loads(last) if last else {"seq": 0, "hash": GENESIS}
    more = {"entries": count, "sha256": digest.hexdigest(), "filtered": is_filtered}
    yield make_checkpoint(key, tenant_id, entry["seq"], entry["hash"], **more)


def split_signature(line: bytes) -> tuple[bytes, str] | None:
    """The bytes that the signature of a checkpoint's line covers, and the signature; None for another line."""
    match = _SIGNED.fullmatch(line.rstrip(b"\n"))
    return (match[1] + b"}\n", match[2].decode()) if match else None
