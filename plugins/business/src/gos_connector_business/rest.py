"""Requests to one REST API: below its address, with its credentials, their failures told as the contract has it."""

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
from gos_connector_business.answer import parse_object

Pairs = Sequence[tuple[str, str]]


def segment(text: str | int) -> str:
    """One part of a path; it never becomes more than that."""
    part = str(text)
    if part in ("", ".", ".."):
        raise ConfigError(f"{part!r} cannot be the name or id of anything.")
    return quote(part, safe="")


@dataclass(frozen=True)
class Rest:
    """One API.  `refusal` makes the error of an answer that is no success."""

    who: str
    base: str
    headers: Pairs = field(repr=False)
    refusal: Callable[[HttpAnswer], ConnectorError]
    timeout: float
    auth: Json = field(default_factory=lambda: {"kind": "none"}, repr=False)
    """The block of credentials, where they are not among the headers."""

    def ask(self, method: str, path: str, ctx: Context, *, params: Pairs = (), body: Any = None) -> HttpAnswer:
        """A successful answer; errors of the contract otherwise."""
        headers = [("Accept", "application/json"), *self.headers]
        content = b""
        if body is not None:
            content = json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()
            headers.append(("Content-Type", "application/json"))
        request = HttpRequest(method, self.base + path, headers, params, content, self.timeout, follow_redirects=False)
        answer = authorized(ctx, self.auth).send(request)
        if 300 < answer.status < 400:
            raise ConfigError("The address sends elsewhere; give the one it sends to.", details={"status": answer.status})
        if not 200 <= answer.status < 300:
            raise self.refusal(answer)
        return answer

    def told(self, method: str, path: str, ctx: Context, *, params: Pairs = (), body: Any = None) -> dict[str, Any]:
        """The object of a successful answer."""
        return parse_object(self.ask(method, path, ctx, params=params, body=body), self.who)


def records_in(body: Mapping[str, Any], member: str, who: str) -> list[dict[str, Any]]:
    """The list of records in an answer; SystemFailure when there is none."""
    found = body.get(member)
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise SystemFailure(f"{who} did not answer with records in {member!r}.")
    return found


def object_in(body: Mapping[str, Any], member: str, who: str) -> dict[str, Any]:
    """The object in an answer; SystemFailure when there is none."""
    found = body.get(member)
    if not isinstance(found, dict):
        raise SystemFailure(f"{who} did not answer with an object in {member!r}.", outcome="unknown")
    return found
