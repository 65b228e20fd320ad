"""Reads and writes entities for visitors, members and agents, limited to what the collection's access rules allow.

Hidden entities behave as if they did not exist: lists, counts, sorting and filters over relations do not reveal them.
The rule of a change is evaluated in the same transaction as the change.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from appliance import conditions
from appliance.conditions import AllOf, AnyOf, Compare, Condition, Field, Inside
from appliance.core import clock
from appliance.core.database import db
from appliance.core.errors import Conflict, InvalidRequest, NotFound, PolicyDenied
from appliance.core.pages import Page
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.datapool import batch, entities, queries
from appliance.datapool.access_rules import is_denied, rule_condition
from appliance.datapool.batch import Operation
from appliance.datapool.compiled import CompiledCollection, load, load_for_tenant
from appliance.datapool.definition import Findings
from appliance.datapool.limits import in_force
from appliance.datapool.queries import Query

T = TypeVar("T")


@dataclass(frozen=True)
class Requester:
    """The actor and the request that access rules can refer to.

    An empty member counts as absent and therefore equals no value.  `kind` is `anonymous`, `password`, `member` or `user`;
    `app` is the WebApp that sent the request; `now` is in milliseconds.
    """

    kind: str = "anonymous"
    id: str = ""
    email: str = ""
    roles: tuple[str, ...] = ()
    app: str = ""
    method: str = ""
    now: int = field(default_factory=clock.now_ms)


def list_visible(
    scope: TenantScope, requester: Requester, collection: str, query: Query | Mapping[str, Any]
) -> Page[dict[str, Any]]:
    """One page of the entities that match both the `list` rule and the query.

    PolicyDenied; InvalidRequest for a query with groups or aggregates.
    """
    parsed = query if isinstance(query, Query) else queries.parse_query(query)
    if parsed.is_grouped:
        raise InvalidRequest(
            "group and aggregate are not available where access rules apply; query entities instead", pointer="/group"
        )
    with db.snapshot(), db.deadline(in_force.query_seconds):
        compiled = _load_permitted(scope, collection, "list")
        return queries.find_page(scope, compiled, parsed, _RequesterReader(requester))


def get_visible(
    scope: TenantScope, requester: Requester, collection: str, entity_id: str, *, query: Query | None = None
) -> dict[str, Any]:
    """The entity with the `fields` and `expand` of the query; NotFound when it is hidden or does not exist; PolicyDenied."""
    with db.snapshot():
        compiled = _load_permitted(scope, collection, "view")
        reader = _RequesterReader(requester)
        row = _find_matching_row(compiled, entity_id, reader.viewable(compiled))
        if row is None:
            raise _build_not_found(compiled, entity_id)
        entity = compiled.to_view(row)
        return queries.to_views(compiled, [entity], query, reader)[0] if query else entity


def create_allowed(scope: TenantScope, requester: Requester, collection: str, values: Any) -> dict[str, Any]:
    """Store a new entity that the `create` rule allows.

    Returns the entity, or only its id when the `view` rule hides it.  PolicyDenied; ValidationFailed lists every error.
    """
    reader = _RequesterReader(requester, values if isinstance(values, Mapping) else None)

    def create(compiled: CompiledCollection, operation: Operation) -> dict[str, Any]:
        rule = rule_condition(compiled, "create", reader.values())
        _require_permission(_row_matches(compiled, entities.new_row(operation.stored), rule), compiled, "create")
        return reader.perform(scope, operation, rule)

    return _write(scope, collection, {"op": "create", "values": values}, create)


def update_allowed(
    scope: TenantScope, requester: Requester, collection: str, entity_id: str, values: Any, *, if_version: int | None = None
) -> dict[str, Any]:
    """Merge values into an entity; the `update` rule must hold before and after.  Returns the same as `create_allowed`.

    NotFound when the entity is hidden; PolicyDenied when it is visible but this change is not allowed; ValidationFailed,
    VersionConflict.
    """
    reader = _RequesterReader(requester, values if isinstance(values, Mapping) else None)

    def update(compiled: CompiledCollection, operation: Operation) -> dict[str, Any]:
        rule = rule_condition(compiled, "update", reader.values())
        reader.require_entity(compiled, entity_id, ("update", rule))
        row = entities.get_row(compiled, entity_id, if_version)
        after = list(row)
        for name, value in batch.merge_json(compiled, row, operation).items():
            after[compiled.fields[name].position] = value
        _require_permission(_row_matches(compiled, after, rule), compiled, "update")
        return reader.perform(scope, operation, rule)

    return _write(scope, collection, {"op": "update", "id": entity_id, "values": values, "if_version": if_version}, update)


def delete_allowed(
    scope: TenantScope, requester: Requester, collection: str, entity_id: str, *, if_version: int | None = None
) -> None:
    """Delete an entity that the `delete` rule allows; NotFound, PolicyDenied, VersionConflict, Conflict."""
    reader = _RequesterReader(requester)

    def delete(compiled: CompiledCollection, operation: Operation) -> None:
        reader.require_entity(compiled, entity_id, ("delete", rule_condition(compiled, "delete", reader.values())))
        try:
            result = batch.apply(operation)
        except Conflict as conflict:
            raise Conflict(Sentence("%(entity_id)s is still in use and cannot be deleted", entity_id=entity_id)) from conflict
        batch.announce(scope, [result])

    _write(scope, collection, {"op": "delete", "id": entity_id, "if_version": if_version}, delete)


def _write(
    scope: TenantScope, collection: str, document: Mapping[str, Any], apply: Callable[[CompiledCollection, Operation], T]
) -> T:
    """Validate on the caller's thread, then apply the rule and write; validates again only if the collection changed meanwhile."""
    verb = str(document["op"])
    compiled = _load_permitted(scope, collection, verb)
    operation = _parse_operation(compiled, document)
    batch.check_quota(scope, [operation])

    def write() -> T:
        current = _load_permitted(scope, collection, verb)
        with db.savepoint():
            return apply(current, operation if current is compiled else _parse_operation(current, document))

    return db.write(write, is_shared=True)


def _parse_operation(collection: CompiledCollection, document: Mapping[str, Any]) -> Operation:
    """Parse the operation; ValidationFailed for its values alone.

    Unique values and relations are checked only after the rule, so that an error does not reveal hidden entities.
    """
    findings = Findings()
    values = document.get("values", {})
    operation = Operation(document["op"], collection, "", if_version=document.get("if_version"), id=str(document.get("id", "")))
    if operation.op == "create":
        operation.stored = collection.parse_new(values, findings, "")
    elif operation.op == "update":
        operation.stored = collection.parse_changes(values, findings, "")
    findings.raise_if_any(f"the entity cannot be stored in {collection.name}")
    operation.values = values
    return operation


def _load_permitted(scope: TenantScope, name: str, verb: str) -> CompiledCollection:
    compiled = load(scope, name)
    _require_permission(not is_denied(compiled, verb), compiled, verb)
    return compiled


def _require_permission(allowed: bool, collection: CompiledCollection, verb: str) -> None:
    if not allowed:
        raise PolicyDenied(
            Sentence("the access rules of %(name)s do not allow you to %(verb)s this", name=collection.name, verb=verb)
        )


def _build_not_found(collection: CompiledCollection, entity_id: str) -> NotFound:
    return NotFound(
        Sentence("there is no entity %(entity_id)s in %(name)s", entity_id=repr(str(entity_id)[:80]), name=collection.name)
    )


def _find_matching_row(collection: CompiledCollection, entity_id: Any, condition: Condition) -> Any | None:
    if not entities.is_entity_id(entity_id):
        return None
    rows = queries.find_rows(collection, AllOf((Compare("id", "_eq", entity_id), condition)))
    return rows[0] if rows else None


def _row_matches(collection: CompiledCollection, row: list[Any], condition: Condition) -> bool:
    """Whether the condition holds for a row that is not stored yet.

    Evaluated before the insert, so that a unique constraint does not reveal hidden entities.
    """
    storage = ["TEXT", "BIGINT", "BIGINT", "BIGINT", *(compiled_field.storage for compiled_field in collection.fields.values())]
    columns = ", ".join(f"{_typed_placeholder(kind)} AS {column}" for column, kind in zip(collection.columns, storage, strict=True))
    where = conditions.compile_condition(condition, collection.query_columns)
    return bool(db.rows(f"SELECT 1 FROM (SELECT {columns}) AS t WHERE {where.text}", (*row, *where.params)))  # noqa: S608


def _typed_placeholder(storage: str) -> str:
    """A placeholder for a value with the type and collation of such a column."""
    return f"CAST(? AS {storage})" + ('' if storage != "TEXT" or db.is_sqlite() else ' COLLATE "C"')


class _RequesterReader:
    """The `Reader` for one requester: restricts queries to what the access rules allow."""

    def __init__(self, requester: Requester, body: Mapping[str, Any] | None = None) -> None:
        now = clock.rfc3339(requester.now)
        texts = {name: getattr(requester, name) or None for name in ("id", "kind", "email", "app", "method")}
        self._values = {
            "actor": {name: texts[name] for name in ("id", "kind", "email")} | {"roles": list(requester.roles) or None},
            "request": {"method": texts["method"], "app": texts["app"], "now": now, "body": dict(body) if body else {}},
            "now": now,
        }

    def values(self) -> Mapping[str, Any]:
        return self._values

    def fields(self, collection: CompiledCollection) -> Mapping[str, Field]:
        """The fields to filter by; a relation to a collection that denies `view` cannot be followed."""
        return {name: self._restrict_relation(collection, name, entry) for name, entry in collection.condition_fields.items()}

    def _restrict_relation(self, collection: CompiledCollection, name: str, condition_field: Field) -> Field:
        if condition_field.inside is None:
            return condition_field
        target = _related_collection(collection, name)
        return replace(condition_field, inside=None if is_denied(target, "view") else lambda: self.fields(target))

    def narrow(self, collection: CompiledCollection, condition: Condition) -> Condition:
        return AllOf((rule_condition(collection, "list", self._values), self._hide_unviewable(collection, condition)))

    def viewable(self, collection: CompiledCollection) -> Condition:
        return rule_condition(collection, "view", self._values)

    def _hide_unviewable(self, collection: CompiledCollection, condition: Condition) -> Condition:
        """The condition, with the `view` rule of the related collection added wherever it follows a relation."""
        match condition:
            case AllOf(parts):
                return AllOf(tuple(self._hide_unviewable(collection, part) for part in parts))
            case AnyOf(parts):
                return AnyOf(tuple(self._hide_unviewable(collection, part) for part in parts))
            case Inside(name, negated, inner):
                target = _related_collection(collection, name)
                return Inside(name, negated, AllOf((self.viewable(target), self._hide_unviewable(target, inner))))
            case _:
                return condition

    def require_entity(self, collection: CompiledCollection, entity_id: str, verb_and_rule: tuple[str, Condition]) -> None:
        """Raise unless the entity matches the rule of the verb: PolicyDenied when it is visible, otherwise NotFound."""
        verb, rule = verb_and_rule
        if db.row_lock():
            entities.lock_row(collection, entity_id)  # So that the rule holds until the change is committed.
        if _find_matching_row(collection, entity_id, rule) is None:
            _require_permission(_find_matching_row(collection, entity_id, self.viewable(collection)) is None, collection, verb)
            raise _build_not_found(collection, entity_id)

    def perform(self, scope: TenantScope, operation: Operation, rule: Condition) -> dict[str, Any]:
        """Inside a savepoint: apply the operation, check the rule against the result and return what the requester may view."""
        result = batch.apply(operation)
        compiled, entity = operation.collection, result.entity
        _require_permission(_find_matching_row(compiled, entity["id"], rule) is not None, compiled, operation.op)
        batch.announce(scope, [result])
        return entity if _find_matching_row(compiled, entity["id"], self.viewable(compiled)) is not None else {"id": entity["id"]}


def _related_collection(collection: CompiledCollection, name: str) -> CompiledCollection:
    return load_for_tenant(collection.tenant_id, collection.fields[name].definition.options["collection"])
