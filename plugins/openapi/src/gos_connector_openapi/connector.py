"""The connector: discovers a document's operations, and sends each according to the plan stored with its action."""

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
from gos_connector_openapi.pagination import NextPage, items_of, next_page
from gos_connector_openapi.security import choose_schemes, credentials
from gos_connector_openapi.sending import PreparedRequest, build_request, error_of, next_page_url

_ACCEPT = "application/vnd.oai.openapi+json, application/json, application/yaml;q=0.9, */*;q=0.5"


class OpenapiConnector(Connector):
    """One API, described by an OpenAPI or Swagger document."""

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
        answer = self._transmit(PreparedRequest(request, has_credentials=False), ctx)
        error = error_of(answer)
        # Without a path to test, any answer other than refused credentials or a server error shows that the system is reachable.
        if error is not None and (path or answer.status == 401 or answer.status >= 500):
            raise error
        return f"{base} answered with {answer.status}."

    def discover(self, ctx: Context) -> Sequence[Action]:
        return import_actions(self.fetch_document(ctx), self.settings, ctx)

    def call(self, action: str, input: Json, ctx: Context) -> dict[str, Any]:  # noqa: A002 - the contract's word
        raise ConfigError(f"The document has no action {action!r}; test the settings to read the document again.")

    def perform(self, action: Action, input: Json, ctx: Context) -> dict[str, Any]:  # noqa: A002 - the contract's word
        if not action.plan:
            return self.call(action.name, input, ctx)
        plan = action.plan
        first = build_request(self.settings, plan, input, ctx.idempotency_key)
        answer = self._send(first, ctx)
        output = read_output(answer)
        return self._join_pages(plan, input, first, (answer, output), ctx) if "paging" in plan else output

    # -- documents

    def fetch_document(self, ctx: Context) -> bytes:
        """The document named or contained in the settings; ConnectorError when it cannot be fetched."""
        url = self.settings.get("document_url")
        if url is None:
            return str(self.settings["document"]).encode()
        # The credentials are for the system; the publisher of its document must not receive them.
        answer = ctx.http.send(HttpRequest("GET", url, [("Accept", _ACCEPT)]))
        if error := error_of(answer, "The server of the document"):
            raise error
        return answer.content

    # -- calls

    def _transmit(self, prepared: PreparedRequest, ctx: Context) -> HttpAnswer:
        if prepared.has_credentials:
            return ctx.http.send(prepared.request)
        return authorized(ctx, self.auth_of(self.settings)).send(prepared.request)

    def _send(self, prepared: PreparedRequest, ctx: Context) -> HttpAnswer:
        answer = self._transmit(prepared, ctx)
        if error := error_of(answer):
            raise error
        return answer

    def _join_pages(
        self, plan: Json, arguments: Json, prepared: PreparedRequest, first: tuple[HttpAnswer, dict[str, Any]], ctx: Context
    ) -> dict[str, Any]:
        """The output with the items of all pages up to the requested number; `more` says whether there is another page."""
        paging = plan["paging"]
        page_limit = arguments.get(paging["input"], 1)
        answer, output = first
        body = output["body"]
        items = items_of(paging, body) if page_limit > 1 else []
        current: Mapping[str, Any] = {**arguments}
        seen = {_address(prepared)}
        following = next_page(paging, current, answer, body)
        for _ in range(page_limit - 1):
            if following is None:
                break
            current = {**current, **dict(following.changes)}
            prepared = self._build_next(plan, current, prepared, following, ctx)
            if _address(prepared) in seen:
                raise SystemFailure("The service's next page was already read; its pagination does not end.")
            seen.add(_address(prepared))
            answer = self._send(prepared, ctx)
            page = read_output(answer)["body"]
            items += items_of(paging, page)
            following = next_page(paging, current, answer, page)
        return {**output, "more": following is not None}

    def _build_next(self, plan: Json, arguments: Json, previous: PreparedRequest, page: NextPage, ctx: Context) -> PreparedRequest:
        if not page.url:
            return build_request(self.settings, plan, arguments, ctx.idempotency_key)
        schemes = choose_schemes(plan["security"], self.settings)
        keys = credentials(schemes, self.settings)[1] if schemes is not None else []
        url = next_page_url(previous.request, page.url)
        return replace(previous, request=replace(previous.request, url=url, params=keys))


def _address(prepared: PreparedRequest) -> tuple[str, tuple[tuple[str, str], ...]]:
    return prepared.request.url, tuple(prepared.request.params)
