"""The connector: discovers a document's operations, and sends each by the plan that was kept with it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from appliance.connectors.contract import (
    Action,
    ConfigError,
    Connector,
    Context,
    HttpAnswer,
    HttpRequest,
    Json,
    SystemFailure,
    authorized,
)
from gos_connector_openapi.declaration import SETTINGS
from gos_connector_openapi.importing import import_actions
from gos_connector_openapi.outputs import read_output
from gos_connector_openapi.pagination import Step, items_of, next_step
from gos_connector_openapi.security import choose, credentials
from gos_connector_openapi.sending import Sending, build, error_of, following

_ACCEPT = "application/vnd.oai.openapi+json, application/json, application/yaml;q=0.9, */*;q=0.5"


class OpenapiConnector(Connector):
    """One API, as its document describes it."""

    contract_version = 1
    name = "openapi"
    title = "OpenAPI"
    version = "0.1.0"
    tested_against = "servers of the test on loopback; GitHub's document (1,223 operations)"
    settings_schema: ClassVar[Json] = SETTINGS
    actions: ClassVar[tuple[Action, ...]] = ()
    previews = True

    def check(self, ctx: Context) -> str:
        base, path = self.settings.get("base_url", ""), self.settings.get("check_path")
        if not base:
            size = len(self.fetch_document(ctx))
            return f"The document can be fetched ({size} bytes); set base_url and check_path to test the system itself."
        request = HttpRequest("GET", f"{base.rstrip('/')}{path or ''}", list(self.settings.get("headers", {}).items()))
        answer = self._transmit(Sending(request, complete=False), ctx)
        error = error_of(answer)
        # Without a path to test, any answer but a refusal of the credentials shows that somebody is there.
        if error is not None and (path or answer.status == 401 or answer.status >= 500):
            raise error
        return f"{base} answered with {answer.status}."

    def discover(self, ctx: Context) -> Sequence[Action]:
        return import_actions(self.fetch_document(ctx), self.settings, ctx)

    def call(self, action: str, input: Json, ctx: Context) -> dict[str, Any]:  # noqa: A002 - the contract's word
        raise ConfigError(f"There is no action {action!r} in the document; test the settings to read it again.")

    def perform(self, action: Action, input: Json, ctx: Context) -> dict[str, Any]:  # noqa: A002 - the contract's word
        if not action.plan:
            return self.call(action.name, input, ctx)
        plan = action.plan
        first = build(self.settings, plan, input, ctx.idempotency_key)
        answer = self._sent(first, ctx)
        output = read_output(answer)
        return self._joined(plan, input, first, (answer, output), ctx) if "paging" in plan else output

    # -- documents

    def fetch_document(self, ctx: Context) -> bytes:
        """The document of the settings; ConnectorError when it cannot be had."""
        url = self.settings.get("document_url")
        if url is None:
            return str(self.settings["document"]).encode()
        # Credentials belong to the system, not to whoever publishes its document.
        answer = ctx.http.send(HttpRequest("GET", url, [("Accept", _ACCEPT)]))
        if error := error_of(answer, "Whoever publishes the document"):
            raise error
        return answer.content

    # -- calls

    def _transmit(self, sending: Sending, ctx: Context) -> HttpAnswer:
        if sending.complete:
            return ctx.http.send(sending.request)
        return authorized(ctx, self.auth_of(self.settings)).send(sending.request)

    def _sent(self, sending: Sending, ctx: Context) -> HttpAnswer:
        answer = self._transmit(sending, ctx)
        if error := error_of(answer):
            raise error
        return answer

    def _joined(
        self, plan: Json, given: Json, sending: Sending, first: tuple[HttpAnswer, dict[str, Any]], ctx: Context
    ) -> dict[str, Any]:
        """The first page with the items of those that follow, as many as were asked for; `more` tells of a further one."""
        paging = plan["paging"]
        wanted = given.get(paging["input"], 1)
        answer, output = first
        body = output["body"]
        items = items_of(paging, body) if wanted > 1 else []
        current: Mapping[str, Any] = {**given}
        seen = {_place(sending)}
        step = next_step(paging, current, answer, body)
        for _ in range(wanted - 1):
            if step is None:
                break
            current = {**current, **dict(step.changes)}
            sending = self._turned(plan, current, sending, step, ctx)
            if _place(sending) in seen:
                raise SystemFailure("The service's next page is one that was read already; its pages do not end.")
            seen.add(_place(sending))
            answer = self._sent(sending, ctx)
            page = read_output(answer)["body"]
            items += items_of(paging, page)
            step = next_step(paging, current, answer, page)
        return {**output, "more": step is not None}

    def _turned(self, plan: Json, given: Json, before: Sending, step: Step, ctx: Context) -> Sending:
        if not step.url:
            return build(self.settings, plan, given, ctx.idempotency_key)
        schemes = choose(plan["security"], self.settings)
        keys = credentials(schemes, self.settings)[1] if schemes is not None else []
        url = following(before.request, step.url)
        return replace(before, request=replace(before.request, url=url, params=keys))


def _place(sending: Sending) -> tuple[str, tuple[tuple[str, str], ...]]:
    return sending.request.url, tuple(sending.request.params)
