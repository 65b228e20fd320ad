"""DataPool: collections and their entities.

Every function may be called inside an outer `db.write` and then joins it; one that raises leaves no partial change.
"""

import secrets
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, BinaryIO, Literal, TypeAlias

from appliance import conditions
from appliance.core import clock
from appliance.core.database import db
from appliance.core.errors import AlreadyExists, Conflict, ValidationFailed, VersionConflict
from appliance.core.pages import Page, PageRequest, paginate
from appliance.core.patches import merge_patch
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.datapool import access_rules, batch, changes, entities, exports, history, queries, removal, tables, titles
from appliance.datapool.aggregation import aggregate_page
from appliance.datapool.charsets import detect_charset
from appliance.datapool.compiled import CompiledCollection, load, load_for_tenant
from appliance.datapool.definition import CollectionDefinition, Findings, from_stored, parse_collection
from appliance.datapool.entities import ChangeResult, EntitiesChanged
from appliance.datapool.history import Change
from appliance.datapool.importing import imports
from appliance.datapool.importing.reading import ImportOptions, ImportReport
from appliance.datapool.limits import configure, in_force
from appliance.datapool.models import Collection
from appliance.datapool.queries import Query, parse_query
from appliance.monitor import audit

__all__ = [
    "Change", "ChangeResult", "EntitiesChanged", "ImportOptions", "ImportReport", "Query", "configure",
    "detect_charset", "parse_query",
]  # fmt: skip

MAX_COLLECTIONS = 500
_IS_THERE = Collection.removal_lease.is_null()


def list_collections(scope: TenantScope, request: PageRequest) -> Page[dict[str, Any]]:
    """The collections of the tenant, sorted by name by default."""
    query = scope.narrow(scope.select(Collection).where(_IS_THERE), "collection", Collection.name)
    fields = {"name": Collection.name, "created_at": Collection.created_at, "updated_at": Collection.updated_at}
    return paginate(query, request, fields, default="name", tie="name").map(_to_view)


def get_collection(scope: TenantScope, name: str) -> dict[str, Any]:
    """One collection: its definition, times and `_version`; NotFound."""
    return _to_view(_get_row(scope, name))


def _get_row(scope: TenantScope, name: str) -> Collection:
    load(scope, name)
    return scope.get(Collection, name=name)


def create_collection(scope: TenantScope, document: Any) -> dict[str, Any]:
    """Create a collection and its table; ValidationFailed lists every error; AlreadyExists."""
    definition = parse_collection(document)
    return db.write(lambda: _create_collection(scope, definition))


def _create_collection(scope: TenantScope, definition: CollectionDefinition) -> dict[str, Any]:
    if scope.find(Collection, name=definition.name) is not None:
        raise AlreadyExists(Sentence("the collection %(name)s already exists; change it with PATCH", name=repr(definition.name)))
    if scope.select(Collection).where(_IS_THERE).count() >= MAX_COLLECTIONS:
        raise Conflict(Sentence(
            "a tenant can have at most %(max_collections)s collections; delete one that is no longer used",
            max_collections=MAX_COLLECTIONS,
        ))
    table, now = tables.new_table_name(), clock.now_ms()
    targets = _find_target_tables(scope, definition) | {definition.name: table}
    _check_targets(definition, targets)
    with db.savepoint():
        tables.create_table(definition, table, targets)
        scope.insert(
            Collection,
            name=definition.name,
            definition=definition.to_stored(),
            table_name=table,
            stamp=secrets.token_hex(8),
            version=1,
            created_at=now,
            updated_at=now,
        )
        _check_access(load(scope, definition.name))
        audit.record(scope, "collection.create", definition.name, definition.document())
    return get_collection(scope, definition.name)


def _check_access(collection: CompiledCollection) -> None:
    """Check that access rules use existing fields, here and in related collections, with values of the right type."""
    findings = Findings()
    access_rules.find_rule_errors(collection, findings)
    findings.raise_if_any("the collection cannot be accepted")


def _check_access_of_related(collection: CompiledCollection) -> None:
    """Inside the write: check that the rules of collections with a relation to this one still fit its fields."""
    findings = Findings()
    for name in {user.partition(".")[0] for user in entities.list_referring_fields(collection)} - {collection.name}:
        related_findings = Findings()
        access_rules.find_rule_errors(load_for_tenant(collection.tenant_id, name), related_findings)
        for detail in related_findings.details:
            verb = detail.pointer.split("/")[2]
            findings.add(
                "/fields", "invalid_filter", f"no longer fit the {verb} rule of {name}; change that first: {detail.message}"
            )
    findings.raise_if_any("the collection cannot be accepted")


def _find_target_tables(scope: TenantScope, definition: CollectionDefinition) -> dict[str, str]:
    names = {field.options["collection"] for field in definition.fields if field.type == "relation"}
    rows = scope.select(Collection, Collection.name, Collection.table_name).where(Collection.name.in_(sorted(names)))
    return {row.name: row.table_name for row in rows}


def _check_targets(definition: CollectionDefinition, targets: Mapping[str, str]) -> None:
    findings = Findings()
    for index, field in enumerate(definition.fields):
        target = field.options.get("collection")
        if field.type == "relation" and target not in targets:
            findings.add(f"/fields/{index}/collection", "not_found", f"there is no collection {target!r}; create it first")
    findings.raise_if_any("the collection cannot be accepted")


def change_collection(
    scope: TenantScope,
    name: str,
    patch: Any,
    *,
    dry_run: bool = False,
    allow_loss: bool = False,
    if_version: int | None = None,
) -> dict[str, Any]:
    """Merge `patch` (RFC 7396; `fields` is the whole new list) into the definition and convert the entities.

    A field keeps its values when its id, or without one its name, stays the same.  Returns the collection with the `steps`
    taken: `{field, change, message, lost, blocked}`.  ValidationFailed lists the steps that would lose values unless
    `allow_loss`; a dry run returns the same and changes nothing.  VersionConflict when the collection is not at
    `if_version`.
    """
    if dry_run:
        with db.snapshot():
            row, _, definition, steps = _plan(scope, name, patch, if_version)
            return _to_view(row) | definition.document() | {"steps": [step.document() for step in steps]}
    return db.write(lambda: _change_collection(scope, _plan(scope, name, patch, if_version), allow_loss=allow_loss))


Plan: TypeAlias = tuple[Collection, CompiledCollection, CollectionDefinition, list[changes.Change]]


def _plan(scope: TenantScope, name: str, patch: Any, if_version: int | None) -> Plan:
    row = _get_row(scope, name)
    if if_version is not None and row.version != if_version:
        raise VersionConflict(Sentence(
            "the collection is at version %(version)s, not %(if_version)s; read it again and repeat the change",
            version=row.version, if_version=if_version,
        ))
    current = load(scope, name)
    definition = _merge_definition(current, patch)
    _check_targets(definition, _find_target_tables(scope, definition))
    _check_access(CompiledCollection(scope.tenant_id, definition, current.table_name, current.stamp))
    return row, current, definition, changes.plan(current, definition)


def _change_collection(scope: TenantScope, plan: Plan, *, allow_loss: bool) -> dict[str, Any]:
    row, current, definition, steps = plan
    changes.check_loss(steps, allow_loss=allow_loss)
    with db.savepoint():
        stored = changes.apply(current, definition, steps, _find_target_tables(scope, definition)).to_stored()
        if stored != row.definition:
            scope.update(
                Collection,
                definition=stored,
                stamp=secrets.token_hex(8),
                version=row.version + 1,
                updated_at=clock.now_ms(),
            ).where(Collection.name == row.name).execute()
            _check_access_of_related(load(scope, row.name))
            changed = audit.compare(current.definition.document(), from_stored(stored).document())
            audit.record(scope, "collection.change", row.name, {"version": row.version + 1, **changed})
    return get_collection(scope, row.name) | {"steps": [step.document() for step in steps]}


def _merge_definition(current: CompiledCollection, patch: Any) -> CollectionDefinition:
    if not isinstance(patch, Mapping):
        raise ValidationFailed("a change must be an object with the members to change", pointer="")
    if patch.get("name", current.name) != current.name:
        raise ValidationFailed("a collection cannot be renamed, because others refer to it by name", pointer="/name")
    merged = merge_patch(current.definition.document(), patch)
    return parse_collection(merged, current.definition)


def delete_collection(scope: TenantScope, name: str, *, allow_loss: bool = False) -> None:
    """Delete a collection, at once for everybody; Conflict while it has entities (unless `allow_loss`) or others refer to it."""
    db.write(lambda: _delete_collection(scope, name, allow_loss))


def _delete_collection(scope: TenantScope, name: str, allow_loss: bool) -> None:
    collection = load(scope, name)
    users = [user for user in entities.list_referring_fields(collection) if not user.startswith(f"{name}.")]
    if users:
        raise Conflict(
            Sentence("%(users)s refer to the collection %(name)s; change those first", users=", ".join(users), name=name)
        )
    if not allow_loss and db.rows(f'SELECT 1 FROM "{collection.table_name}" LIMIT 1'):  # noqa: S608
        raise Conflict(
            Sentence("the collection %(name)s contains entities; to delete them with it, set allow_loss=true", name=name)
        )
    with db.savepoint():
        removal.delete_collection(scope, collection)
        audit.record(scope, "collection.delete", name)


def drop_tenant_tables(scope: TenantScope) -> None:
    """Drop the tenant's entity tables, inside the write that deletes the tenant; foreign keys do not cascade to them."""
    tables.drop_related_tables(row.table_name for row in scope.select(Collection))


def find_entity(scope: TenantScope, collection: str, entity_id: str) -> dict[str, Any] | None:
    """The entity, or None."""
    with db.snapshot():
        compiled = load(scope, collection)
        row = entities.find_row(compiled, entity_id)
        return None if row is None else compiled.to_view(row)


def get_entity(scope: TenantScope, collection: str, entity_id: str, *, query: Query | None = None) -> dict[str, Any]:
    """The entity, with the `fields` and `expand` of the query; NotFound."""
    with db.snapshot():
        compiled = load(scope, collection)
        entity = compiled.to_view(entities.get_row(compiled, entity_id))
        return queries.to_views(compiled, [entity], query, queries.limited_reader(scope))[0] if query else entity


def query_entities(scope: TenantScope, collection: str, query: Any) -> Page[dict[str, Any]]:
    """One page of entities, or of groups when the query groups or aggregates; `query` is a Query or its JSON.

    TimedOut when it takes longer than `limits.query_seconds`.
    """
    parsed = query if isinstance(query, Query) else queries.parse_query(query)
    with db.snapshot(), db.deadline(in_force.query_seconds):
        compiled = load(scope, collection)
        return aggregate_page(scope, compiled, parsed) if parsed.is_grouped else queries.find_page(scope, compiled, parsed)


def count_entities(scope: TenantScope, collection: str, query: Query, limit: int) -> int:
    """The number of entities that match the query, counted up to `most` + 1."""
    with db.snapshot(), db.deadline(in_force.query_seconds):
        return queries.count_entities(scope, load(scope, collection), query, limit)


def get_title_field(scope: TenantScope, collection: str) -> str | None:
    """The name of the field that serves as the title of an entity of the collection, if any."""
    return field.name if (field := titles.find_title_field(load(scope, collection).definition)) else None


def find_titles(scope: TenantScope, collection: str, entity_ids: Iterable[str]) -> dict[str, str]:
    """The titles by entity id, for the entities that exist and have one."""
    with db.snapshot():
        return titles.find_titles(load(scope, collection), entity_ids)


def matches_filter(scope: TenantScope, collection: str, filter_document: Any, entity: Mapping[str, Any]) -> bool:
    """Whether an entity, as the API returns it, matches a filter over its own fields; InvalidFilter."""
    fields = load(scope, collection).condition_fields
    condition = conditions.bind(conditions.parse(filter_document, _own_fields(fields)), queries.placeholders(scope), fields)
    return conditions.matches(condition, entity, fields)


def check_filter(scope: TenantScope, collection: str, filter_document: Any, pointer: str, *, allow_relations: bool = False) -> None:
    """Raise InvalidFilter when the filter does not fit the collection; NotFound.

    Only an entity's own fields are allowed, as in triggers; with `allow_relations`, relations may be followed, as in queries.
    """
    fields = load(scope, collection).condition_fields
    conditions.parse(filter_document, fields if allow_relations else _own_fields(fields), pointer=pointer)


def _own_fields(fields: Mapping[str, conditions.Field]) -> dict[str, conditions.Field]:
    """The fields without relations to follow: a change event contains its own entity only."""
    return {name: field for name, field in fields.items() if field.inside is None}


def create_entity(scope: TenantScope, collection: str, values: Any) -> dict[str, Any]:
    """Store a new entity; ValidationFailed lists every error."""
    return _perform(scope, collection, {"op": "create", "values": values}).entity


def update_entity(
    scope: TenantScope, collection: str, entity_id: str, values: Any, *, if_version: int | None = None
) -> dict[str, Any]:
    """Merge values into an entity (RFC 7396); if nothing differs, the version stays.  NotFound, VersionConflict."""
    operation = {"op": "update", "id": entity_id, "values": values, "if_version": if_version}
    return _perform(scope, collection, operation).entity


def replace_entity(
    scope: TenantScope, collection: str, entity_id: str, values: Any, *, if_version: int | None = None
) -> dict[str, Any]:
    """Set every field of an entity; omitted fields get their default or null.  NotFound, VersionConflict."""
    operation = {"op": "replace", "id": entity_id, "values": values, "if_version": if_version}
    return _perform(scope, collection, operation).entity


def delete_entity(scope: TenantScope, collection: str, entity_id: str, *, if_version: int | None = None) -> None:
    """Delete an entity; NotFound, VersionConflict, Conflict when other entities refer to it."""
    _perform(scope, collection, {"op": "delete", "id": entity_id, "if_version": if_version})


def upsert_entity(scope: TenantScope, collection: str, document: Any) -> ChangeResult:
    """Create or merge by key, `{key: [field, …], values: {…}}`; Conflict when several entities have that key."""
    if not isinstance(document, Mapping) or document.keys() != {"key", "values"}:
        raise ValidationFailed("an upsert must be {key: [field, …], values: {…}}", pointer="")
    return _perform(scope, collection, {"op": "upsert", **document})


def _perform(scope: TenantScope, collection: str, document: Mapping[str, Any]) -> ChangeResult:
    """Validate on the caller's thread, then write; validates again only if the collection changed meanwhile."""
    compiled = load(scope, collection)
    operation = batch.parse_operation(compiled, document)
    batch.check_quota(scope, [operation])

    def write() -> ChangeResult:
        current = load(scope, collection)
        result = batch.apply(operation if current is compiled else batch.parse_operation(current, document))
        batch.announce(scope, [result])
        return result

    return db.write(write, is_shared=True)


def run_batch(scope: TenantScope, operations: Any, *, dry_run: bool = False) -> list[ChangeResult]:
    """Apply up to 1,000 `{op, collection, id?, key?, values?, if_version?}`, all or none; returns their results in order.

    ValidationFailed lists every error of every operation; a dry run returns the same results and changes nothing.
    """
    parsed = batch.parse_operations(scope, operations)
    batch.check_quota(scope, parsed)

    def write() -> list[ChangeResult]:
        fresh: dict[str, CompiledCollection] = {name: load(scope, name) for name in {o.collection.name for o in parsed}}
        stale = any(fresh[operation.collection.name] is not operation.collection for operation in parsed)
        return batch.run(scope, batch.parse_operations(scope, operations) if stale else parsed, dry_run=dry_run)

    return db.write(write, is_shared=True)


def import_entities(scope: TenantScope, collection: str, file: BinaryIO, options: ImportOptions) -> ImportReport:
    """Store the rows of a CSV or NDJSON file; the report counts every row and names every error by line and field."""
    return imports.import_rows(scope, collection, file, options)


def export_entities(
    scope: TenantScope, collection: str, form: Literal["csv", "ndjson"], *, filter_document: Any = None
) -> Iterator[bytes]:
    """The entities that match the filter `chosen` (default: all), oldest first, as chunks of one file."""
    with db.snapshot():
        yield from exports.export_rows(scope, load(scope, collection), form, filter_document or {})


def list_entity_history(scope: TenantScope, collection: str, entity_id: str, request: PageRequest) -> Page[Change]:
    """The changes of an entity, newest first, also of a deleted one; NotFound when there never was such an entity."""
    compiled = load(scope, collection)
    page = history.list_changes(compiled, entity_id, request) if entities.is_entity_id(entity_id) else Page([])
    if not page.items and not request.cursor:
        entities.get_row(compiled, entity_id)
    return page


def find_entity_version(scope: TenantScope, collection: str, entity_id: str, version: int) -> Change | None:
    """The change that produced this version of an entity, or None when the history no longer has it."""
    return history.find_version(load(scope, collection), entity_id, version)


def list_changes_after(scope: TenantScope, collection: str, number: int, limit: int = 100) -> list[Change]:
    """The collection's changes after the change `number`, oldest first."""
    return history.list_changes_after(load(scope, collection), number, limit)


def get_last_change(scope: TenantScope, collection: str) -> int:
    """The number of the collection's newest change; 0 when there is none."""
    return history.get_last_number(load(scope, collection))


def delete_history_before(before_ms: int) -> int:
    """Retention: delete every tenant's changes older than this time; returns how many."""
    return history.delete_changes_before(before_ms)


def _to_view(row: Collection) -> dict[str, Any]:
    return {
        **from_stored(row.definition).document(),
        "created_at": clock.rfc3339(row.created_at),
        "updated_at": clock.rfc3339(row.updated_at),
        "_version": row.version,
    }
