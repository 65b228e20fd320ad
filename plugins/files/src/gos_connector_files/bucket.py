"""Signed requests to one bucket, and what its answers mean."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import quote, urlsplit
from xml.etree.ElementTree import Element, ParseError

from defusedxml import DefusedXmlException
from defusedxml.ElementTree import fromstring

from appliance.connectors.contract import (
    AuthError,
    ConfigError,
    ConnectorError,
    Context,
    HttpAnswer,
    HttpRequest,
    Json,
    Outcome,
    RateLimited,
    Rejected,
    SystemFailure,
    TransientError,
)
from gos_connector_files.signing import Pairs, Signer, Target, encoded
from gos_connector_files.store import Missing

_WRONG_KEY = {
    "InvalidAccessKeyId",
    "SignatureDoesNotMatch",
    "ExpiredToken",
    "InvalidToken",
    "TokenRefreshRequired",
    "InvalidSecurity",
}
_ELSEWHERE = {"AuthorizationHeaderMalformed", "PermanentRedirect", "TemporaryRedirect", "IllegalLocationConstraintException"}
_PATIENCE = {"SlowDown", "ServiceUnavailable", "TooManyRequests", "RequestLimitExceeded", "Throttling"}
_AGAIN = {"InternalError", "OperationAborted", "RequestTimeout"}


@dataclass(frozen=True)
class Asked:
    """A request for an object; without a key for the bucket itself."""

    method: str
    key: str = ""
    query: Pairs = ()
    headers: Pairs = ()
    content: bytes = b""


@dataclass(frozen=True)
class Bucket:
    """The bucket of an integration during one call; `now` answers seconds since 1970."""

    settings: Json
    ctx: Context
    now: Callable[[], float] = field(default=time.time)

    @property
    def name(self) -> str:
        return str(self.settings["bucket"])

    @property
    def endpoint(self) -> str:
        return str(self.settings["endpoint"]).rstrip("/")

    @property
    def signer(self) -> Signer:
        given = self.settings
        region = given.get("region", "us-east-1")
        return Signer(given["access_key"], given["secret_key"], region, given.get("session_token", ""))

    def target(self, method: str, key: str, query: Pairs = ()) -> Target:
        parts = urlsplit(self.endpoint)
        host, path = parts.netloc.lower(), parts.path
        if self.settings.get("addressing", "path") == "virtual":
            host = f"{self.name}.{host}"
        else:
            path = f"{path}/{quote(self.name)}"
        usual = {"http": ":80", "https": ":443"}[parts.scheme]
        return Target(method, host.removesuffix(usual), f"{path}/{quote(key)}" if key else path or "/", query)

    def presigned(self, method: str, key: str, seconds: int) -> str:
        """An address that works without a key for `seconds`."""
        target = self.target(method, key)
        return f"{self._place(target)}?{self.signer.presigned(target, seconds, self.now())}"

    def send(self, asked: Asked, when_lost: Outcome) -> HttpAnswer:
        """Whatever the server answers; without an answer the outcome is `when_lost` once the request has left."""
        target = self.target(asked.method, asked.key, asked.query)
        signed = self.signer.headers(target, asked.headers, asked.content, self.now())
        url = self._place(target) + (f"?{encoded(asked.query)}" if asked.query else "")
        request = HttpRequest(asked.method, url, signed, content=asked.content, follow_redirects=False)
        try:
            return self.ctx.http.send(request)
        except ConnectorError as error:
            error.outcome = error.outcome if when_lost == "unknown" else "not_done"
            raise

    def refusal(self, answer: HttpAnswer, path: str, when_lost: Outcome) -> ConnectorError:
        """What an answer that is no success means."""
        status = answer.status
        code, region = _told(answer)
        details = {"status": status, "code": code}
        if code in _WRONG_KEY:
            return AuthError(f"{self.endpoint} does not accept the key; check `access_key` and `secret_key`.", details=details)
        if code == "RequestTimeTooSkewed":
            return ConfigError(
                f"{self._skew(answer)} Set both clocks (NTP); signed requests are refused until then.", details=details
            )
        if code in _ELSEWHERE or 300 <= status < 400:
            hint = f"; it names {region}" if region else ""
            return ConfigError(f"The bucket is to be asked elsewhere: correct `region` or `endpoint`{hint}.", details=details)
        if code == "NoSuchBucket":
            return Rejected(f"There is no bucket {self.name!r} at {self.endpoint}; make it, or correct `bucket`.", details=details)
        if status == 404:
            return Missing(path)
        if code in _PATIENCE or status in (429, 503):
            asked = answer.headers.get("retry-after", "")
            return RateLimited(
                "The server asks for patience.", retry_after=float(asked) if asked.isdigit() else None, details=details
            )
        if code in _AGAIN or status >= 500:
            return TransientError(f"The server failed ({status}).", outcome=when_lost, details=details)
        if status == 401 or (status == 403 and not code):
            return AuthError(f"{self.endpoint} refuses the key without a reason ({status}).", details=details)
        if code == "AccessDenied":
            return Rejected(f"The key may not do this with {path!r}; check its rights on {self.name!r}.", details=details)
        if 400 <= status < 500:
            return Rejected(f"The server refused this with {path!r} ({code or status}).", details=details)
        return SystemFailure(f"The server's answer is not S3's ({status}); check `endpoint`.", outcome=when_lost, details=details)

    def _place(self, target: Target) -> str:
        return f"{urlsplit(self.endpoint).scheme}://{target.host}{target.path}"

    def _skew(self, answer: HttpAnswer) -> str:
        theirs = moment(answer.headers.get("date"))
        by = "" if theirs is None else f" by {abs(round(theirs - self.now()))} seconds"
        return f"The clock of this machine and the server's differ{by}."


def document(answer: HttpAnswer, root: str, when_lost: Outcome = "not_done") -> Element:
    """The XML of an answer without its namespace; SystemFailure when it is something else than `root`."""
    try:
        found: Element = fromstring(answer.content)
    except (ParseError, DefusedXmlException, ValueError) as error:
        raise _nonsense(answer, when_lost) from error
    for each in found.iter():
        each.tag = each.tag.rpartition("}")[2]
    if found.tag != root:
        raise _nonsense(answer, when_lost)
    return found


def moment(text: str | None) -> float | None:
    """Seconds since 1970 of one of HTTP's dates; None for what is none."""
    try:
        return parsedate_to_datetime(text).timestamp() if text else None
    except (ValueError, TypeError):
        return None


def _nonsense(answer: HttpAnswer, when_lost: Outcome) -> SystemFailure:
    details: dict[str, Any] = {"status": answer.status}
    return SystemFailure("The server's answer is not S3's; check `endpoint`.", outcome=when_lost, details=details)


def _told(answer: HttpAnswer) -> tuple[str, str]:
    """The code of an error and the region that it names; empty where the server does not tell."""
    region = answer.headers.get("x-amz-bucket-region", "")
    try:
        found = document(answer, "Error")
    except SystemFailure:
        return "", region
    return (found.findtext("Code") or "")[:100], (found.findtext("Region") or region)[:100]
