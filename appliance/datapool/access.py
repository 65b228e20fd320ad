"""Entities for whoever opens a WebApp, a member or an agent: only what the access rules of the collection let through.

What the rules hide is as if it were not there: it is neither found, counted, sorted in, nor felt through a filter over a
relation.  Each change decides its rule in the write that makes it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, TypeVar

from peewee import SQL, Expression, Select, Value

from appliance import conditions
from appliance.conditions import AllOf, AnyOf, Compare, Condition, Field, Inside
from appliance.core import clock
from appliance.core.database import db
from appliance.core.errors import Conflict, InvalidRequest, NotFound, PolicyDenied
from appliance.core.pages import Page
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.datapool import batch, entities, queries
from appliance.datapool.access_rules import demanded, is_denied
from appliance.datapool.batch import Operation
from appliance.datapool.compiled import CompiledCollection, load, load_for_tenant
from appliance.datapool.definition import Findings
from appliance.datapool.limits import in_force
from appliance.datapool.queries import Query

T = TypeVar("T")


@dataclass(frozen=True)
class Requester:
    """Whoever asks: what a rule may know of them and of their request.

    What is empty is absent, so that it equals nothing.  `kind` is `anonymous`, `password`, `member` or `user`;
    `app` is the WebApp they came through; `now` is in milliseconds.
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
    """One page of what the `list` rule and the query let through; PolicyDenied, InvalidRequest for groups and sums."""
    wanted = query if isinstance(query, Query) else queries.read_query(query)
    if wanted.grouped:
        raise InvalidRequest("groups and sums are not offered here; ask for entities", pointer="/group")
    with db.snapshot(), db.deadline(in_force.query_seconds):
        known = _load(scope, collection, "list")
        return queries.find_page(scope, known, wanted, _Reading(requester))


def get_visible(
    scope: TenantScope, requester: Requester, collection: str, entity_id: str, *, query: Query | None = None
) -> dict[str, Any]:
    """The entity with the `fields` and `expand` of the query; NotFound when it is hidden or not there; PolicyDenied."""
    with db.snapshot():
        known = _load(scope, collection, "view")
        reading = _Reading(requester)
        row = _find(known, entity_id, reading.viewable(known))
        if row is None:
            raise _not_found(known, entity_id)
        shown = known.show(row)
        return queries.present(known, [shown], query, reading)[0] if query else shown


def create_allowed(scope: TenantScope, requester: Requester, collection: str, values: Any) -> dict[str, Any]:
    """Store a new entity for which the `create` rule holds; answers it, or its id alone when it may not be viewed.

    PolicyDenied; ValidationFailed with every error.
    """
    reading = _Reading(requester, values if isinstance(values, Mapping) else None)

    def create(known: CompiledCollection, operation: Operation) -> dict[str, Any]:
        rule = demanded(known, "create", reading.values())
        _require(_holds(known, entities.new_row(operation.stored), rule), known, "create")
        return reading.perform(scope, operation, rule)

    return _write(scope, collection, {"op": "create", "values": values}, create)


def update_allowed(
    scope: TenantScope, requester: Requester, collection: str, entity_id: str, values: Any, *, if_version: int | None = None
) -> dict[str, Any]:
    """Merge values into an entity for which the `update` rule holds, before and after; answers as `create_allowed` does.

    NotFound when it is hidden; PolicyDenied when it may be viewed but not changed so; ValidationFailed, VersionConflict.
    """
    reading = _Reading(requester, values if isinstance(values, Mapping) else None)

    def update(known: CompiledCollection, operation: Operation) -> dict[str, Any]:
        rule = demanded(known, "update", reading.values())
        reading.require_entity(known, entity_id, ("update", rule))
        row = entities.get_row(known, entity_id, if_version)
        after = list(row)
        for name, value in batch.merge_json(known, row, operation).items():
            after[known.fields[name].position] = value
        _require(_holds(known, after, rule), known, "update")
        return reading.perform(scope, operation, rule)

    return _write(scope, collection, {"op": "update", "id": entity_id, "values": values, "if_version": if_version}, update)


def delete_allowed(
    scope: TenantScope, requester: Requester, collection: str, entity_id: str, *, if_version: int | None = None
) -> None:
    """Delete an entity for which the `delete` rule holds; NotFound, PolicyDenied, VersionConflict, Conflict."""
    reading = _Reading(requester)

    def delete(known: CompiledCollection, operation: Operation) -> None:
        reading.require_entity(known, entity_id, ("delete", demanded(known, "delete", reading.values())))
        try:
            outcome = batch.perform(operation)
        except Conflict as conflict:
            raise Conflict(Sentence("%(entity_id)s is still in use and cannot be deleted", entity_id=entity_id)) from conflict
        batch.announce(scope, [outcome])

    _write(scope, collection, {"op": "delete", "id": entity_id, "if_version": if_version}, delete)


def _write(
    scope: TenantScope, collection: str, document: Mapping[str, Any], act: Callable[[CompiledCollection, Operation], T]
) -> T:
    """Check on the caller's thread, then decide and write; checked again only if the collection changed in between."""
    verb = str(document["op"])
    known = _load(scope, collection, verb)
    operation = _read(known, document)
    batch.refuse_full(scope, [operation])

    def write() -> T:
        now = _load(scope, collection, verb)
        with db.savepoint():
            return act(now, operation if now is known else _read(now, document))

    return db.write(write)


def _read(collection: CompiledCollection, document: Mapping[str, Any]) -> Operation:
    """The operation; ValidationFailed for its values alone: what others have stored is not looked at before the rule is."""
    found = Findings()
    values = document.get("values", {})
    operation = Operation(document["op"], collection, "", if_version=document.get("if_version"), id=str(document.get("id", "")))
    if operation.op == "create":
        operation.stored = collection.read_new(values, found, "")
    elif operation.op == "update":
        operation.stored = collection.read_changes(values, found, "")
    found.raise_if_any(f"the entity cannot be stored in {collection.name}")
    operation.values = values
    return operation


def _load(scope: TenantScope, name: str, verb: str) -> CompiledCollection:
    known = load(scope, name)
    _require(not is_denied(known, verb), known, verb)
    return known


def _require(allowed: bool, collection: CompiledCollection, verb: str) -> None:
    if not allowed:
        raise PolicyDenied(Sentence("the access rules of %(name)s do not let you %(verb)s this", name=collection.name, verb=verb))


def _not_found(collection: CompiledCollection, entity_id: str) -> NotFound:
    return NotFound(
        Sentence("there is no entity %(entity_id)s in %(name)s", entity_id=repr(str(entity_id)[:80]), name=collection.name)
    )


def _find(collection: CompiledCollection, entity_id: Any, condition: Condition) -> Any | None:
    if not entities.is_entity_id(entity_id):
        return None
    rows = queries.find_rows(collection, AllOf((Compare("id", "_eq", entity_id), condition)))
    return rows[0] if rows else None


def _holds(collection: CompiledCollection, row: list[Any], condition: Condition) -> bool:
    """Whether the condition holds for a row that is not stored: what is stored and unique is not felt before it does."""
    storage = ["TEXT", "BIGINT", "BIGINT", "BIGINT", *(known.storage for known in collection.fields.values())]
    values = zip(collection.columns, row, storage, strict=True)
    source = SimpleNamespace(**{column: _literal(value, kind) for column, value, kind in values})
    where = conditions.compile_condition(condition, collection.query_columns(source))
    return bool(queries.fetch(Select((), [SQL("1")]).where(where)))


def _literal(value: Any, storage: str) -> Any:
    """The value as a column of this storage holds and compares it."""
    typed = Value(value).cast(storage)
    return typed if storage != "TEXT" or db.is_sqlite() else Expression(typed, "COLLATE", SQL('"C"'))


class _Reading:
    """What one requester may see; a `Reader` of queries."""

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
        """Through a relation nobody may look into, nothing can be asked for."""
        return {name: self._within(collection, name, known) for name, known in collection.condition_fields.items()}

    def _within(self, collection: CompiledCollection, name: str, known: Field) -> Field:
        if known.inside is None:
            return known
        target = _target(collection, name)
        return replace(known, inside=None if is_denied(target, "view") else lambda: self.fields(target))

    def narrowed(self, collection: CompiledCollection, chosen: Condition) -> Condition:
        return AllOf((demanded(collection, "list", self._values), self._seen(collection, chosen)))

    def viewable(self, collection: CompiledCollection) -> Condition:
        return demanded(collection, "view", self._values)

    def _seen(self, collection: CompiledCollection, chosen: Condition) -> Condition:
        """The condition, with nothing found through a relation that may not be viewed there."""
        match chosen:
            case AllOf(parts):
                return AllOf(tuple(self._seen(collection, part) for part in parts))
            case AnyOf(parts):
                return AnyOf(tuple(self._seen(collection, part) for part in parts))
            case Inside(name, negated, inner):
                target = _target(collection, name)
                return Inside(name, negated, AllOf((self.viewable(target), self._seen(target, inner))))
            case _:
                return chosen

    def require_entity(self, collection: CompiledCollection, entity_id: str, demand: tuple[str, Condition]) -> None:
        """The rule of the verb holds for the entity: PolicyDenied when it may at least be viewed, otherwise NotFound."""
        verb, rule = demand
        if _find(collection, entity_id, rule) is None:
            _require(_find(collection, entity_id, self.viewable(collection)) is None, collection, verb)
            raise _not_found(collection, entity_id)

    def perform(self, scope: TenantScope, operation: Operation, rule: Condition) -> dict[str, Any]:
        """Inside a savepoint: do it, make sure that the rule holds for what came of it, and answer what may be seen."""
        outcome = batch.perform(operation)
        known, entity = operation.collection, outcome.entity
        _require(_find(known, entity["id"], rule) is not None, known, operation.op)
        batch.announce(scope, [outcome])
        return entity if _find(known, entity["id"], self.viewable(known)) is not None else {"id": entity["id"]}


def _target(collection: CompiledCollection, name: str) -> CompiledCollection:
    return load_for_tenant(collection.tenant_id, collection.fields[name].definition.options["collection"])
