"""The way zeep reaches the service: through the call's own client, and nothing but XML without a document type gets back."""

import base64
import time
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit
from xml.etree.ElementTree import ParseError

from defusedxml.common import DefusedXmlException
from defusedxml.ElementTree import fromstring
from lxml import etree

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

_EXCERPT = 500
_MOST_DOCUMENTS = 100
_PORTS = {"http": 80, "https": 443}
running: ContextVar[Context] = ContextVar("soap_call")


@dataclass(frozen=True)
class Reply:
    """An answer, as zeep looks at one."""

    status_code: int
    content: bytes
    headers: Mapping[str, str]
    encoding: str = "utf-8"


@dataclass
class Road:
    """What zeep calls a transport; `loaded` counts the documents of one description."""

    settings: Json
    loaded: int = field(default=0)

    def load(self, url: str) -> bytes:
        """A document of the description: of the WSDL's own server with the credentials, of others without."""
        if not url.startswith(("http://", "https://")):
            raise ConfigError(f"The description names {url[:200]!r}, which is no address of http or https.")
        self.loaded += 1
        if self.loaded > _MOST_DOCUMENTS:
            raise SystemFailure(f"The description is made of more than {_MOST_DOCUMENTS} documents.")
        headers = [("Accept", "application/wsdl+xml, text/xml, application/xml")]
        if origin(url) == origin(self.settings["wsdl_url"]):
            headers += self._login()
        answer = running.get().http.send(HttpRequest("GET", url, headers, timeout=self.settings.get("timeout_s", 60)))
        error = error_of(answer)
        if error is not None:
            raise error
        safe(answer.content, "not_done")
        return answer.content

    def post_xml(self, address: str, envelope: Any, headers: Mapping[str, str]) -> Reply:
        """Send a message; a fault comes back as an answer, everything else that is no success as an error of the contract."""
        content: bytes = etree.tostring(envelope, xml_declaration=True, encoding="UTF-8")
        sent = [*headers.items(), *self._login()]
        timeout = self.settings.get("timeout_s", 60)
        request = HttpRequest("POST", address, sent, (), content, timeout, follow_redirects=False)
        answer = running.get().http.send(request)
        kind = answer.headers.get("content-type", "text/xml").split(";")[0].strip().lower()
        is_fault = answer.status in (400, 500) and kind in ("text/xml", "application/soap+xml", "application/xml")
        error = None if is_fault else error_of(answer)
        if error is not None:
            raise error
        if kind == "multipart/related":
            raise SystemFailure("The service answers in parts (attachments), which are not supported.", outcome="unknown")
        if answer.content:
            safe(answer.content, "unknown")
        return Reply(answer.status, answer.content, {"Content-Type": answer.headers.get("content-type", "text/xml")})

    def _login(self) -> list[tuple[str, str]]:
        auth = self.settings.get("auth", {})
        match auth.get("kind", "none"):
            case "basic":
                login = base64.b64encode(f"{auth['username']}:{auth['password']}".encode()).decode("ascii")
                return [("Authorization", f"Basic {login}")]
            case "bearer":
                return [("Authorization", f"Bearer {auth['token']}")]
            case "header":
                return [(auth["name"], auth["value"])]
        return []


class Expecting:
    """What zeep calls a plugin: an answer must hold the element its operation gives, which zeep itself does not mind."""

    def egress(self, envelope: Any, http_headers: Any, operation: Any, binding_options: Any) -> tuple[Any, Any]:
        """Nothing: a message goes as it was made."""
        return envelope, http_headers

    def ingress(self, envelope: Any, http_headers: Any, operation: Any) -> tuple[Any, Any]:
        """SystemFailure for another element than the operation's."""
        expected = getattr(getattr(operation.output, "body", None), "qname", None)
        elements = envelope.xpath("*[local-name()='Body']/*")
        is_fault = bool(elements) and elements[0].tag.endswith("}Fault")
        # In the style rpc the name of what comes back means nothing (SOAP 1.1 § 7.1).
        if operation.style == "document" and expected is not None and not is_fault and (not elements or elements[0].tag != expected.text):
            actual = str(elements[0].tag)[:200] if elements else "nothing"
            raise SystemFailure(f"The service answers with {actual} where its description says {expected.text}.", outcome="unknown")
        return envelope, http_headers


def origin(url: str) -> tuple[str, str | None, int | None]:
    """Scheme, host and port: whom an address belongs to."""
    try:
        parts = urlsplit(url)
        return parts.scheme, parts.hostname, parts.port or _PORTS.get(parts.scheme)
    except ValueError as error:
        raise ConfigError(f"{url[:200]!r} is no address; check it.") from error


def safe(content: bytes, outcome: Outcome) -> None:
    """SystemFailure unless it is well-formed XML without a document type: no entities, no files, no further addresses."""
    try:
        fromstring(content, forbid_dtd=True)
    except DefusedXmlException as error:
        raise SystemFailure("The service sent XML with a document type, which is refused.", outcome=outcome) from error
    except (ParseError, ValueError, LookupError) as error:
        details = {"body": content[:_EXCERPT].decode("utf-8", "replace")}
        raise SystemFailure("The service sent no well-formed XML; check the address.", outcome=outcome, details=details) from error


def error_of(answer: HttpAnswer) -> ConnectorError | None:
    """The error of a status that is no success; None for a success."""
    status = answer.status
    if 200 <= status < 300:
        return None
    details = {"status": status, "body": answer.content[:_EXCERPT].decode("utf-8", "replace")}
    after = _retry_after(answer)
    if status == 429 or (status == 503 and after is not None):
        return RateLimited(f"The service asks to wait ({status}).", retry_after=after, details=details)
    if status in (401, 403):
        return AuthError(f"The service does not accept the credentials, or they lack a right ({status}).", details=details)
    if status in (408, 425) or (status >= 500 and status not in (501, 505)):
        # 503, 408 and 425 say that the work was not begun; after another 5xx nobody knows.
        outcome: Outcome = "not_done" if status in (408, 425, 503) else "unknown"
        return TransientError(f"The service failed ({status}).", outcome=outcome, details=details)
    if 300 <= status < 400 or status in (404, 405):
        return ConfigError(f"There is no such service at this address ({status}); check wsdl_url and address.", details=details)
    return Rejected(f"The service refused ({status}).", details=details)


def _retry_after(answer: HttpAnswer) -> float | None:
    """Seconds of the header Retry-After (RFC 9110 § 10.2.3), given as seconds or as a date."""
    text = answer.headers.get("retry-after", "").strip()
    if text.isascii() and text.isdigit():
        return float(text[:9])
    try:
        moment = parsedate_to_datetime(text)
    except (TypeError, ValueError):
        return None
    return max(0.0, moment.replace(tzinfo=moment.tzinfo or UTC).timestamp() - time.time())
