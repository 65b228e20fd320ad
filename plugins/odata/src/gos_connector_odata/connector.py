"""The connector: each action is one request to the service, a list one request per page."""

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from appliance.connectors.contract import Action, ConfigError, Connector, Context, HttpAnswer, Json, Rejected, SystemFailure
from gos_connector_odata.answer import parse_object
from gos_connector_odata.declaration import ACTIONS, SETTINGS, USUAL_ENTITIES
from gos_connector_odata.filter import bind
from gos_connector_odata.model import EntityType, Model, parse_model
from gos_connector_odata.service import Service

# A service that is changed is known anew after ten minutes.
_MODEL_SECONDS = 600.0
_PAGE = 1000
_WHOLE = [("Prefer", "return=representation")]


class OdataConnector(Connector):
    """One OData 4 service."""

    contract_version = 1
    name = "odata"
    title = "OData"
    version = "0.1.0"
    tested_against = "a service of the test on loopback that follows OData 4"
    settings_schema: ClassVar[Json] = SETTINGS
    actions: ClassVar[tuple[Action, ...]] = ACTIONS

    def __init__(self, settings: Json) -> None:
        super().__init__(settings)
        self._service = self._make_service(settings)
        self._lock = threading.Lock()
        self._known: tuple[float, Model] | None = None
        self._verbs: Mapping[str, Callable[[Json, Context], dict[str, Any]]] = {
            "list": self._list, "get": self._get, "create": self._create, "update": self._update, "delete": self._delete,
            "invoke": self._invoke, "describe": self._describe,
        }  # fmt: skip

    def check(self, ctx: Context) -> str:
        # Some services show $metadata to everybody: the service document tells whether the credentials are good.
        parse_object(self._service.get(self._service.address("", []), ctx, []))
        model = self._fetch_model(ctx)
        return f"{self._service.base} answers as OData 4 with {len(model.sets)} entity sets."

    def call(self, action: str, input: Json, ctx: Context) -> dict[str, Any]:  # noqa: A002 - the contract's word
        verb = self._verbs.get(action)
        if verb is None:
            raise ConfigError(f"{self.title} has no action {action!r}; it has {', '.join(self._verbs)}.")
        return verb(input, ctx)

    # -- the actions

    def _list(self, given: Json, ctx: Context) -> dict[str, Any]:
        self._model(ctx).entity_type(given["entity_set"])
        limit = given.get("limit", USUAL_ENTITIES)
        url: str | None = self._service.address(self._below(given["entity_set"], ctx) + given["entity_set"], _options(given))
        headers = [("Prefer", ",".join([f"odata.maxpagesize={min(limit, _PAGE)}", *self._preferences(given)]))]
        entities: list[Any] = []
        out: dict[str, Any] = {}
        seen: set[str] = set()
        while url is not None and len(entities) < limit:
            if url in seen:
                raise SystemFailure("The service's next page is one that was read already; its paging does not end.")
            seen.add(url)
            page = parse_object(self._service.get(url, ctx, headers))
            found = page.get("value")
            if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
                raise SystemFailure("The service's answer has no list of entities in `value`.")
            entities += found
            if "@odata.count" in page:
                out.setdefault("count", page["@odata.count"])
            link = page.get("@odata.nextLink") or page.get("@nextLink")
            url = self._service.following(url, str(link)) if link else None
        return {**out, "entities": entities[:limit], "truncated": len(entities) > limit or url is not None}

    def _get(self, given: Json, ctx: Context) -> dict[str, Any]:
        wishes = self._preferences(given)
        headers = [("Prefer", ",".join(wishes))] if wishes else []
        return entity_of(self._service.get(self._place(given, ctx, _options(given)), ctx, headers))

    def _create(self, given: Json, ctx: Context) -> dict[str, Any]:
        self._model(ctx).entity_type(given["entity_set"])
        url = self._service.address(self._below(given["entity_set"], ctx) + given["entity_set"], [])
        answer = self._service.change("POST", url, ctx, _WHOLE, given["values"])
        location = answer.headers.get("location") or answer.headers.get("odata-entityid")
        return {**entity_of(answer), **({"location": location} if location else {})}

    def _update(self, given: Json, ctx: Context) -> dict[str, Any]:
        # With `*` the entity must exist: without it, some services would create it.
        headers = [*_WHOLE, ("If-Match", given.get("etag", "*"))]
        try:
            return entity_of(self._service.change("PATCH", self._place(given, ctx), ctx, headers, given["values"]))
        except Rejected as refusal:
            if _is_missing(refusal, given):
                raise Rejected(f"There is no entity of {given['entity_set']} with this key.", details=refusal.details) from refusal
            raise

    def _delete(self, given: Json, ctx: Context) -> dict[str, Any]:
        try:
            self._service.change("DELETE", self._place(given, ctx), ctx, [("If-Match", given.get("etag", "*"))])
        except Rejected as refusal:
            if _is_missing(refusal, given):
                return {"deleted": False}
            raise
        return {"deleted": True}

    def _invoke(self, given: Json, ctx: Context) -> dict[str, Any]:
        path = given["name"]
        if "entity_set" in given:
            model = self._model(ctx)
            model.entity_type(given["entity_set"])
            place = model.path(given["entity_set"], given["key"]) if "key" in given else given["entity_set"]
            path = f"{self._below(given['entity_set'], ctx)}{place}/{path}"
        elif "key" in given:
            raise ConfigError("A `key` needs its `entity_set`.")
        answer = self._service.change("POST", self._service.address(path, []), ctx, [], given.get("parameters", {}))
        return {"result": parse_object(answer) if answer.content else None}

    def _describe(self, given: Json, ctx: Context) -> dict[str, Any]:
        model = self._fetch_model(ctx)
        if "entity_set" not in given:
            return {"entity_sets": [{"name": name} for name in sorted(model.sets)]}
        return {"entity_sets": [_described(given["entity_set"], model.entity_type(given["entity_set"]))]}

    # -- what differs from product to product

    def _make_service(self, settings: Json) -> Service:
        """The service that these settings mean."""
        return Service(settings, self.auth_of(settings))

    def _below(self, entity_set: str, ctx: Context) -> str:
        """The path, ending in a slash, that leads to this set; empty where sets lie at the root."""
        return ""

    def _preferences(self, given: Json) -> list[str]:
        """What a reading request prefers (RFC 7240)."""
        return []

    # -- what the service has

    def _place(self, given: Json, ctx: Context, options: list[tuple[str, str]] | None = None) -> str:
        path = self._below(given["entity_set"], ctx) + self._model(ctx).path(given["entity_set"], given["key"])
        return self._service.address(path, options or [])

    def _model(self, ctx: Context) -> Model:
        with self._lock:
            known = self._known
        if known is not None and time.monotonic() < known[0]:
            return known[1]
        return self._fetch_model(ctx)

    def _fetch_model(self, ctx: Context) -> Model:
        model = parse_model(self._service.get(self._service.address("$metadata", []), ctx, [], accept="application/xml").content)
        return self._keep(model)

    def _keep(self, model: Model) -> Model:
        with self._lock:
            self._known = (time.monotonic() + _MODEL_SECONDS, model)
        return model


def _is_missing(refusal: Rejected, given: Json) -> bool:
    """Whether a refused change says that there is no such entity: 412 is the answer to `*` then."""
    return refusal.details.get("status") in ((404, 410) if "etag" in given else (404, 410, 412))


def _options(given: Json) -> list[tuple[str, str]]:
    """The system query options of a call."""
    if given.get("params") and "filter" not in given:
        raise ConfigError("`params` are for a `filter`, and there is none.")
    options = [("$filter", bind(given["filter"], given.get("params", {})))] if "filter" in given else []
    if "select" in given:
        options.append(("$select", ",".join(given["select"])))
    options += [(f"${name}", str(given[name])) for name in ("expand", "orderby", "search", "top", "skip") if name in given]
    return [*options, ("$count", "true")] if given.get("count") else options


def entity_of(answer: HttpAnswer) -> dict[str, Any]:
    """The entity of an answer, when it has one, and its etag."""
    entity = parse_object(answer) if answer.content else None
    etag = (entity or {}).get("@odata.etag") or answer.headers.get("etag")
    return {"entity": entity, "etag": str(etag) if etag else None}


def _described(name: str, kind: EntityType) -> dict[str, Any]:
    return {
        "name": name,
        "key": list(kind.key),
        "properties": [{"name": each, **kind.properties[each]} for each in kind.properties],
        "navigation": [{"name": each, "type": target} for each, target in kind.navigation.items()],
    }
