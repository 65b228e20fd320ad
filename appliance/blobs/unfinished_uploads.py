"""Uploads in parts that were never completed: a bucket keeps, and charges for, the parts of a process that was killed.

`obstore` has no request for them, so these two are sent here, signed as `signing` does: ListMultipartUploads and
AbortMultipartUpload of Amazon's S3 API.
"""

import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import httpx

from appliance.core.config import environment
from appliance.core.config.sections import Blobs as Settings
from appliance.core.errors import ConfigInvalid, Overloaded
from appliance.core.sentences import Sentence

from .bucket_errors import refused
from .signing import RequestSigner

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

_SECONDS = 30.0


@dataclass(frozen=True)
class UnfinishedUpload:
    """An upload in progress, or left by a killed process; `name` is without the prefix of the bucket."""

    name: str
    upload_id: str
    begun_at: int


class UnfinishedUploads:
    """The unfinished uploads of a bucket below its prefix.

    The requests need keys, of the settings or of the environment: with the role of a machine, `is_known` is False, and a
    lifecycle rule of the bucket must delete unfinished uploads.
    """

    def __init__(self, settings: Settings, label: str) -> None:
        self._label, self._prefix = label, f"{settings.prefix.strip('/')}/".lstrip("/")
        endpoint = urlsplit(settings.endpoint or f"https://s3.{settings.region}.amazonaws.com")
        host, self._path = endpoint.netloc.lower(), f"/{settings.bucket}"
        if not settings.path_style:
            host, self._path = host if host.startswith(f"{settings.bucket}.") else f"{settings.bucket}.{host}", ""
        key_id, secret_key, token = settings.key_id, settings.secret_key, ""
        if not key_id:
            key_id, secret_key, token = (environment(f"AWS_{name}") or "" for name in _CREDENTIALS)
        self._ca_file = settings.ca_file
        self._signer = RequestSigner(endpoint.scheme, host, settings.region, key_id, secret_key, token)

    @property
    def is_known(self) -> bool:
        """Whether there are keys to sign requests with."""
        return bool(self._signer.key_id)

    def list(self) -> Iterator[UnfinishedUpload]:
        """The unfinished uploads directly below the prefix.  Overloaded when the bucket does not answer."""
        import defusedxml.ElementTree  # late: it is needed once a day

        query: dict[str, str] | None = {}
        while query is not None:
            answer = self._send("GET", "/", {"uploads": "", "prefix": self._prefix, "delimiter": "/", **query})
            page = defusedxml.ElementTree.fromstring(answer.content)
            for each in page.iterfind("{*}Upload"):
                since = datetime.fromisoformat(_text(each, "Initiated"))
                name = _text(each, "Key").removeprefix(self._prefix)
                yield UnfinishedUpload(name, _text(each, "UploadId"), int(since.timestamp() * 1000))
            more = _text(page, "IsTruncated") == "true"
            markers = {"key-marker": _text(page, "NextKeyMarker"), "upload-id-marker": _text(page, "NextUploadIdMarker")}
            query = markers if more else None

    def abort(self, upload: UnfinishedUpload) -> None:
        """Delete the parts of an upload, which can then no longer be completed; one that is gone is no error."""
        self._send("DELETE", f"/{self._prefix}{upload.name}", {"uploadId": upload.upload_id})

    def _send(self, method: str, key: str, query: dict[str, str]) -> httpx.Response:
        path = f"{self._path}{key}" if key != "/" else self._path or "/"
        try:
            with httpx.Client(verify=self._trust(), timeout=_SECONDS, trust_env=False) as client:
                answer = client.request(method, self._signer.sign(method, path, query))
        except httpx.HTTPError as error:
            raise refused(f"{self._label} cannot be reached or failed", error) from error
        if answer.status_code == httpx.codes.NOT_FOUND and method == "DELETE":
            return answer
        if answer.is_error:
            failure = httpx.HTTPStatusError(answer.text[:300], request=answer.request, response=answer)
            forbids = answer.status_code in (httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN)
            raise _refusal(self._label, failure, forbids=forbids)
        return answer

    def _trust(self) -> bool | ssl.SSLContext:
        if not self._ca_file:
            return True
        try:
            context = ssl.create_default_context()
            context.load_verify_locations(self._ca_file)
        except OSError as error:
            raise ConfigInvalid(
                Sentence("the file of authorities %(path)s cannot be read (%(error)s)", path=self._ca_file, error=error)
            ) from error
        return context


_CREDENTIALS = ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SESSION_TOKEN")


def _refusal(label: str, error: httpx.HTTPStatusError, *, forbids: bool) -> Overloaded:
    what = "does not let its unfinished uploads be listed and deleted" if forbids else "failed to list or delete unfinished uploads"
    return refused(f"{label} {what}", error)


def _text(element: "Element", name: str) -> str:
    return element.findtext(f"{{*}}{name}") or ""
