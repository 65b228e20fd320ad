"""AWS Signature Version 4 as Amazon specifies it for S3: in a header, or in the URL of a presigned request."""

import hashlib
import hmac
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from urllib.parse import quote

_ALGORITHM = "AWS4-HMAC-SHA256"
Pairs = Iterable[tuple[str, str]]


@dataclass(frozen=True)
class Target:
    """The request to sign: `host` as in the HTTP header, `path` percent-encoded, `query` not encoded."""

    method: str
    host: str
    path: str
    query: Pairs = ()


@dataclass(frozen=True)
class Signer:
    """Signs requests with one key for one region."""

    key_id: str
    secret_key: str = field(repr=False)
    region: str
    session_token: str = field(default="", repr=False)

    def headers(self, target: Target, extra: Pairs, content: bytes, now: float) -> list[tuple[str, str]]:
        """Return the headers to send beside `Host`: `extra` and those that sign them and the content."""
        stamp, digest = _timestamp(now), hashlib.sha256(content).hexdigest()
        sent = [*extra, ("x-amz-content-sha256", digest), ("x-amz-date", stamp)]
        if self.session_token:
            sent.append(("x-amz-security-token", self.session_token))
        signed = sorted((name.lower(), " ".join(value.split())) for name, value in [("host", target.host), *sent])
        names = ";".join(name for name, _ in signed)
        signature = self._signature(target, signed, digest, stamp)
        scope = f"{self.key_id}/{self._scope(stamp)}"
        return [*sent, ("authorization", f"{_ALGORITHM} Credential={scope},SignedHeaders={names},Signature={signature}")]

    def presign(self, target: Target, seconds: int, now: float) -> str:
        """Return the percent-encoded query with which anyone can send this request for `seconds` from now."""
        stamp = _timestamp(now)
        query = [
            *target.query,
            ("X-Amz-Algorithm", _ALGORITHM),
            ("X-Amz-Credential", f"{self.key_id}/{self._scope(stamp)}"),
            ("X-Amz-Date", stamp),
            ("X-Amz-Expires", str(seconds)),
            ("X-Amz-SignedHeaders", "host"),
        ]
        if self.session_token:
            query.append(("X-Amz-Security-Token", self.session_token))
        presigned_target = Target(target.method, target.host, target.path, query)
        signature = self._signature(presigned_target, [("host", target.host)], "UNSIGNED-PAYLOAD", stamp)
        return f"{encode_query(query)}&X-Amz-Signature={signature}"

    def _signature(self, target: Target, signed: list[tuple[str, str]], digest: str, stamp: str) -> str:
        lines = "".join(f"{name}:{value}\n" for name, value in signed)
        names = ";".join(name for name, _ in signed)
        request = "\n".join([target.method, target.path, encode_query(target.query), lines, names, digest])
        text = "\n".join([_ALGORITHM, stamp, self._scope(stamp), hashlib.sha256(request.encode()).hexdigest()])
        key = f"AWS4{self.secret_key}".encode()
        for part in self._scope(stamp).split("/"):
            key = hmac.digest(key, part.encode(), "sha256")
        return hmac.digest(key, text.encode(), "sha256").hex()

    def _scope(self, stamp: str) -> str:
        return f"{stamp[:8]}/{self.region}/s3/aws4_request"


def encode_query(query: Pairs) -> str:
    """Encode a query in its canonical form, which signatures require."""
    return "&".join(f"{name}={value}" for name, value in sorted((quote(n, safe=""), quote(v, safe="")) for n, v in query))


def _timestamp(now: float) -> str:
    return datetime.fromtimestamp(now, UTC).strftime("%Y%m%dT%H%M%SZ")
