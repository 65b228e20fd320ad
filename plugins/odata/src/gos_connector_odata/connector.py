"""The OData connector: one request per action, and one per page for a list."""

import threading
import time
from typing import Any, ClassVar

from appliance.connectors.contract import Action, ConfigError, Connector, Context, HttpAnswer, Json, Rejected, SystemFailure
from gos_connector_odata.answer import parse_object
from gos_connector_odata.declaration import ACTIONS, DEFAULT_ENTITIES, SETTINGS
from gos_connector_odata.filter import FILTER
from gos_connector_odata.model import EntityType, Model, parse_model
from gos_connector_odata.service import Service

# The model is cached for ten minutes, after which changes of the service are seen.
_MODEL_SECONDS = 600.0
_PAGE = 1000
_RETURN_ENTITY = [("Prefer", "return=representation")]


class OdataConnector(Connector):
    """One OData 4 service."""

    contract_version = 1
    name = "odata"
    title = "OData"
    version = "0.1.0"
    tested_against = "a loopback test service that follows OData 4"
    settings_schema: ClassVar[Json] = SETTINGS
    actions: ClassVar[tuple[Action, ...]] = ACTIONS

    def __init__(self, settings: Json) -> None:
        super().__init__(settings)
        self._service = self._make_service(settings)
        self._lock = threading.Lock()
        self._cached_model: tuple[float, Model] | None = None
        self.verbs = {
            "list": self._list, "get": self._get, "create": self._create, "update": self._update, "delete": self._delete,
            "invoke": self._invoke, "describe": self._describe,
        }  # fmt: skip

    def check(self, ctx: Context) -> str:
        # Some services return $metadata without a sign-in, so the service document is used to check the credentials.
        parse_object(self._service.get(self._service.address("", []), ctx, []))
        model = self._fetch_model(ctx)
        return f"{self._service.base} is an OData 4 service with {len(model.sets)} entity sets."

    # -- the actions

    def _list(self, params: Json, ctx: Context) -> dict[str, Any]:
        self._model(ctx).entity_type(params["entity_set"])
        limit = params.get("limit", DEFAULT_ENTITIES)
        path = self._path_prefix(params["entity_set"], ctx) + params["entity_set"]
        url: str | None = self._service.address(path, _options(params))
        headers = [("Prefer", ",".join([f"odata.maxpagesize={min(limit, _PAGE)}", *self._preferences(params)]))]
        entities: list[Any] = []
        result: dict[str, Any] = {}
        seen: set[str] = set()
        while url is not None and len(entities) < limit:
            if url in seen:
                raise SystemFailure("The service's next page was already read; its paging does not end.")
            seen.add(url)
            page = parse_object(self._service.get(url, ctx, headers))
            page_entities = page.get("value")
            if not isinstance(page_entities, list) or not all(isinstance(each, dict) for each in page_entities):
                raise SystemFailure("The response has no list of entities in `value`.")
            entities += page_entities
            if "@odata.count" in page:
                result.setdefault("count", page["@odata.count"])
            link = page.get("@odata.nextLink") or page.get("@nextLink")
            url = self._service.next_page_url(url, str(link)) if link else None
        return {**result, "entities": entities[:limit], "truncated": len(entities) > limit or url is not None}

    def _get(self, params: Json, ctx: Context) -> dict[str, Any]:
        preferences = self._preferences(params)
        headers = [("Prefer", ",".join(preferences))] if preferences else []
        return entity_result(self._service.get(self._entity_url(params, ctx, _options(params)), ctx, headers))

    def _create(self, params: Json, ctx: Context) -> dict[str, Any]:
        self._model(ctx).entity_type(params["entity_set"])
        url = self._service.address(self._path_prefix(params["entity_set"], ctx) + params["entity_set"], [])
        answer = self._service.change("POST", url, ctx, _RETURN_ENTITY, params["values"])
        location = answer.headers.get("location") or answer.headers.get("odata-entityid")
        return {**entity_result(answer), **({"location": location} if location else {})}

    def _update(self, params: Json, ctx: Context) -> dict[str, Any]:
        # `*` requires the entity to exist; without it, some services would create it.
        headers = [*_RETURN_ENTITY, ("If-Match", params.get("etag", "*"))]
        try:
            return entity_result(self._service.change("PATCH", self._entity_url(params, ctx), ctx, headers, params["values"]))
        except Rejected as refusal:
            if _is_missing(refusal, params):
                raise Rejected(f"There is no entity of {params['entity_set']} with this key.", details=refusal.details) from refusal
            raise

    def _delete(self, params: Json, ctx: Context) -> dict[str, Any]:
        try:
            self._service.change("DELETE", self._entity_url(params, ctx), ctx, [("If-Match", params.get("etag", "*"))])
        except Rejected as refusal:
            if _is_missing(refusal, params):
                return {"deleted": False}
            raise
        return {"deleted": True}

    def _invoke(self, params: Json, ctx: Context) -> dict[str, Any]:
        path = params["name"]
        if "entity_set" in params:
            model = self._model(ctx)
            model.entity_type(params["entity_set"])
            target = model.path(params["entity_set"], params["key"]) if "key" in params else params["entity_set"]
            path = f"{self._path_prefix(params['entity_set'], ctx)}{target}/{path}"
        elif "key" in params:
            raise ConfigError("A `key` needs an `entity_set`.")
        answer = self._service.change("POST", self._service.address(path, []), ctx, [], params.get("parameters", {}))
        return {"result": parse_object(answer) if answer.content else None}

    def _describe(self, params: Json, ctx: Context) -> dict[str, Any]:
        model = self._fetch_model(ctx)
        if "entity_set" not in params:
            return {"entity_sets": [{"name": name} for name in sorted(model.sets)]}
        return {"entity_sets": [_describe_set(params["entity_set"], model.entity_type(params["entity_set"]))]}

    # -- overridden by the product connectors

    def _make_service(self, settings: Json) -> Service:
        """The service for these settings."""
        return Service(settings, self.auth_of(settings))

    def _path_prefix(self, entity_set: str, ctx: Context) -> str:
        """The path before the entity set, ending in a slash; empty when sets are at the root of the service."""
        return ""

    def _preferences(self, params: Json) -> list[str]:
        """Preferences of a read request, for the header Prefer (RFC 7240)."""
        return []

    # -- the service's model

    def _entity_url(self, params: Json, ctx: Context, options: list[tuple[str, str]] | None = None) -> str:
        path = self._path_prefix(params["entity_set"], ctx) + self._model(ctx).path(params["entity_set"], params["key"])
        return self._service.address(path, options or [])

    def _model(self, ctx: Context) -> Model:
        with self._lock:
            cached = self._cached_model
        if cached is not None and time.monotonic() < cached[0]:
            return cached[1]
        return self._fetch_model(ctx)

    def _fetch_model(self, ctx: Context) -> Model:
        model = parse_model(self._service.get(self._service.address("$metadata", []), ctx, [], accept="application/xml").content)
        return self._cache_model(model)

    def _cache_model(self, model: Model) -> Model:
        with self._lock:
            self._cached_model = (time.monotonic() + _MODEL_SECONDS, model)
        return model


def _is_missing(refusal: Rejected, params: Json) -> bool:
    """Whether a change was refused because the entity does not exist; 412 means so when the request had `If-Match: *`."""
    return refusal.details.get("status") in ((404, 410) if "etag" in params else (404, 410, 412))


def _options(params: Json) -> list[tuple[str, str]]:
    """The system query options of a call."""
    if params.get("params") and "filter" not in params:
        raise ConfigError("`params` are values of a `filter`, but there is no `filter`.")
    options = [("$filter", FILTER.bind(params["filter"], params.get("params", {})))] if "filter" in params else []
    if "select" in params:
        options.append(("$select", ",".join(params["select"])))
    options += [(f"${name}", str(params[name])) for name in ("expand", "orderby", "search", "top", "skip") if name in params]
    return [*options, ("$count", "true")] if params.get("count") else options


def entity_result(answer: HttpAnswer) -> dict[str, Any]:
    """The entity in a response and its etag; both are None when missing."""
    entity = parse_object(answer) if answer.content else None
    etag = (entity or {}).get("@odata.etag") or answer.headers.get("etag")
    return {"entity": entity, "etag": str(etag) if etag else None}


def _describe_set(name: str, kind: EntityType) -> dict[str, Any]:
    return {
        "name": name,
        "key": list(kind.key),
        "properties": [{"name": each, **kind.properties[each]} for each in kind.properties],
        "navigation": [{"name": each, "type": target} for each, target in kind.navigation.items()],
    }
