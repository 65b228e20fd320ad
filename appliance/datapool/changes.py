"""Plans a change of a collection's definition, with its effect on existing entities, and applies it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from appliance.core.database import db
from appliance.core.errors import Detail, ValidationFailed
from appliance.core.sentences import Sentence
from appliance.datapool import tables
from appliance.datapool.compiled import CompiledCollection, compile_field
from appliance.datapool.definition import ACCESS_VERBS, CollectionDefinition, FieldDefinition, Findings
from appliance.datapool.field_types import FIELD_TYPES, InvalidValue, get_scale, to_text

BATCH_SIZE = 1_000


@dataclass
class Change:
    """One step of the plan: `lost` counts values that disappear; `blocked` counts entities that make the step impossible."""

    name: str
    change: str
    message: str
    lost: int = 0
    blocked: int = 0
    before: FieldDefinition | None = None
    after: FieldDefinition | None = None
    converted: dict[str, Any] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        return {
            "field": self.name,
            "change": self.change,
            "message": self.message,
            "lost": self.lost,
            "blocked": self.blocked,
        }


def plan(current: CompiledCollection, definition: CollectionDefinition) -> list[Change]:
    """The steps that turn the collection into the new definition.  Reads the entities; changes nothing."""
    steps: list[Change] = []
    remaining = {new.id for new in definition.fields}
    for old in current.definition.fields:
        if old.id not in remaining:
            lost = _count(current, f'"{old.column}" IS NOT NULL')
            steps.append(Change(old.name, "drop", f"the field is removed, with its values in {lost} entities", lost, before=old))
    for new in definition.fields:
        before = current.definition.find_field(new.id)
        steps += _add_steps(current, new) if before is None else _alter_steps(current, before, new)
    added = {step.after.id for step in steps if step.change == "add" and step.after}
    steps += [*_unique_steps(current, definition, added), *_index_steps(current, definition)]
    return [*steps, *_access_steps(current.definition.document()["access"], definition.document()["access"])]


def _access_steps(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Change]:
    for verb in ACCESS_VERBS:
        if before[verb] != after[verb]:
            rules = [rule if isinstance(rule, str) else to_text(rule)[:500] for rule in (before[verb], after[verb])]
            yield Change("access", "access", f"{verb} changes from {rules[0]} to {rules[1]}")


def _add_steps(current: CompiledCollection, after: FieldDefinition) -> list[Change]:
    existing = _count(current, "1 = 1")
    blocked = existing if after.required and after.default is None else 0
    message = f"{existing} entities need a value: set a default or make the field optional" if blocked else "the field is added"
    return [Change(after.name, "add", message, blocked=blocked, after=after)]


def _alter_steps(current: CompiledCollection, before: FieldDefinition, after: FieldDefinition) -> Iterator[Change]:
    if before.name != after.name:
        yield Change(after.name, "rename", f"{before.name} is renamed to {after.name}", before=before, after=after)
    if (before.type, before.options) != (after.type, after.options):
        yield _conversion_step(current, before, after)
    if after.required and not before.required:
        missing = _count(current, f'"{before.column}" IS NULL')
        blocked = missing if after.default is None else 0
        message = f"{missing} entities have no value" + (
            ": set a default or add the values first" if blocked else "; they get the default"
        )
        yield Change(after.name, "require", message, blocked=blocked, before=before, after=after)


def _conversion_step(current: CompiledCollection, before: FieldDefinition, after: FieldDefinition) -> Change:
    """Convert every value by formatting it with the old type and parsing it with the new one."""
    parse, change = (
        FIELD_TYPES[after.type].build_parser(after.options),
        Change(after.name, "convert", "", before=before, after=after),
    )
    format_value = FIELD_TYPES[before.type].build_formatter(before.options)
    total = 0
    for entity_id, stored in _iterate_values(current, before.column):
        total += 1
        value = format_value(stored) if format_value else stored
        try:
            converted = parse(value if before.type == after.type else FIELD_TYPES[after.type].parse_cell(to_text(value)))
        except InvalidValue:
            converted = None
            change.lost += 1
        if converted != stored or not _same_storage(before, after):
            change.converted[entity_id] = converted
    if after.type == "relation" and (before.type != "relation" or before.options != after.options):
        change.lost = change.blocked = total
    unfit = f"; {change.lost} cannot be converted" if change.lost else ""
    change.message = f"{_count_values(total, 'is', 'are')} converted to {after.type}{unfit}"
    if change.lost and after.required:
        change.blocked = change.lost
        change.message += " and the field is required: correct them first"
    return change


def _same_storage(before: FieldDefinition, after: FieldDefinition) -> bool:
    if before.type == "decimal" and after.type == "decimal":
        return get_scale(before.options) == get_scale(after.options)
    texts = ("text", "select", "email", "url")
    return before.type == after.type or (before.type in texts and after.type in texts)


def _unique_steps(current: CompiledCollection, definition: CollectionDefinition, added: set[str]) -> Iterator[Change]:
    before = {tuple(f.id for f in group) for group in tables.unique_groups(current.definition)}
    for group in tables.unique_groups(definition):
        if tuple(f.id for f in group) in before or any(f.id in added for f in group):
            continue
        columns = ", ".join(f'"{f.column}"' for f in group)
        present = " AND ".join(f'"{f.column}" IS NOT NULL' for f in group)
        groups = f'SELECT 1 FROM "{current.table_name}" WHERE {present} GROUP BY {columns} HAVING COUNT(*) > 1'  # noqa: S608
        sql = f"SELECT COUNT(*) FROM ({groups}) AS doubles"  # noqa: S608
        duplicates = int(db.rows(sql)[0][0])
        names = " and ".join(f.name for f in group)
        not_unique = f"{_count_values(duplicates, 'occurs', 'occur')} more than once: correct them first"
        message = not_unique if duplicates else f"{names} becomes unique"
        yield Change(names, "unique", message, blocked=duplicates)


def _index_steps(current: CompiledCollection, definition: CollectionDefinition) -> Iterator[Change]:
    before, room = tables.max_indexed_bytes(current.definition), tables.max_indexed_bytes(definition)
    for new in definition.fields:
        old = current.definition.find_field(new.id)
        if old is None or old.type != new.type or FIELD_TYPES[new.type].kind != "text":
            continue
        limit = room.get(new.column)
        if limit is not None and limit < before.get(old.column, limit + 1):
            blocked = _count(current, f'LENGTH("{old.column}") > {limit // 4}')
            message = f"{blocked} values are too long for an index: shorten them to {limit // 4} characters first"
            if blocked:
                yield Change(new.name, "index", message, blocked=blocked)


def _count(current: CompiledCollection, where: str) -> int:
    return int(db.rows(f'SELECT COUNT(*) FROM "{current.table_name}" WHERE {where}')[0][0])  # noqa: S608


def _iterate_values(current: CompiledCollection, column: str) -> Iterator[tuple[str, Any]]:
    """The id and the value of every entity that has one, read in batches."""
    last = ""
    table = current.table_name
    sql = f'SELECT id, "{column}" FROM "{table}" WHERE "{column}" IS NOT NULL AND id > ? ORDER BY id LIMIT ?'  # noqa: S608
    while page := db.rows(sql, (last, BATCH_SIZE)):
        yield from ((row[0], row[1]) for row in page)
        last = page[-1][0]


def check_loss(steps: list[Change], *, allow_loss: bool) -> None:
    """Raise ValidationFailed when a step is blocked, or would lose values without `allow_loss`."""
    findings = Findings()
    findings.details += [Detail(f"/fields/{step.name}", "blocked", step.message) for step in steps if step.blocked]
    if not allow_loss:
        findings.details += [
            Detail(f"/fields/{step.name}", "would_lose_data", step.message) for step in steps if step.lost and not step.blocked
        ]
    if findings.details:
        raise ValidationFailed(
            Sentence(
                "the change was rejected and nothing was changed: %(message)s. Preview the steps with dry_run=true; "
                "accept the loss of values with allow_loss=true",
                message=findings.details[0].message,
            ),
            details=findings.details,
        )


def apply(
    current: CompiledCollection, definition: CollectionDefinition, steps: list[Change], targets: Mapping[str, str]
) -> CollectionDefinition:
    """Apply the steps inside a write; returns the definition with the columns that now hold the fields."""
    table = current.table_name
    definition = _with_new_columns(definition, steps, current.definition)
    columns = {entry.id: entry.column for entry in definition.fields}
    columns_in_use = set(columns.values())
    old, new = tables.index_columns(current.definition), tables.index_columns(definition)
    tables.drop_indexes(table, {key: unique for key, unique in old.items() if new.get(key) != unique})
    for entry in definition.fields:
        if entry.column not in {previous.column for previous in current.definition.fields}:
            tables.add_column(table, entry, targets)
    for step in steps:
        _convert_values(table, step, columns)
    for previous in current.definition.fields:
        if previous.column not in columns_in_use:
            tables.drop_column(table, previous.column)
    tables.create_indexes(table, {key: unique for key, unique in new.items() if old.get(key) != unique})
    return definition


def _with_new_columns(definition: CollectionDefinition, steps: list[Change], current: CollectionDefinition) -> CollectionDefinition:
    """The definition with a new column for each field whose conversion changes its storage."""
    next_number = max(int(entry.column[1:]) for entry in (*current.fields, *definition.fields)) + 1
    fields = []
    new_column_ids = {step.after.id for step in steps if step.change == "convert" and step.after and _needs_new_column(step)}
    for entry in definition.fields:
        if entry.id in new_column_ids:
            fields.append(replace(entry, column=f"c{next_number}"))
            next_number += 1
        else:
            fields.append(entry)
    return replace(definition, fields=tuple(fields))


def _needs_new_column(step: Change) -> bool:
    if step.before is None or step.after is None:
        return False
    return step.after.type == "relation" or not _same_storage(step.before, step.after)


def _convert_values(table: str, step: Change, columns: Mapping[str, str]) -> None:
    if step.after is None:
        return
    column = columns[step.after.id]
    for entity_id, value in step.converted.items():
        db.execute(f'UPDATE "{table}" SET "{column}" = ? WHERE id = ?', (value, entity_id))  # noqa: S608
    if step.change in ("add", "require") and step.after.default is not None:
        value = compile_field(step.after).default()
        db.execute(f'UPDATE "{table}" SET "{column}" = ? WHERE "{column}" IS NULL', (value,))  # noqa: S608


def _count_values(count: int, one: str, many: str) -> str:
    """`1 value occurs`, `2 values occur`."""
    return f"1 value {one}" if count == 1 else f"{count} values {many}"
