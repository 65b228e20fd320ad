"""The connector: one call is a target, a body, tries, and an answer."""

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
from gos_connector_http.answer import error_of, parse_answer, parse_json
from gos_connector_http.body import build_body
from gos_connector_http.declaration import ACTIONS, SETTINGS, TRIGGERS
from gos_connector_http.pages import Seen, Step, first_step, items_of, next_step
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
# A longer wait is the queue's business: it holds no worker.
_LONGEST_PAUSE_S = 5.0
_LIST_BYTES = 32 * 1024 * 1024
# Frameworks fold underscores of header names into hyphens, so that both spellings count.
_OVERRIDES = frozenset({"x-http-method-override", "x-http-method", "x-method-override"})


class HttpConnector(Connector):
    """Any HTTP API."""

    contract_version = 1
    name = "http"
    title = "HTTP"
    version = "0.1.0"
    tested_against = "a server of the test on loopback"
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
        named = self.settings.get("check", {}).get("url")
        if base_url is None and named is None:
            return "There is no base address to test; each call names its own."
        request = self._request({"url": named or ""}, "GET", ctx)
        answer = self._http(ctx).send(request)
        error = error_of(answer, ())
        # Without an address to test, any answer but a refusal of the credentials shows that somebody is there.
        if error is not None and (named is not None or answer.status in (401, 403) or answer.status >= 500):
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
        """The answer, after as many tries as the settings and the effect allow."""
        retries = self.settings.get("retries", {})
        attempts, pause = retries.get("attempts", 3), retries.get("wait_s", 0.5)
        for attempt in range(1, attempts + 1):
            try:
                answer = self._http(ctx).send(request)
                if error := error_of(answer, accepted):
                    raise error
                return answer
            except (TransientError, RateLimited) as failure:
                wait = _wait(failure, pause * 2 ** (attempt - 1))
                unsafe = self._effect(request.method) == "write" and failure.outcome == "unknown"
                if unsafe or attempt == attempts or wait is None:
                    raise
                ctx.log("warn", f"{failure.message} Trying again in {wait:g} s.", {"attempt": attempt})
                if not ctx.pause(wait):
                    raise
        raise AssertionError("attempts is at least 1")

    def _list(self, call: Json, ctx: Context) -> dict[str, Any]:
        """All pages, up to the caps; `complete` tells whether there was more."""
        pages = call.get("pages", {"kind": "link"})
        request = _turn(self._request(call, "GET", ctx), first_step(pages))
        most = call.get("max_items", 10_000)
        items: list[Any] = []
        asked: set[tuple[Any, ...]] = set()
        size = 0
        for count in range(1, call.get("max_pages", 100) + 1):
            asked.add((request.url, *request.params))
            answer = self._send(request, ctx, ())
            body = parse_json(answer)
            found = items_of(body, call.get("items", ""))
            items += found
            size += len(answer.content)
            step = next_step(pages, answer, body, Seen(count, len(items), len(found)))
            if step is None or len(items) > most or size >= _LIST_BYTES:
                break
            request = self._next(request, step)
            if (request.url, *request.params) in asked:
                raise SystemFailure("The service's next page is one it gave before; check `pages`.")
        return {"items": items[:most], "pages": count, "complete": step is None and len(items) <= most}

    def _next(self, request: HttpRequest, step: Step) -> HttpRequest:
        """The request for the next page; it carries credentials, so it stays where the first one went."""
        if step.url is None:
            return _turn(request, step)
        base_url = self.settings.get("base_url")
        url = resolve(base_url, step.url)
        if base_url is None and not is_below("/".join(request.url.split("/")[:3]), url):
            raise ConfigError("The next page lies on another host; it is not followed.")
        return replace(request, url=url, params=())


def _turn(request: HttpRequest, step: Step) -> HttpRequest:
    names = {name for name, _ in step.params}
    return replace(request, params=[*(pair for pair in request.params if pair[0] not in names), *step.params])


def _refuse_override(call: Json) -> None:
    """ConfigError for a header by which many servers take another method than the request's: what was judged would not be what
    is done."""
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
    """Seconds before the next try, None when it is too long to wait here."""
    asked = failure.retry_after if isinstance(failure, RateLimited) else None
    wait = backoff if asked is None else max(asked, 0.0)
    return wait if wait <= _LONGEST_PAUSE_S else None
