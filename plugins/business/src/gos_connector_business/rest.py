"""Sends authenticated requests to one REST API and raises the errors of the connector contract."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from appliance.connectors.contract import (
    ConfigError,
    ConnectorError,
    Context,
    HttpAnswer,
    HttpRequest,
    Json,
    SystemFailure,
    authorized,
)
from gos_connector_business.answers import parse_object

Pairs = Sequence[tuple[str, str]]


def segment(text: str | int) -> str:
    """Return the text escaped as a single path segment; ConfigError for one that cannot be a segment."""
    name = str(text)
    if name in ("", ".", ".."):
        raise ConfigError(f"{name!r} is not a valid name or id.")
    return quote(name, safe="")


@dataclass(frozen=True)
class Rest:
    """One API.  `to_error` turns an unsuccessful response into an error; `system` is its name in messages."""

    system: str
    base: str
    headers: Pairs = field(repr=False)
    to_error: Callable[[HttpAnswer], ConnectorError]
    timeout: float
    auth: Json = field(default_factory=lambda: {"kind": "none"}, repr=False)
    """The `auth` block of the settings, unless the credentials are in `headers`."""

    def request(self, method: str, path: str, ctx: Context, *, params: Pairs = (), body: Any = None) -> HttpAnswer:
        """Send a request and return its successful response; raise an error of the contract otherwise."""
        headers = [("Accept", "application/json"), *self.headers]
        content = b""
        if body is not None:
            content = json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()
            headers.append(("Content-Type", "application/json"))
        request = HttpRequest(method, self.base + path, headers, params, content, self.timeout, follow_redirects=False)
        answer = authorized(ctx, self.auth).send(request)
        if 300 < answer.status < 400:
            message = "The address redirects to another one; use the address it redirects to."
            raise ConfigError(message, details={"status": answer.status})
        if not 200 <= answer.status < 300:
            raise self.to_error(answer)
        return answer

    def request_object(self, method: str, path: str, ctx: Context, *, params: Pairs = (), body: Any = None) -> dict[str, Any]:
        """Send a request and return the JSON object of its successful response."""
        return parse_object(self.request(method, path, ctx, params=params, body=body), self.system)


def records_in(body: Mapping[str, Any], member: str, system: str) -> list[dict[str, Any]]:
    """Return the list of records in a response body; SystemFailure when it is missing."""
    records = body.get(member)
    if not isinstance(records, list) or not all(isinstance(each, dict) for each in records):
        raise SystemFailure(f"The response of {system} has no list of records in {member!r}.")
    return records


def object_in(body: Mapping[str, Any], member: str, system: str) -> dict[str, Any]:
    """Return the object in a response body; SystemFailure when it is missing."""
    value = body.get(member)
    if not isinstance(value, dict):
        raise SystemFailure(f"The response of {system} has no object in {member!r}.", outcome="unknown")
    return value
