"""Batches of changes: all are applied or none, every error is reported, results keep the order of the operations."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from appliance.blobs import quota
from appliance.core.database import db
from appliance.core.errors import ApplianceError, Conflict, InvalidRequest, NotFound, ValidationFailed, VersionConflict
from appliance.core.events import hub
from appliance.core.patches import merge_patch
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.datapool import entities, entity_quota, history
from appliance.datapool.compiled import CompiledCollection, is_valid_value, load
from appliance.datapool.definition import Findings
from appliance.datapool.entities import ChangeResult, ConstraintBroken

MAX_OPERATIONS = 1_000
_ALLOWED_MEMBERS = {
    "create": frozenset({"op", "collection", "values"}),
    "update": frozenset({"op", "collection", "id", "values", "if_version"}),
    "upsert": frozenset({"op", "collection", "key", "values"}),
    "delete": frozenset({"op", "collection", "id", "if_version"}),
}
_REQUIRED = {"create": ("values",), "update": ("id", "values"), "upsert": ("key", "values"), "delete": ("id",)}
_TYPES = {"id": str, "values": Mapping, "key": list, "if_version": int}


class _DryRun(Exception):
    """Rolls back the savepoint of a dry run."""


class _Retry(Exception):
    """The fast path met an error; run the operations one by one to collect every error."""


@dataclass
class Operation:
    """One parsed change, validated as far as possible without reading entities.

    `stored` holds the values of every field for a create, otherwise only the changed ones, in their stored form.
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
        """The JSON pointer of the values within the request."""
        return f"{self.pointer}/values" if self.pointer or self.op == "upsert" else ""


def parse_operations(scope: TenantScope, document: Any) -> list[Operation]:
    """Parse the operations of a request; ValidationFailed lists every error of every operation."""
    if not isinstance(document, list) or not 1 <= len(document) <= MAX_OPERATIONS:
        raise ValidationFailed(
            Sentence(
                "operations must be a list of 1 to %(max_operations)s operations; split larger batches",
                max_operations=MAX_OPERATIONS,
            ),
            pointer="/operations",
        )
    findings = Findings()
    collections: dict[str, CompiledCollection | None] = {}
    operations = []
    for index, entry in enumerate(document):
        pointer = f"/operations/{index}"
        if not _is_well_formed(entry, findings, pointer):
            continue
        name = entry["collection"]
        if name not in collections:
            collections[name] = _find_collection(scope, name)
        collection = collections[name]
        if collection is None:
            findings.add(f"{pointer}/collection", "not_found", f"there is no collection {name[:80]!r} here")
        else:
            operations.append(_parse_operation(entry, collection, findings, pointer))
    findings.raise_if_any("the batch was rejected and nothing was changed")
    return operations


def _find_collection(scope: TenantScope, name: str) -> CompiledCollection | None:
    try:
        return load(scope, name)
    except NotFound:
        return None


def _is_well_formed(entry: Any, findings: Findings, pointer: str) -> bool:
    before = len(findings.details)
    op = entry.get("op") if isinstance(entry, Mapping) else None
    if not isinstance(op, str) or op not in _ALLOWED_MEMBERS:
        findings.add(f"{pointer}/op", "not_an_option", f"must be one of {', '.join(_ALLOWED_MEMBERS)}")
        return False
    for member in entry.keys() - _ALLOWED_MEMBERS[op]:
        findings.add(f"{pointer}/{member}", "unknown_member", f"is not a member of {op}")
    for member in ("collection", *_REQUIRED[op]):
        if member not in entry:
            findings.add(f"{pointer}/{member}", "required", "is required")
    if not isinstance(entry.get("collection", ""), str):
        findings.add(f"{pointer}/collection", "wrong_type", "must be the name of a collection")
    for member, kind in _TYPES.items():
        value = entry.get(member)
        if value is not None and (not isinstance(value, kind) or isinstance(value, bool)):
            findings.add(f"{pointer}/{member}", "wrong_type", "has the wrong type")
    return len(findings.details) == before


def _parse_operation(entry: Mapping[str, Any], collection: CompiledCollection, findings: Findings, pointer: str) -> Operation:
    op = entry["op"]
    operation = Operation(op, collection, pointer, entry.get("values") or {}, if_version=entry.get("if_version"))
    operation.id = entry.get("id") or ""
    if op == "create":
        operation.stored = collection.parse_new(operation.values, findings, operation.inner)
    elif op in ("update", "upsert"):
        operation.stored = collection.parse_changes(operation.values, findings, operation.inner)
    if op == "upsert":
        operation.key = parse_key(entry["key"], operation, findings)
    return operation


def parse_operation(collection: CompiledCollection, document: Mapping[str, Any]) -> Operation:
    """Parse a single operation; error pointers are relative to its values.  ValidationFailed lists every error.

    When a value is invalid, constraints are checked here as well, so that one response reports everything.
    """
    findings = Findings()
    values = document.get("values", {})
    operation = Operation(document["op"], collection, "", if_version=document.get("if_version"))
    operation.id = str(document.get("id", ""))
    if operation.op in ("create", "replace"):
        operation.stored = collection.parse_new(values, findings, operation.inner)
    elif operation.op in ("update", "upsert"):
        operation.stored = collection.parse_changes(values, findings, operation.inner)
    operation.values = values if isinstance(values, Mapping) else {}
    if operation.op == "upsert":
        operation.key = parse_key(document["key"], operation, findings)
    if findings.details and isinstance(values, Mapping):
        entities.find_broken_constraints(collection, operation.id, _valid_values(operation), (findings, operation.inner))
    findings.raise_if_any(f"the entity cannot be stored in {collection.name}")
    return operation


def _valid_values(operation: Operation) -> dict[str, Any]:
    """The valid values by column."""
    fields = operation.collection.fields
    stored = operation.stored
    by_name = stored if isinstance(stored, dict) else dict(zip(fields, stored, strict=True))
    return {fields[name].definition.column: value for name, value in by_name.items() if is_valid_value(value)}


def parse_key(names: Any, operation: Operation, findings: Findings) -> tuple[str, ...]:
    """Parse the key of an upsert: the fields that identify the entity.  Adds an error for each one without a value."""
    pointer = f"{operation.pointer}/key"
    if not isinstance(names, list) or not names:
        findings.add(pointer, "required", "must name at least one field")
        return ()
    for index, name in enumerate(names):
        if not isinstance(name, str) or name not in operation.collection.fields:
            findings.add(f"{pointer}/{index}", "unknown_field", "must name a field of the collection")
        elif operation.values.get(name) is None:
            findings.add(f"{operation.inner}/{name}", "required", "is part of the key and needs a value")
    return tuple(str(name) for name in names)


def check_quota(scope: TenantScope, operations: Sequence[Operation]) -> None:
    """Before a write: raise StorageFull when the tenant has used up its quota.  Deleting is always possible."""
    if any(operation.op != "delete" for operation in operations):
        check_room(scope)


def check_room(scope: TenantScope) -> None:
    """Before a write that adds something: raise StorageFull when the tenant has used up its storage."""
    quota.refuse_full(scope)
    entity_quota.prepare(scope)


def apply(operation: Operation) -> ChangeResult:
    """Apply one operation inside a write."""
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
    """The changes in stored form; an object for a json field is merged into its current value (RFC 7396)."""
    stored: dict[str, Any] = dict(operation.stored)
    for name, value in operation.values.items():
        compiled_field = collection.fields[name]
        if compiled_field.definition.type == "json" and isinstance(value, Mapping):
            current = row[compiled_field.position]
            stored[name] = compiled_field.parse(
                merge_patch(compiled_field.format(current) if compiled_field.format and current else None, value)
            )
    return stored


def _upsert(operation: Operation) -> ChangeResult:
    collection = operation.collection
    columns = [collection.fields[name].definition.column for name in operation.key]
    where = " AND ".join(f'"{column}" = ?' for column in columns)
    sql = f"{collection.select_sql} WHERE {where} LIMIT 2{db.row_lock()}"
    matches = db.rows(sql, tuple(operation.stored[name] for name in operation.key))
    if len(matches) > 1:
        raise Conflict(
            Sentence(
                "more than one entity of %(name)s has this %(key)s; use a unique field as the key",
                name=collection.name, key=", ".join(operation.key),
            ),
            pointer="/key",
        )
    if matches:
        row = list(matches[0])
        return entities.change(collection, row, merge_json(collection, row, operation), operation.inner)
    db.require_exclusive()  # Others may be creating it.
    findings = Findings()
    stored = collection.parse_new(operation.values, findings, operation.inner)
    findings.raise_if_any(f"the entity cannot be stored in {collection.name}")
    return entities.create(collection, stored, operation.inner)


def run(scope: TenantScope, operations: Sequence[Operation], *, dry_run: bool = False) -> list[ChangeResult]:
    """Apply all operations or none, inside a write; ValidationFailed (or VersionConflict) lists every one that failed."""
    results: list[ChangeResult] = []
    try:
        with db.savepoint():
            results = _run_fast(operations)
            if dry_run:
                raise _DryRun
    except _DryRun:
        return results
    except _Retry:
        _raise_errors(_collect_errors(operations))
    announce(scope, results)
    return results


def announce(scope: TenantScope, results: Sequence[ChangeResult]) -> None:
    """Record the changes in the history and publish them; called inside the write, once the changes are final."""
    history.record_changes(scope, results)
    changes = [result for result in results if result.event != "unchanged"]
    if changes:
        hub.publish(entities.EntitiesChanged(scope, changes))


def run_each(operations: Sequence[Operation]) -> list[ChangeResult | ApplianceError]:
    """Apply each operation independently, inside a write; one that fails is returned as its error.

    The caller passes the successful results to `announce`.
    """
    try:
        with db.savepoint():
            return list(_run_fast(operations))
    except _Retry:
        return [_attempt(operation) for operation in operations]


def _attempt(operation: Operation) -> ChangeResult | ApplianceError:
    try:
        with db.savepoint():
            return apply(operation)
    except ApplianceError as error:
        return error


def _run_fast(operations: Sequence[Operation]) -> list[ChangeResult]:
    """Apply the operations, with consecutive creates in one collection as a single statement; `_Retry` on the first error."""
    results: list[ChangeResult] = []
    start = 0
    try:
        while start < len(operations):
            end = start + 1
            if operations[start].op == "create":
                while end < len(operations) and _can_join(operations[start], operations[end]):
                    end += 1
                results += _create_all(operations[start:end])
            else:
                results.append(apply(operations[start]))
            start = end
    except (ApplianceError, ConstraintBroken) as error:
        raise _Retry from error
    return results


def _can_join(first: Operation, following: Operation) -> bool:
    return following.op == "create" and following.collection is first.collection


def _create_all(operations: Sequence[Operation]) -> list[ChangeResult]:
    collection = operations[0].collection
    rows = [entities.new_row(operation.stored) for operation in operations]
    entities.insert_rows(collection, rows)
    return [ChangeResult("created", collection.name, collection.table_name, collection.to_view(row)) for row in rows]


def _collect_errors(operations: Sequence[Operation]) -> list[tuple[Operation, ApplianceError]]:
    """Apply the operations one by one to collect every error, then roll all of them back."""
    errors: list[tuple[Operation, ApplianceError]] = []
    try:
        with db.savepoint():
            for operation in operations:
                result = _attempt(operation)
                if isinstance(result, ApplianceError):
                    errors.append((operation, result))
            raise _DryRun
    except _DryRun:
        return errors


def _raise_errors(errors: Sequence[tuple[Operation, ApplianceError]]) -> None:
    if not errors:
        db.require_exclusive()
        raise InvalidRequest("the batch collided with a concurrent change; send it again")
    findings = Findings()
    for operation, error in errors:
        prefix = "" if isinstance(error, ValidationFailed) else operation.pointer
        for detail in error.details:
            findings.add(f"{prefix}{detail.pointer}", detail.code, detail.message)
        if not error.details:
            findings.add(operation.pointer, error.code, error.message)
    if all(isinstance(error, VersionConflict) for _, error in errors):
        raise VersionConflict("the batch was rejected and nothing was changed", details=findings.details)
    findings.raise_if_any("the batch was rejected and nothing was changed")
