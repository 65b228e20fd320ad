"""Sends the example of a route as a request."""

from typing import Any

import httpx

from appliance.api.frame.routing import PREFIX, Route
from tests.api.example import Example

CREATING_PUTS = ("put_process", "set_secret", "put_llm_profile", "put_sample", "put_agent", "put_skill", "put_policy")
"""PUT routes that create missing resources, so a name never refers to another tenant's."""
_UNKNOWN = {"process_id": "proc-unknown", "collection": "things-unknown", "slug": "orders-unknown", "version": "77"}


def address(route: Route, path: dict[str, str]) -> str:
    return PREFIX + route.path.format(**path)


def send(client: httpx.Client, route: Route, example: Example, **headers: str) -> httpx.Response:
    """The example as a request; of an endless answer the head and the first bytes."""
    parts: dict[str, Any] = {"params": example.query, "headers": {**example.headers, **headers}}
    if example.media:
        parts |= {"content": example.body, "headers": {**example.headers, **headers, "Content-Type": example.media}}
    elif example.body is not None:
        parts["json"] = example.body
    with client.stream(route.method, address(route, example.path), **parts) as answer:
        if example.stream and answer.is_success:
            answer._content = next(answer.iter_raw())
        else:
            answer.read()
    return answer


def unknown_id(name: str, real: str) -> str:
    """An id of the same form that nobody has."""
    if name in _UNKNOWN:
        return _UNKNOWN[name]
    prefix, mark, rest = real.rpartition("_")
    return f"{prefix}{mark}{'0' * len(rest)}" if prefix else "unknown"
