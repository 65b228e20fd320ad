"""Many changes as one: all happen or none, every error is reported, answers come in order."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from appliance.blobs import quota
from appliance.core.database import db
from appliance.core.errors import ApplianceError, Conflict, InvalidRequest, NotFound, ValidationFailed, VersionConflict
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.datapool import entities, history
from appliance.datapool.compiled import CompiledCollection, is_read, load
from appliance.datapool.definition import Findings
from appliance.datapool.entities import ConstraintBroken, Outcome

MAX_OPERATIONS = 1_000
_MEMBERS = {
    "create": frozenset({"op", "collection", "values"}),
    "update": frozenset({"op", "collection", "id", "values", "if_version"}),
    "upsert": frozenset({"op", "collection", "key", "values"}),
    "delete": frozenset({"op", "collection", "id", "if_version"}),
}
_REQUIRED = {"create": ("values",), "update": ("id", "values"), "upsert": ("key", "values"), "delete": ("id",)}
_TYPES = {"id": str, "values": Mapping, "key": list, "if_version": int}


class _DryRun(Exception):
    """Takes back what a dry run has done."""


class _Retry(Exception):
    """The quick way met an error: go again, carefully, to find all of them."""


@dataclass
class Operation:
    """One change, checked as far as that needs no entity.

    `stored` is a whole entity's values for create, otherwise the stored forms of the values given.
    """

    op: str
    collection: CompiledCollection
    pointer: str
    values: Mapping[str, Any] = field(default_factory=dict)
    stored: Any = None
    id: str = ""
    key: tuple[str, ...] = ()
    if_version: int | None = None

    @property
    def inner(self) -> str:
        """Where the values are in what the caller sent."""
        return f"{self.pointer}/values" if self.pointer or self.op == "upsert" else ""


def read_operations(scope: TenantScope, document: Any) -> list[Operation]:
    """The operations a caller wrote; ValidationFailed lists everything wrong with any of them."""
    if not isinstance(document, list) or not 1 <= len(document) <= MAX_OPERATIONS:
        raise ValidationFailed(
            Sentence(
                "operations must be a list of 1 to %(max_operations)s operations; send more in further batches",
                max_operations=MAX_OPERATIONS,
            ),
            pointer="/operations",
        )
    found = Findings()
    collections: dict[str, CompiledCollection | None] = {}
    operations = []
    for index, entry in enumerate(document):
        pointer = f"/operations/{index}"
        if not _is_well_formed(entry, found, pointer):
            continue
        name = entry["collection"]
        if name not in collections:
            collections[name] = _find_collection(scope, name)
        collection = collections[name]
        if collection is None:
            found.add(f"{pointer}/collection", "not_found", f"there is no collection {name[:80]!r} here")
        else:
            operations.append(_read(entry, collection, found, pointer))
    found.raise_if_any("the batch was refused and nothing was changed")
    return operations


def _find_collection(scope: TenantScope, name: str) -> CompiledCollection | None:
    try:
        return load(scope, name)
    except NotFound:
        return None


def _is_well_formed(entry: Any, found: Findings, pointer: str) -> bool:
    before = len(found.details)
    op = entry.get("op") if isinstance(entry, Mapping) else None
    if not isinstance(op, str) or op not in _MEMBERS:
        found.add(f"{pointer}/op", "not_an_option", f"must be one of {', '.join(_MEMBERS)}")
        return False
    for member in entry.keys() - _MEMBERS[op]:
        found.add(f"{pointer}/{member}", "unknown_member", f"is not a member of {op}")
    for member in ("collection", *_REQUIRED[op]):
        if member not in entry:
            found.add(f"{pointer}/{member}", "required", "is required")
    if not isinstance(entry.get("collection", ""), str):
        found.add(f"{pointer}/collection", "wrong_type", "must be the name of a collection")
    for member, kind in _TYPES.items():
        value = entry.get(member)
        if value is not None and (not isinstance(value, kind) or isinstance(value, bool)):
            found.add(f"{pointer}/{member}", "wrong_type", "has the wrong type")
    return len(found.details) == before


def _read(entry: Mapping[str, Any], collection: CompiledCollection, found: Findings, pointer: str) -> Operation:
    op = entry["op"]
    operation = Operation(op, collection, pointer, entry.get("values") or {}, if_version=entry.get("if_version"))
    operation.id = entry.get("id") or ""
    if op == "create":
        operation.stored = collection.read_new(operation.values, found, operation.inner)
    elif op in ("update", "upsert"):
        operation.stored = collection.read_changes(operation.values, found, operation.inner)
    if op == "upsert":
        operation.key = read_key(entry["key"], operation, found)
    return operation


def read_single(collection: CompiledCollection, document: Mapping[str, Any]) -> Operation:
    """One operation on its own, with pointers into its values; ValidationFailed lists everything that is wrong.

    Broken constraints are looked for at once when something else is wrong, so that one answer tells all.
    """
    found = Findings()
    values = document.get("values", {})
    operation = Operation(document["op"], collection, "", if_version=document.get("if_version"))
    operation.id = str(document.get("id", ""))
    if operation.op in ("create", "replace"):
        operation.stored = collection.read_new(values, found, operation.inner)
    elif operation.op in ("update", "upsert"):
        operation.stored = collection.read_changes(values, found, operation.inner)
    operation.values = values if isinstance(values, Mapping) else {}
    if operation.op == "upsert":
        operation.key = read_key(document["key"], operation, found)
    if found.details and isinstance(values, Mapping):
        entities.find_broken_constraints(collection, operation.id, _usable(operation), (found, operation.inner))
    found.raise_if_any(f"the entity cannot be stored in {collection.name}")
    return operation


def _usable(operation: Operation) -> dict[str, Any]:
    """The values that could be read, by column."""
    fields = operation.collection.fields
    stored = operation.stored
    by_name = stored if isinstance(stored, dict) else dict(zip(fields, stored, strict=True))
    return {fields[name].definition.column: value for name, value in by_name.items() if is_read(value)}


def read_key(names: Any, operation: Operation, found: Findings) -> tuple[str, ...]:
    """The fields that identify an entity in an upsert; each has a value."""
    pointer = f"{operation.pointer}/key"
    if not isinstance(names, list) or not names:
        found.add(pointer, "required", "must name at least one field")
        return ()
    for index, name in enumerate(names):
        if not isinstance(name, str) or name not in operation.collection.fields:
            found.add(f"{pointer}/{index}", "unknown_field", "must name a field of the collection")
        elif operation.values.get(name) is None:
            found.add(f"{operation.inner}/{name}", "required", "is part of the key and needs a value")
    return tuple(str(name) for name in names)


def refuse_full(scope: TenantScope, operations: Sequence[Operation]) -> None:
    """Before a write: StorageFull when the tenant stores as much as it may; deleting goes on."""
    if any(operation.op != "delete" for operation in operations):
        quota.refuse_full(scope)


def perform(operation: Operation) -> Outcome:
    """Do one operation inside a write."""
    collection = operation.collection
    if operation.op == "create":
        return entities.create(collection, operation.stored, operation.inner)
    if operation.op == "upsert":
        return _upsert(operation)
    row = entities.get_row(collection, operation.id, operation.if_version)
    if operation.op == "delete":
        return entities.delete(collection, row)
    if operation.op == "replace":
        return entities.change(collection, row, dict(zip(collection.fields, operation.stored, strict=True)), operation.inner)
    return entities.change(collection, row, merge_json(collection, row, operation), operation.inner)


def merge_json(collection: CompiledCollection, row: list[Any], operation: Operation) -> dict[str, Any]:
    """The stored changes; an object for a json field is merged into the one that is there (RFC 7396)."""
    stored: dict[str, Any] = dict(operation.stored)
    for name, value in operation.values.items():
        known = collection.fields[name]
        if known.definition.type == "json" and isinstance(value, Mapping):
            current = row[known.position]
            stored[name] = known.read(merge(known.show(current) if known.show and current else None, value))
    return stored


def merge(current: Any, patch: Any) -> Any:
    """RFC 7396: objects merge, null removes, anything else replaces."""
    if not isinstance(patch, Mapping):
        return patch
    merged = dict(current) if isinstance(current, Mapping) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = merge(merged.get(name), value)
    return merged


def _upsert(operation: Operation) -> Outcome:
    collection = operation.collection
    columns = [collection.fields[name].definition.column for name in operation.key]
    where = " AND ".join(f'"{column}" = ?' for column in columns)
    found_rows = db.rows(f"{collection.select_sql} WHERE {where} LIMIT 2", tuple(operation.stored[name] for name in operation.key))
    if len(found_rows) > 1:
        raise Conflict(
            Sentence(
                "more than one entity of %(name)s has this %(key)s; use a key that is unique, best one that is declared so",
                name=collection.name, key=", ".join(operation.key),
            ),
            pointer="/key",
        )
    if found_rows:
        row = list(found_rows[0])
        return entities.change(collection, row, merge_json(collection, row, operation), operation.inner)
    findings = Findings()
    stored = collection.read_new(operation.values, findings, operation.inner)
    findings.raise_if_any(f"the entity cannot be stored in {collection.name}")
    return entities.create(collection, stored, operation.inner)


def run(scope: TenantScope, operations: Sequence[Operation], *, dry_run: bool = False) -> list[Outcome]:
    """All operations or none, inside a write; a ValidationFailed (or VersionConflict) lists every failed one."""
    outcomes: list[Outcome] = []
    try:
        with db.savepoint():
            outcomes = _run_quickly(operations)
            if dry_run:
                raise _DryRun
    except _DryRun:
        return outcomes
    except _Retry:
        _report(_run_carefully(operations))
    announce(scope, outcomes)
    return outcomes


def announce(scope: TenantScope, outcomes: Sequence[Outcome]) -> None:
    """Inside the write, once it is certain that the changes stay: keep them in the history and tell the listeners."""
    history.record(scope, outcomes)
    entities.tell_listeners(scope, outcomes)


def run_each(operations: Sequence[Operation]) -> list[Outcome | ApplianceError]:
    """Every operation on its own, inside a write: what fails is answered as its error, the others stay.

    The caller announces what it keeps.
    """
    try:
        with db.savepoint():
            return list(_run_quickly(operations))
    except _Retry:
        return [_attempt(operation) for operation in operations]


def _attempt(operation: Operation) -> Outcome | ApplianceError:
    try:
        with db.savepoint():
            return perform(operation)
    except ApplianceError as error:
        return error


def _run_quickly(operations: Sequence[Operation]) -> list[Outcome]:
    """Runs of creates in one collection become one statement; the first error ends it."""
    outcomes: list[Outcome] = []
    start = 0
    try:
        while start < len(operations):
            end = start + 1
            if operations[start].op == "create":
                while end < len(operations) and _continues(operations[start], operations[end]):
                    end += 1
                outcomes += _create_all(operations[start:end])
            else:
                outcomes.append(perform(operations[start]))
            start = end
    except (ApplianceError, ConstraintBroken) as error:
        raise _Retry from error
    return outcomes


def _continues(first: Operation, following: Operation) -> bool:
    return following.op == "create" and following.collection is first.collection


def _create_all(operations: Sequence[Operation]) -> list[Outcome]:
    collection = operations[0].collection
    rows = [entities.new_row(operation.stored) for operation in operations]
    entities.insert_rows(collection, rows)
    return [Outcome("created", collection.name, collection.table_name, collection.show(row)) for row in rows]


def _run_carefully(operations: Sequence[Operation]) -> list[tuple[Operation, ApplianceError]]:
    """Every operation on its own, to learn all errors; nothing stays."""
    errors: list[tuple[Operation, ApplianceError]] = []
    try:
        with db.savepoint():
            for operation in operations:
                outcome = _attempt(operation)
                if isinstance(outcome, ApplianceError):
                    errors.append((operation, outcome))
            raise _DryRun
    except _DryRun:
        return errors


def _report(errors: Sequence[tuple[Operation, ApplianceError]]) -> None:
    if not errors:
        raise InvalidRequest("the batch met a change of another writer; send it again")
    found = Findings()
    for operation, error in errors:
        outer = "" if isinstance(error, ValidationFailed) else operation.pointer
        for detail in error.details:
            found.add(f"{outer}{detail.pointer}", detail.code, detail.message)
        if not error.details:
            found.add(operation.pointer, error.code, error.message)
    if all(isinstance(error, VersionConflict) for _, error in errors):
        raise VersionConflict("the batch was refused and nothing was changed", details=found.details)
    found.raise_if_any("the batch was refused and nothing was changed")
