"""The HTTP connector: builds a request, retries it where that is safe, and parses the response."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from appliance.connectors.contract import (
    Action,
    ConfigError,
    Connector,
    ConnectorError,
    Context,
    Effect,
    Http,
    HttpAnswer,
    HttpRequest,
    Json,
    Polled,
    RateLimited,
    SystemFailure,
    TransientError,
    Trigger,
    authorized,
)
from gos_connector_http.answer import parse_answer, parse_json, status_error
from gos_connector_http.body import build_body
from gos_connector_http.declaration import ACTIONS, SETTINGS, TRIGGERS
from gos_connector_http.pages import Progress, Step, first_step, items_of, next_step
from gos_connector_http.polling import new_items, request_of
from gos_connector_http.target import build_target, is_below, resolve

_METHODS = {"get": "GET", "list": "GET", "post": "POST", "put": "PUT", "patch": "PATCH", "delete": "DELETE"}
_EFFECTS: Mapping[str, Effect] = {
    "GET": "read",
    "HEAD": "read",
    "OPTIONS": "read",
    "PUT": "idempotent",
    "DELETE": "idempotent",
}
# Longer waits are left to the queue, which does not occupy a worker meanwhile.
_LONGEST_PAUSE_S = 5.0
_LIST_BYTES = 32 * 1024 * 1024
# Frameworks treat underscores in header names as hyphens, so both spellings are refused.
_OVERRIDES = frozenset({"x-http-method-override", "x-http-method", "x-method-override"})


class HttpConnector(Connector):
    """Calls any HTTP API."""

    contract_version = 1
    name = "http"
    title = "HTTP"
    version = "0.1.0"
    tested_against = "a loopback test server"
    previews = True
    settings_schema: ClassVar[Json] = SETTINGS
    actions: ClassVar[tuple[Action, ...]] = ACTIONS
    triggers: ClassVar[tuple[Trigger, ...]] = TRIGGERS

    def effect_of(self, action: Action, input: Json) -> Effect:  # noqa: A002 - the contract's word
        return self._effect(_method(action.name, input))

    def _effect(self, method: str) -> Effect:
        honoured = self.settings.get("idempotency", {}).get("honoured", False)
        return _EFFECTS.get(method, "idempotent" if honoured else "write")

    def check(self, ctx: Context) -> str:
        base_url = self.settings.get("base_url")
        check_url = self.settings.get("check", {}).get("url")
        if base_url is None and check_url is None:
            return "There is no base address to test; each call gives its own."
        request = self._request({"url": check_url or ""}, "GET", ctx)
        answer = self._http(ctx).send(request)
        error = status_error(answer, ())
        # Without a check address, any response shows that the service is reachable, except refused credentials and a 5xx.
        if error is not None and (check_url is not None or answer.status in (401, 403) or answer.status >= 500):
            raise error
        return f"{request.url} answered {answer.status}."

    def call(self, action: str, input: Json, ctx: Context) -> dict[str, Any]:  # noqa: A002 - the contract's word
        if action == "list":
            return self._list(input, ctx)
        request = self._request(input, _method(action, input), ctx)
        answer = self._send(request, ctx, input.get("accept_statuses", ()))
        return parse_answer(answer, input.get("answer", "auto"))

    def poll(self, trigger: str, query: Json, cursor: Any, ctx: Context) -> Polled:
        if trigger != "new_items":
            return super().poll(trigger, query, cursor, ctx)
        request = self._request(request_of(query, cursor), "GET", ctx)
        return new_items(parse_json(self._send(request, ctx, ())), query, cursor)

    def _http(self, ctx: Context) -> Http:
        return authorized(ctx, self.auth_of(self.settings))

    def _request(self, call: Json, method: str, ctx: Context) -> HttpRequest:
        _refuse_override(call)
        target = build_target(self.settings, call)
        content, content_type = build_body(call)
        headers = target.headers
        if content_type is not None and not any(name.lower() == "content-type" for name, _ in headers):
            headers = [*headers, ("Content-Type", content_type)]
        key_header = self.settings.get("idempotency", {}).get("header", "Idempotency-Key")
        if key_header and self._effect(method) != "read":
            headers = [*headers, (key_header, ctx.idempotency_key)]
        timeout = call.get("timeout_s", self.settings.get("timeout_s", 30))
        return HttpRequest(method, target.url, headers, target.params, content, timeout)

    def _send(self, request: HttpRequest, ctx: Context, accepted: Any) -> HttpAnswer:
        """Send the request; retry as often as the settings allow, and only where a repetition is safe."""
        retries = self.settings.get("retries", {})
        attempts, pause = retries.get("attempts", 3), retries.get("wait_s", 0.5)
        for attempt in range(1, attempts + 1):
            try:
                answer = self._http(ctx).send(request)
                if error := status_error(answer, accepted):
                    raise error
                return answer
            except (TransientError, RateLimited) as failure:
                wait = _wait(failure, pause * 2 ** (attempt - 1))
                unsafe = self._effect(request.method) == "write" and failure.outcome == "unknown"
                if unsafe or attempt == attempts or wait is None:
                    raise
                ctx.log("warn", f"{failure.message} Retrying in {wait:g} s.", {"attempt": attempt})
                if not ctx.pause(wait):
                    raise
        raise AssertionError("attempts is at least 1")

    def _list(self, call: Json, ctx: Context) -> dict[str, Any]:
        """Fetch all pages up to the limits; `complete` is false when items or pages were left out."""
        pages = call.get("pages", {"kind": "link"})
        request = _apply_step(self._request(call, "GET", ctx), first_step(pages))
        max_items = call.get("max_items", 10_000)
        items: list[Any] = []
        visited: set[tuple[Any, ...]] = set()
        size = 0
        for count in range(1, call.get("max_pages", 100) + 1):
            visited.add((request.url, *request.params))
            answer = self._send(request, ctx, ())
            body = parse_json(answer)
            page_items = items_of(body, call.get("items", ""))
            items += page_items
            size += len(answer.content)
            step = next_step(pages, answer, body, Progress(count, len(items), len(page_items)))
            if step is None or len(items) > max_items or size >= _LIST_BYTES:
                break
            request = self._next(request, step)
            if (request.url, *request.params) in visited:
                raise SystemFailure("The service's next page was already fetched; check `pages`.")
        return {"items": items[:max_items], "pages": count, "complete": step is None and len(items) <= max_items}

    def _next(self, request: HttpRequest, step: Step) -> HttpRequest:
        """The request for the next page. It carries credentials, so it must stay on the host of the first request."""
        if step.url is None:
            return _apply_step(request, step)
        base_url = self.settings.get("base_url")
        url = resolve(base_url, step.url)
        if base_url is None and not is_below("/".join(request.url.split("/")[:3]), url):
            raise ConfigError("The next page is on another host and is not followed.")
        return replace(request, url=url, params=())


def _apply_step(request: HttpRequest, step: Step) -> HttpRequest:
    names = {name for name, _ in step.params}
    return replace(request, params=[*(pair for pair in request.params if pair[0] not in names), *step.params])


def _refuse_override(call: Json) -> None:
    """Raise ConfigError for headers that make many servers run another method than the one whose effect was checked."""
    for name in call.get("headers", {}):
        if name.strip().lower().replace("_", "-") in _OVERRIDES:
            raise ConfigError(f"The header {name[:40]!r} would change the method; use the action for the method you mean.")


def _method(action: str, call: Json) -> str:
    if action == "request":
        return str(call["method"])
    if action not in _METHODS:
        raise ConfigError(f"There is no action {action!r}.")
    return _METHODS[action]


def _wait(failure: ConnectorError, backoff: float) -> float | None:
    """Seconds until the next attempt, or None when that is too long to wait here."""
    retry_after = failure.retry_after if isinstance(failure, RateLimited) else None
    wait = backoff if retry_after is None else max(retry_after, 0.0)
    return wait if wait <= _LONGEST_PAUSE_S else None
