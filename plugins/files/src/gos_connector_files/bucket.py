"""Sends signed requests to one bucket and maps its error answers to errors of the contract."""

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
    retry_after,
)
from gos_connector_files.signing import Pairs, Signer, Target, encode_query
from gos_connector_files.store import Missing

_BAD_CREDENTIALS = {
    "InvalidAccessKeyId",
    "SignatureDoesNotMatch",
    "ExpiredToken",
    "InvalidToken",
    "TokenRefreshRequired",
    "InvalidSecurity",
}
_WRONG_ENDPOINT = {"AuthorizationHeaderMalformed", "PermanentRedirect", "TemporaryRedirect", "IllegalLocationConstraintException"}
_THROTTLED = {"SlowDown", "ServiceUnavailable", "TooManyRequests", "RequestLimitExceeded", "Throttling"}
_RETRYABLE = {"InternalError", "OperationAborted", "RequestTimeout"}


@dataclass(frozen=True)
class ObjectRequest:
    """A request for an object, or for the bucket itself when `key` is empty."""

    method: str
    key: str = ""
    query: Pairs = ()
    headers: Pairs = ()
    content: bytes = b""


@dataclass(frozen=True)
class Bucket:
    """The bucket of an integration during one call; `now` returns seconds since 1970."""

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
        settings = self.settings
        region = settings.get("region", "us-east-1")
        return Signer(settings["access_key"], settings["secret_key"], region, settings.get("session_token", ""))

    def target(self, method: str, key: str, query: Pairs = ()) -> Target:
        parts = urlsplit(self.endpoint)
        host, path = parts.netloc.lower(), parts.path
        if self.settings.get("addressing", "path") == "virtual":
            host = f"{self.name}.{host}"
        else:
            path = f"{path}/{quote(self.name)}"
        default_port = {"http": ":80", "https": ":443"}[parts.scheme]
        return Target(method, host.removesuffix(default_port), f"{path}/{quote(key)}" if key else path or "/", query)

    def presign(self, method: str, key: str, seconds: int) -> str:
        """Return a URL that works without credentials for `seconds`."""
        target = self.target(method, key)
        return f"{self._url(target)}?{self.signer.presign(target, seconds, self.now())}"

    def send(self, request: ObjectRequest, when_lost: Outcome) -> HttpAnswer:
        """Send a request and return the answer of any status; `when_lost` is the outcome if the answer is lost."""
        target = self.target(request.method, request.key, request.query)
        headers = self.signer.headers(target, request.headers, request.content, self.now())
        url = self._url(target) + (f"?{encode_query(request.query)}" if request.query else "")
        http_request = HttpRequest(request.method, url, headers, content=request.content, follow_redirects=False)
        try:
            return self.ctx.http.send(http_request)
        except ConnectorError as error:
            error.outcome = error.outcome if when_lost == "unknown" else "not_done"
            raise

    def refusal(self, answer: HttpAnswer, path: str, when_lost: Outcome) -> ConnectorError:
        """Return the contract's error for an unsuccessful answer."""
        status = answer.status
        code, region = _error_code_and_region(answer)
        details = {"status": status, "code": code}
        if code in _BAD_CREDENTIALS:
            return AuthError(f"{self.endpoint} does not accept the key; check `access_key` and `secret_key`.", details=details)
        if code == "RequestTimeTooSkewed":
            skew = self._describe_clock_skew(answer)
            return ConfigError(f"{skew} Set both clocks (NTP); signed requests are refused until then.", details=details)
        if code in _WRONG_ENDPOINT or 300 <= status < 400:
            hint = f"; the server names {region}" if region else ""
            return ConfigError(f"The bucket is in another region: correct `region` or `endpoint`{hint}.", details=details)
        if code == "NoSuchBucket":
            message = f"There is no bucket {self.name!r} at {self.endpoint}; create it, or correct `bucket`."
            return Rejected(message, details=details)
        if status == 404:
            return Missing(path)
        if code in _THROTTLED or status in (429, 503):
            return RateLimited("The server limits the request rate.", retry_after=retry_after(answer), details=details)
        if code in _RETRYABLE or status >= 500:
            return TransientError(f"The server failed ({status}).", outcome=when_lost, details=details)
        if status == 401 or (status == 403 and not code):
            return AuthError(f"{self.endpoint} refuses the key without giving a reason ({status}).", details=details)
        if code == "AccessDenied":
            return Rejected(f"The key has no access to {path!r}; check its rights on {self.name!r}.", details=details)
        if 400 <= status < 500:
            return Rejected(f"The server refused this with {path!r} ({code or status}).", details=details)
        return SystemFailure(f"The server did not answer with S3 ({status}); check `endpoint`.", outcome=when_lost, details=details)

    def _url(self, target: Target) -> str:
        return f"{urlsplit(self.endpoint).scheme}://{target.host}{target.path}"

    def _describe_clock_skew(self, answer: HttpAnswer) -> str:
        theirs = parse_http_date(answer.headers.get("date"))
        by = "" if theirs is None else f" by {abs(round(theirs - self.now()))} seconds"
        return f"The clock of this machine and the server's differ{by}."


def parse_document(answer: HttpAnswer, root: str, when_lost: Outcome = "not_done") -> Element:
    """Parse the XML of an answer and strip its namespace; SystemFailure unless its root element is `root`."""
    try:
        element: Element = fromstring(answer.content)
    except (ParseError, DefusedXmlException, ValueError) as error:
        raise _invalid_answer(answer, when_lost) from error
    for each in element.iter():
        each.tag = each.tag.rpartition("}")[2]
    if element.tag != root:
        raise _invalid_answer(answer, when_lost)
    return element


def parse_http_date(text: str | None) -> float | None:
    """Convert an HTTP date to seconds since 1970; None if it is invalid."""
    try:
        return parsedate_to_datetime(text).timestamp() if text else None
    except (ValueError, TypeError):
        return None


def _invalid_answer(answer: HttpAnswer, when_lost: Outcome) -> SystemFailure:
    details: dict[str, Any] = {"status": answer.status}
    return SystemFailure("The server did not answer with S3; check `endpoint`.", outcome=when_lost, details=details)


def _error_code_and_region(answer: HttpAnswer) -> tuple[str, str]:
    """Return the error code and the region of an error answer; empty where the server names none."""
    region = answer.headers.get("x-amz-bucket-region", "")
    try:
        element = parse_document(answer, "Error")
    except SystemFailure:
        return "", region
    return (element.findtext("Code") or "")[:100], (element.findtext("Region") or region)[:100]
