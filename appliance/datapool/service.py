"""DataPool: collections and their entities.

Every verb may be called inside an outer `db.write` and is then part of it: what it refuses, it has not half done.
"""

import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, BinaryIO, Literal, TypeAlias

from appliance import conditions
from appliance.core import clock
from appliance.core.database import db
from appliance.core.errors import AlreadyExists, Conflict, ValidationFailed, VersionConflict
from appliance.core.pages import Page, PageRequest, paginate
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.datapool import access_rules, batch, changes, entities, exports, history, imports, queries, tables, titles
from appliance.datapool.aggregation import aggregate_page
from appliance.datapool.charsets import find_charset
from appliance.datapool.compiled import CompiledCollection, load, load_for_tenant
from appliance.datapool.definition import CollectionDefinition, Findings, from_stored, read_definition
from appliance.datapool.entities import Listener, Outcome, on_change
from appliance.datapool.history import Change
from appliance.datapool.imports import ImportOptions, ImportReport
from appliance.datapool.limits import configure, in_force
from appliance.datapool.models import Collection
from appliance.datapool.queries import Query, read_query

__all__ = [
    "Change", "ImportOptions", "ImportReport", "Listener", "Outcome", "Query", "configure", "find_charset", "on_change",
    "read_query",
]  # fmt: skip

MAX_COLLECTIONS = 500


def list_collections(scope: TenantScope, request: PageRequest) -> Page[dict[str, Any]]:
    """The collections of the tenant, by name unless asked otherwise."""
    fields = {"name": Collection.name, "created_at": Collection.created_at, "updated_at": Collection.updated_at}
    return paginate(scope.select(Collection), request, fields, default="name", tie="name").map(_view)


def get_collection(scope: TenantScope, name: str) -> dict[str, Any]:
    """One collection: its definition, times and `_version`; NotFound."""
    return _view(_row(scope, name))


def _row(scope: TenantScope, name: str) -> Collection:
    load(scope, name)
    return scope.get(Collection, name=name)


def create_collection(scope: TenantScope, document: Any) -> dict[str, Any]:
    """Make a collection and its table; ValidationFailed with every error, AlreadyExists."""
    definition = read_definition(document)
    return db.write(lambda: _create_collection(scope, definition))


def _create_collection(scope: TenantScope, definition: CollectionDefinition) -> dict[str, Any]:
    if scope.find(Collection, name=definition.name) is not None:
        raise AlreadyExists(Sentence("there is a collection %(name)s already; change it with PATCH", name=repr(definition.name)))
    if scope.select(Collection).count() >= MAX_COLLECTIONS:
        raise Conflict(Sentence(
            "a tenant may have %(max_collections)s collections; delete one that is no longer used",
            max_collections=MAX_COLLECTIONS,
        ))
    table, now = tables.new_table_name(), clock.now_ms()
    targets = _targets(scope, definition) | {definition.name: table}
    _refuse_missing_targets(definition, targets)
    with db.savepoint():
        tables.create_table(definition, table, targets)
        scope.insert(
            Collection,
            name=definition.name,
            definition=definition.stored(),
            table_name=table,
            stamp=secrets.token_hex(8),
            version=1,
            created_at=now,
            updated_at=now,
        )
        _check_access(load(scope, definition.name))
    return get_collection(scope, definition.name)


def _check_access(collection: CompiledCollection) -> None:
    """Access rules name fields that exist, here and in related collections, with fitting values."""
    found = Findings()
    access_rules.find_faults(collection, found)
    found.raise_if_any("the collection cannot be accepted")


def _check_access_of_others(collection: CompiledCollection) -> None:
    """Inside the write: the rules of collections that lead here still find the fields that they name."""
    found = Findings()
    for name in {user.partition(".")[0] for user in entities.referring(collection)} - {collection.name}:
        others = Findings()
        access_rules.find_faults(load_for_tenant(collection.tenant_id, name), others)
        for detail in others.details:
            verb = detail.pointer.split("/")[2]
            found.add("/fields", "invalid_filter", f"no longer fit the {verb} rule of {name}, change that first: {detail.message}")
    found.raise_if_any("the collection cannot be accepted")


def _targets(scope: TenantScope, definition: CollectionDefinition) -> dict[str, str]:
    wanted = {field.options["collection"] for field in definition.fields if field.type == "relation"}
    rows = scope.select(Collection, Collection.name, Collection.table_name).where(Collection.name.in_(sorted(wanted)))
    return {row.name: row.table_name for row in rows}


def _refuse_missing_targets(definition: CollectionDefinition, targets: Mapping[str, str]) -> None:
    found = Findings()
    for index, field in enumerate(definition.fields):
        target = field.options.get("collection")
        if field.type == "relation" and target not in targets:
            found.add(f"/fields/{index}/collection", "not_found", f"there is no collection {target!r}; create it first")
    found.raise_if_any("the collection cannot be accepted")


def change_collection(
    scope: TenantScope,
    name: str,
    patch: Any,
    *,
    dry_run: bool = False,
    allow_loss: bool = False,
    if_version: int | None = None,
) -> dict[str, Any]:
    """Merge `patch` (RFC 7396; `fields` is the whole new list) into the definition and carry the entities over.

    A field keeps its values when its id, or without one its name, stays.  Answers the collection with the `steps` taken:
    `{field, change, message, lost, blocked}`.  ValidationFailed names what would be lost unless `allow_loss`; a dry run
    answers the same and changes nothing.  VersionConflict when the collection is no longer at `if_version`.
    """
    if dry_run:
        with db.snapshot():
            row, _, wanted, steps = _plan(scope, name, patch, if_version)
            return _view(row) | wanted.document() | {"steps": [step.document() for step in steps]}
    return db.write(lambda: _change_collection(scope, _plan(scope, name, patch, if_version), allow_loss=allow_loss))


Plan: TypeAlias = tuple[Collection, CompiledCollection, CollectionDefinition, list[changes.Change]]


def _plan(scope: TenantScope, name: str, patch: Any, if_version: int | None) -> Plan:
    row = _row(scope, name)
    if if_version is not None and row.version != if_version:
        raise VersionConflict(Sentence(
            "the collection is at version %(version)s, not %(if_version)s: read it again",
            version=row.version, if_version=if_version,
        ))
    current = load(scope, name)
    wanted = _patched(current, patch)
    _refuse_missing_targets(wanted, _targets(scope, wanted))
    _check_access(CompiledCollection(scope.tenant_id, wanted, current.table_name, current.stamp))
    return row, current, wanted, changes.plan(current, wanted)


def _change_collection(scope: TenantScope, planned: Plan, *, allow_loss: bool) -> dict[str, Any]:
    row, current, wanted, steps = planned
    changes.refuse_loss(steps, allow_loss=allow_loss)
    with db.savepoint():
        stored = changes.apply(current, wanted, steps, _targets(scope, wanted)).stored()
        if stored != row.definition:
            scope.update(
                Collection,
                definition=stored,
                stamp=secrets.token_hex(8),
                version=row.version + 1,
                updated_at=clock.now_ms(),
            ).where(Collection.name == row.name).execute()
            _check_access_of_others(load(scope, row.name))
    return get_collection(scope, row.name) | {"steps": [step.document() for step in steps]}


def _patched(current: CompiledCollection, patch: Any) -> CollectionDefinition:
    if not isinstance(patch, Mapping):
        raise ValidationFailed("a change is an object with the members to change", pointer="")
    if patch.get("name", current.name) != current.name:
        raise ValidationFailed("a collection keeps its name: others refer to it by that", pointer="/name")
    merged = batch.merge(current.definition.document(), patch)
    return read_definition(merged, current.definition)


def delete_collection(scope: TenantScope, name: str, *, allow_loss: bool = False) -> None:
    """Delete a collection; Conflict while it holds entities (unless `allow_loss`) or others lead to it."""
    db.write(lambda: _delete_collection(scope, name, allow_loss))


def _delete_collection(scope: TenantScope, name: str, allow_loss: bool) -> None:
    collection = load(scope, name)
    users = [user for user in entities.referring(collection) if not user.startswith(f"{name}.")]
    if users:
        raise Conflict(Sentence("%(users)s lead to the collection %(name)s; change those first", users=', '.join(users), name=name))
    if not allow_loss and db.rows(f'SELECT 1 FROM "{collection.table_name}" LIMIT 1'):  # noqa: S608
        raise Conflict(Sentence("the collection %(name)s holds entities; allow_loss=true deletes them with it", name=name))
    with db.savepoint():
        tables.drop_table(collection.table_name)
        history.forget_collection(collection)
        scope.delete(Collection).where(Collection.name == name).execute()


def forget_tenant(scope: TenantScope) -> None:
    """Inside the write that deletes the tenant: drop the tables of its entities, which its row does not take along."""
    tables.drop_related_tables(row.table_name for row in scope.select(Collection))


def find_entity(scope: TenantScope, collection: str, entity_id: str) -> dict[str, Any] | None:
    """The entity, or None."""
    with db.snapshot():
        known = load(scope, collection)
        row = entities.find_row(known, entity_id)
        return None if row is None else known.show(row)


def get_entity(scope: TenantScope, collection: str, entity_id: str, *, query: Query | None = None) -> dict[str, Any]:
    """The entity, with the `fields` and `expand` of the query; NotFound."""
    with db.snapshot():
        known = load(scope, collection)
        shown = known.show(entities.get_row(known, entity_id))
        return queries.present(known, [shown], query)[0] if query else shown


def query_entities(scope: TenantScope, collection: str, query: Any) -> Page[dict[str, Any]]:
    """One page of entities, or of groups when the query groups or aggregates; `query` is a Query or its JSON.

    TimedOut when it takes longer than `limits.query_seconds`.
    """
    wanted = query if isinstance(query, Query) else queries.read_query(query)
    with db.snapshot(), db.deadline(in_force.query_seconds):
        known = load(scope, collection)
        return aggregate_page(scope, known, wanted) if wanted.grouped else queries.find_page(scope, known, wanted)


def count_entities(scope: TenantScope, collection: str, query: Query, most: int) -> int:
    """How many entities the query finds; `most` + 1 when there are more, and then no more than that are looked at."""
    with db.snapshot(), db.deadline(in_force.query_seconds):
        return queries.count_up_to(scope, load(scope, collection), query, most)


def get_title_field(scope: TenantScope, collection: str) -> str | None:
    """The name of the field that names an entity of the collection where another leads to it."""
    field = titles.title_field(load(scope, collection).definition)
    return field.name if field else None


def name_entities(scope: TenantScope, collection: str, entity_ids: Iterable[str]) -> dict[str, str]:
    """The titles of those entities that are there and have one, by id."""
    with db.snapshot():
        return titles.titles_of(load(scope, collection), entity_ids)


def fulfils(scope: TenantScope, collection: str, chosen: Any, entity: Mapping[str, Any]) -> bool:
    """Whether an entity, as it is shown, fulfils a filter over its own fields; InvalidFilter."""
    fields = load(scope, collection).condition_fields
    condition = conditions.bind(conditions.parse(chosen, _own_fields(fields)), queries.placeholders(scope), fields)
    return conditions.matches(condition, entity, fields)


def check_filter(scope: TenantScope, collection: str, chosen: Any, pointer: str, *, may_lead_on: bool = False) -> None:
    """InvalidFilter when it does not suit the entities of the collection; NotFound.

    By their own fields alone, as triggers know them, or as queries do: by what their relations lead to as well.
    """
    fields = load(scope, collection).condition_fields
    conditions.parse(chosen, fields if may_lead_on else _own_fields(fields), pointer=pointer)


def _own_fields(fields: Mapping[str, conditions.Field]) -> dict[str, conditions.Field]:
    """The fields without those that lead to other entities: a change knows its own entity only."""
    return {name: field for name, field in fields.items() if field.inside is None}


def create_entity(scope: TenantScope, collection: str, values: Any) -> dict[str, Any]:
    """Store a new entity; ValidationFailed with every error."""
    return _perform(scope, collection, {"op": "create", "values": values}).entity


def update_entity(
    scope: TenantScope, collection: str, entity_id: str, values: Any, *, if_version: int | None = None
) -> dict[str, Any]:
    """Merge values into an entity (RFC 7396); where nothing differs the version stays.  NotFound, VersionConflict."""
    operation = {"op": "update", "id": entity_id, "values": values, "if_version": if_version}
    return _perform(scope, collection, operation).entity


def replace_entity(
    scope: TenantScope, collection: str, entity_id: str, values: Any, *, if_version: int | None = None
) -> dict[str, Any]:
    """Set every field of an entity: what is not given gets its default or null; NotFound, VersionConflict."""
    operation = {"op": "replace", "id": entity_id, "values": values, "if_version": if_version}
    return _perform(scope, collection, operation).entity


def delete_entity(scope: TenantScope, collection: str, entity_id: str, *, if_version: int | None = None) -> None:
    """Delete an entity; NotFound, VersionConflict, Conflict when others lead to it."""
    _perform(scope, collection, {"op": "delete", "id": entity_id, "if_version": if_version})


def upsert_entity(scope: TenantScope, collection: str, document: Any) -> Outcome:
    """Create or merge by key, `{key: [field, …], values: {…}}`; Conflict when several entities have that key."""
    if not isinstance(document, Mapping) or document.keys() != {"key", "values"}:
        raise ValidationFailed("an upsert is {key: [field, …], values: {…}}", pointer="")
    return _perform(scope, collection, {"op": "upsert", **document})


def _perform(scope: TenantScope, collection: str, document: Mapping[str, Any]) -> Outcome:
    """Check on the caller's thread, then write; checked again only if the collection changed in between."""
    known = load(scope, collection)
    operation = batch.read_single(known, document)
    batch.refuse_full(scope, [operation])

    def write() -> Outcome:
        now = load(scope, collection)
        outcome = batch.perform(operation if now is known else batch.read_single(now, document))
        batch.announce(scope, [outcome])
        return outcome

    return db.write(write)


def run_batch(scope: TenantScope, operations: Any, *, dry_run: bool = False) -> list[Outcome]:
    """Up to 1,000 `{op, collection, id?, key?, values?, if_version?}`, all or nothing; the outcomes in order.

    ValidationFailed lists every error of every operation; a dry run answers what would be and changes nothing.
    """
    read = batch.read_operations(scope, operations)
    batch.refuse_full(scope, read)

    def write() -> list[Outcome]:
        fresh: dict[str, CompiledCollection] = {name: load(scope, name) for name in {o.collection.name for o in read}}
        stale = any(fresh[operation.collection.name] is not operation.collection for operation in read)
        return batch.run(scope, batch.read_operations(scope, operations) if stale else read, dry_run=dry_run)

    return db.write(write)


def import_entities(
    scope: TenantScope, collection: str, file: BinaryIO, options: ImportOptions,
    progress: Callable[[ImportReport], None] | None = None,
) -> ImportReport:  # fmt: skip
    """Store the rows of a CSV or NDJSON file, a part at a time; the report counts every row and names every error by
    line and field.  `progress` is told of each part; what it raises ends the import, and what was stored stays."""
    return imports.import_rows(scope, collection, file, options, progress)


def export_entities(scope: TenantScope, collection: str, form: Literal["csv", "ndjson"], *, chosen: Any = None) -> Iterator[bytes]:
    """The entities that fulfil the filter `chosen` (default: all), oldest first, as pieces of one file."""
    with db.snapshot():
        yield from exports.export_rows(scope, load(scope, collection), form, chosen or {})


def list_entity_history(scope: TenantScope, collection: str, entity_id: str, request: PageRequest) -> Page[Change]:
    """What became of an entity, newest first; NotFound when nothing is known of it, a deleted one is."""
    known = load(scope, collection)
    page = history.list_changes(known, entity_id, request) if entities.is_entity_id(entity_id) else Page([])
    if not page.items and not request.cursor:
        entities.get_row(known, entity_id)
    return page


def find_entity_version(scope: TenantScope, collection: str, entity_id: str, version: int) -> Change | None:
    """The change that made this version of an entity, if it is still known."""
    return history.find_version(load(scope, collection), entity_id, version)


def list_changes_after(scope: TenantScope, collection: str, number: int, most: int = 100) -> list[Change]:
    """The collection's changes after the change `number`, oldest first."""
    return history.changes_after(load(scope, collection), number, most)


def get_last_change(scope: TenantScope, collection: str) -> int:
    """The number of the collection's newest change; 0 when there is none."""
    return history.last_number(load(scope, collection))


def forget_history(before_ms: int) -> int:
    """Retention: delete every tenant's changes from before this moment; answers how many."""
    return history.forget_before(before_ms)


def _view(row: Collection) -> dict[str, Any]:
    return {
        **from_stored(row.definition).document(),
        "created_at": clock.rfc3339(row.created_at),
        "updated_at": clock.rfc3339(row.updated_at),
        "_version": row.version,
    }
