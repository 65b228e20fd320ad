"""Addresses by which a client downloads one object of a bucket for a short time, without a key of its own.

They are requests signed in their URL by AWS Signature Version 4, as Amazon specifies it for S3.  Method, host, object, name, media
type and end are signed, so none of them can be changed.
"""

import hashlib
import hmac
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import quote, urlsplit

from appliance.core import clock
from appliance.core.config.sections import Blobs as Settings

VALID_SECONDS = 60  # until the download begins; it may take longer
_ALGORITHM = "AWS4-HMAC-SHA256"


@dataclass(frozen=True)
class Download:
    """The headers of a response: `disposition` with the name of the file, and the media type."""

    disposition: str
    media_type: str


class AddressSigner:
    """Signs addresses of objects of at least `blobs.direct_from_mb`, at `blobs.public_endpoint`."""

    def __init__(self, settings: Settings) -> None:
        endpoint = urlsplit(settings.public_endpoint or settings.endpoint or f"https://s3.{settings.region}.amazonaws.com")
        self.smallest = settings.direct_from_mb << 20
        host = endpoint.netloc.lower()
        folders = [each for each in (settings.prefix.strip("/"),) if each]
        if settings.path_style:
            folders.insert(0, settings.bucket)
        else:
            host = f"{settings.bucket}.{host}"
        self._signer = RequestSigner(endpoint.scheme, host, settings.region, settings.key_id, settings.secret_key)
        self._folder = "".join(f"/{each}" for each in folders)

    def address(self, place: str, download: Download) -> str:
        """An address that answers GET with the content of the place, for `VALID_SECONDS`."""
        query = {
            "response-cache-control": "private, no-store", "response-content-disposition": download.disposition,
            "response-content-type": download.media_type,
        }  # fmt: skip
        return self._signer.sign("GET", f"{self._folder}/{place}", query)


@dataclass(frozen=True)
class RequestSigner:
    """Signs requests to one server, whose origin is its scheme and host."""

    scheme: str
    host: str
    region: str
    key_id: str
    secret_key: str
    session_token: str = ""

    def sign(self, method: str, path: str, query: dict[str, str]) -> str:
        """The address of a request without a body, valid for `VALID_SECONDS`."""
        path, stamp = quote(path, safe="/"), _timestamp(clock.now_ms())
        scope = f"{stamp[:8]}/{self.region}/s3/aws4_request"
        signed = _encode({
            "X-Amz-Algorithm": _ALGORITHM, "X-Amz-Credential": f"{self.key_id}/{scope}", "X-Amz-Date": stamp,
            "X-Amz-Expires": str(VALID_SECONDS), "X-Amz-SignedHeaders": "host",
            **({"X-Amz-Security-Token": self.session_token} if self.session_token else {}), **query,
        })  # fmt: skip
        request = "\n".join([method, path, signed, f"host:{self.host}\n", "host", "UNSIGNED-PAYLOAD"])
        text = "\n".join([_ALGORITHM, stamp, scope, hashlib.sha256(request.encode()).hexdigest()])
        key = f"AWS4{self.secret_key}".encode()
        for part in scope.split("/"):
            key = hmac.digest(key, part.encode(), "sha256")
        signature = hmac.digest(key, text.encode(), "sha256").hex()
        return f"{self.scheme}://{self.host}{path}?{signed}&X-Amz-Signature={signature}"


def _encode(query: dict[str, str]) -> str:
    """The query in its canonical form, which signatures require."""
    return "&".join(f"{name}={value}" for name, value in sorted((quote(n, safe=""), quote(v, safe="")) for n, v in query.items()))


def _timestamp(ms: int) -> str:
    return datetime.fromtimestamp(ms // 1000, UTC).strftime("%Y%m%dT%H%M%SZ")
