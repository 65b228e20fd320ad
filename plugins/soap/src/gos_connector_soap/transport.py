"""The transport for zeep: sends requests through the call's HTTP client and accepts only XML without a document type."""

from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit
from xml.etree.ElementTree import ParseError

from defusedxml.common import DefusedXmlException
from defusedxml.ElementTree import fromstring
from lxml import etree

from appliance.connectors.contract import (
    ConfigError,
    ConnectorError,
    Context,
    HttpAnswer,
    HttpRequest,
    Json,
    Outcome,
    SystemFailure,
    authorized,
    excerpt,
    status_error,
)

_EXCERPT = 500
_MOST_DOCUMENTS = 100
_PORTS = {"http": 80, "https": 443}
current_call: ContextVar[Context] = ContextVar("soap_call")


@dataclass(frozen=True)
class Reply:
    """An answer with the attributes zeep reads."""

    status_code: int
    content: bytes
    headers: Mapping[str, str]
    encoding: str = "utf-8"


@dataclass
class Transport:
    """A zeep transport; `loaded` counts the documents of one WSDL."""

    settings: Json
    loaded: int = field(default=0)

    @property
    def _auth(self) -> Json:
        auth: Json = self.settings.get("auth", {})
        return auth

    def load(self, url: str) -> bytes:
        """Load a document of the WSDL; credentials are sent only to the server of the WSDL itself."""
        if not url.startswith(("http://", "https://")):
            raise ConfigError(f"The WSDL imports {url[:200]!r}, which is not an http or https URL.")
        self.loaded += 1
        if self.loaded > _MOST_DOCUMENTS:
            raise SystemFailure(f"The WSDL imports more than {_MOST_DOCUMENTS} documents.")
        headers = [("Accept", "application/wsdl+xml, text/xml, application/xml")]
        ctx = current_call.get()
        http = authorized(ctx, self._auth) if origin(url) == origin(self.settings["wsdl_url"]) else ctx.http
        answer = http.send(HttpRequest("GET", url, headers, timeout=self.settings.get("timeout_s", 60)))
        error = error_of(answer)
        if error is not None:
            raise error
        check_xml(answer.content, "not_done")
        return answer.content

    def post_xml(self, address: str, envelope: Any, headers: Mapping[str, str]) -> Reply:
        """Send a message and return success answers and faults; raise any other status as an error of the contract."""
        content: bytes = etree.tostring(envelope, xml_declaration=True, encoding="UTF-8")
        timeout = self.settings.get("timeout_s", 60)
        request = HttpRequest("POST", address, list(headers.items()), (), content, timeout, follow_redirects=False)
        answer = authorized(current_call.get(), self._auth).send(request)
        kind = answer.headers.get("content-type", "text/xml").split(";")[0].strip().lower()
        is_fault = answer.status in (400, 500) and kind in ("text/xml", "application/soap+xml", "application/xml")
        error = None if is_fault else error_of(answer)
        if error is not None:
            raise error
        if kind == "multipart/related":
            raise SystemFailure("The service answered with attachments, which are not supported.", outcome="unknown")
        if answer.content:
            check_xml(answer.content, "unknown")
        return Reply(answer.status, answer.content, {"Content-Type": answer.headers.get("content-type", "text/xml")})


class ResponseElementCheck:
    """A zeep plugin that checks that an answer contains the element its operation returns, which zeep itself does not check."""

    def egress(self, envelope: Any, http_headers: Any, operation: Any, binding_options: Any) -> tuple[Any, Any]:
        """Return the outgoing message unchanged."""
        return envelope, http_headers

    def ingress(self, envelope: Any, http_headers: Any, operation: Any) -> tuple[Any, Any]:
        """Return the answer; SystemFailure if its element is not the operation's."""
        expected = getattr(getattr(operation.output, "body", None), "qname", None)
        elements = envelope.xpath("*[local-name()='Body']/*")
        is_fault = bool(elements) and elements[0].tag.endswith("}Fault")
        # In the style rpc the name of the returned element has no meaning (SOAP 1.1 § 7.1).
        actual = str(elements[0].tag) if elements else ""
        if operation.style == "document" and expected is not None and not is_fault and actual != expected.text:
            message = f"The service returned {actual[:200] or 'nothing'}; its WSDL defines {expected.text}."
            raise SystemFailure(message, outcome="unknown")
        return envelope, http_headers


def origin(url: str) -> tuple[str, str | None, int | None]:
    """Return the scheme, host and port of a URL."""
    try:
        parts = urlsplit(url)
        return parts.scheme, parts.hostname, parts.port or _PORTS.get(parts.scheme)
    except ValueError as error:
        raise ConfigError(f"{url[:200]!r} is not a valid URL; correct it.") from error


def check_xml(content: bytes, outcome: Outcome) -> None:
    """Raise SystemFailure unless the content is well-formed XML without a document type, which could load files or URLs."""
    try:
        fromstring(content, forbid_dtd=True)
    except DefusedXmlException as error:
        raise SystemFailure("The service sent XML with a document type, which is refused.", outcome=outcome) from error
    except (ParseError, ValueError, LookupError) as error:
        details = {"body": content[:_EXCERPT].decode("utf-8", "replace")}
        message = "The service did not send well-formed XML; check the address."
        raise SystemFailure(message, outcome=outcome, details=details) from error


def error_of(answer: HttpAnswer) -> ConnectorError | None:
    """Return the error for an unsuccessful status, None for success."""
    status = answer.status
    if 200 <= status < 300:
        return None
    if 300 <= status < 400 or status in (404, 405):
        message = f"There is no service at this address ({status}); check `wsdl_url` and `address`."
        return ConfigError(message, details={"status": status, "body": excerpt(answer)})
    return status_error(answer)
