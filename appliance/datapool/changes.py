"""Changes of a collection's definition: what each means for the entities that exist, and doing it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from appliance.core.database import db
from appliance.core.errors import Detail, ValidationFailed
from appliance.core.sentences import Sentence
from appliance.datapool import tables
from appliance.datapool.compiled import CompiledCollection, compile_field
from appliance.datapool.definition import ACCESS_VERBS, CollectionDefinition, FieldDefinition, Findings
from appliance.datapool.field_types import FIELD_TYPES, Refused, scale_of, to_text

READ_AT_ONCE = 1_000


@dataclass
class Change:
    """One thing that changes: `lost` values disappear, `blocked` entities stand in its way whatever is allowed."""

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


def plan(current: CompiledCollection, wanted: CollectionDefinition) -> list[Change]:
    """What has to happen so that the collection becomes the wanted one; reads the entities, changes nothing."""
    steps: list[Change] = []
    remaining = {known.id for known in wanted.fields}
    for known in current.definition.fields:
        if known.id not in remaining:
            lost = _count(current, f'"{known.column}" IS NOT NULL')
            steps.append(Change(known.name, "drop", f"the field goes, with its values in {lost} entities", lost, before=known))
    for after in wanted.fields:
        before = current.definition.field_by_id(after.id)
        steps += _added(current, after) if before is None else _altered(current, before, after)
    added = {step.after.id for step in steps if step.change == "add" and step.after}
    steps += [*_unique_steps(current, wanted, added), *_too_long_for_indexes(current, wanted)]
    return [*steps, *_access_steps(current.definition.document()["access"], wanted.document()["access"])]


def _access_steps(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Change]:
    for verb in ACCESS_VERBS:
        if before[verb] != after[verb]:
            shown = [rule if isinstance(rule, str) else to_text(rule)[:500] for rule in (before[verb], after[verb])]
            yield Change("access", "access", f"{verb} was {shown[0]}, becomes {shown[1]}")


def _added(current: CompiledCollection, after: FieldDefinition) -> list[Change]:
    existing = _count(current, "1 = 1")
    blocked = existing if after.required and after.default is None else 0
    message = f"{existing} entities need a value: give a default, or make it optional" if blocked else "the field is added"
    return [Change(after.name, "add", message, blocked=blocked, after=after)]


def _altered(current: CompiledCollection, before: FieldDefinition, after: FieldDefinition) -> Iterator[Change]:
    if before.name != after.name:
        yield Change(after.name, "rename", f"{before.name} is called {after.name} from now on", before=before, after=after)
    if (before.type, before.options) != (after.type, after.options):
        yield _conversion(current, before, after)
    if after.required and not before.required:
        missing = _count(current, f'"{before.column}" IS NULL')
        blocked = missing if after.default is None else 0
        message = f"{missing} entities have no value" + (
            ": give a default, or fill them first" if blocked else "; they get the default"
        )
        yield Change(after.name, "require", message, blocked=blocked, before=before, after=after)


def _conversion(current: CompiledCollection, before: FieldDefinition, after: FieldDefinition) -> Change:
    """Every value is shown by the old type and read by the new one."""
    read, change = (
        FIELD_TYPES[after.type].reader(after.options),
        Change(after.name, "convert", "", before=before, after=after),
    )
    show = FIELD_TYPES[before.type].shower(before.options)
    total = 0
    for entity_id, stored in _values(current, before.column):
        total += 1
        shown = show(stored) if show else stored
        try:
            converted = read(shown if before.type == after.type else FIELD_TYPES[after.type].from_text(to_text(shown)))
        except Refused:
            converted = None
            change.lost += 1
        if converted != stored or not _same_storage(before, after):
            change.converted[entity_id] = converted
    if after.type == "relation" and (before.type != "relation" or before.options != after.options):
        change.lost = change.blocked = total
    unfit = f"; {change.lost} {'does' if change.lost == 1 else 'do'} not fit" if change.lost else ""
    change.message = f"{_so_many(total, 'is', 'are')} read as {after.type}{unfit}"
    if change.lost and after.required:
        change.blocked = change.lost
        change.message += " and the field is required: mend them first"
    return change


def _same_storage(before: FieldDefinition, after: FieldDefinition) -> bool:
    if before.type == "decimal" and after.type == "decimal":
        return scale_of(before.options) == scale_of(after.options)
    texts = ("text", "select", "email", "url")
    return before.type == after.type or (before.type in texts and after.type in texts)


def _unique_steps(current: CompiledCollection, wanted: CollectionDefinition, added: set[str]) -> Iterator[Change]:
    before = {tuple(f.id for f in group) for group in tables.unique_groups(current.definition)}
    for group in tables.unique_groups(wanted):
        if tuple(f.id for f in group) in before or any(f.id in added for f in group):
            continue
        columns = ", ".join(f'"{f.column}"' for f in group)
        present = " AND ".join(f'"{f.column}" IS NOT NULL' for f in group)
        groups = f'SELECT 1 FROM "{current.table_name}" WHERE {present} GROUP BY {columns} HAVING COUNT(*) > 1'  # noqa: S608
        sql = f"SELECT COUNT(*) FROM ({groups}) AS doubles"  # noqa: S608
        doubles = int(db.rows(sql)[0][0])
        names = " and ".join(f.name for f in group)
        twice = f"{_so_many(doubles, 'occurs', 'occur')} more than once: mend them first"
        message = twice if doubles else f"{names} becomes unique"
        yield Change(names, "unique", message, blocked=doubles)


def _too_long_for_indexes(current: CompiledCollection, wanted: CollectionDefinition) -> Iterator[Change]:
    before, room = tables.index_room(current.definition), tables.index_room(wanted)
    for known in wanted.fields:
        earlier = current.definition.field_by_id(known.id)
        if earlier is None or earlier.type != known.type or FIELD_TYPES[known.type].kind != "text":
            continue
        limit = room.get(known.column)
        if limit is not None and limit < before.get(earlier.column, limit + 1):
            blocked = _count(current, f'LENGTH("{earlier.column}") > {limit // 4}')
            message = f"{blocked} texts are too long for an index: shorten them to {limit // 4} characters first"
            if blocked:
                yield Change(known.name, "index", message, blocked=blocked)


def _count(current: CompiledCollection, where: str) -> int:
    return int(db.rows(f'SELECT COUNT(*) FROM "{current.table_name}" WHERE {where}')[0][0])  # noqa: S608


def _values(current: CompiledCollection, column: str) -> Iterator[tuple[str, Any]]:
    """Id and value of every entity that has one, in pages."""
    last = ""
    table = current.table_name
    sql = f'SELECT id, "{column}" FROM "{table}" WHERE "{column}" IS NOT NULL AND id > ? ORDER BY id LIMIT ?'  # noqa: S608
    while page := db.rows(sql, (last, READ_AT_ONCE)):
        yield from ((row[0], row[1]) for row in page)
        last = page[-1][0]


def refuse_loss(steps: list[Change], *, allow_loss: bool) -> None:
    """ValidationFailed when a step is blocked, or would lose values and that is not allowed."""
    found = Findings()
    found.details += [Detail(f"/fields/{step.name}", "blocked", step.message) for step in steps if step.blocked]
    if not allow_loss:
        found.details += [
            Detail(f"/fields/{step.name}", "would_lose_data", step.message) for step in steps if step.lost and not step.blocked
        ]
    if found.details:
        raise ValidationFailed(
            Sentence(
                "the change was refused and nothing was done: %(message)s. See the plan with dry_run=true; "
                "allow_loss=true accepts the loss of values",
                message=found.details[0].message,
            ),
            details=found.details,
        )


def apply(
    current: CompiledCollection, wanted: CollectionDefinition, steps: list[Change], targets: Mapping[str, str]
) -> CollectionDefinition:
    """Do the steps inside a write; answers the definition with the columns that now hold the fields."""
    table = current.table_name
    wanted = _with_new_columns(wanted, steps, current.definition)
    columns = {known.id: known.column for known in wanted.fields}
    kept = set(columns.values())
    old, new = tables.index_columns(current.definition), tables.index_columns(wanted)
    tables.drop_indexes(table, {key: unique for key, unique in old.items() if new.get(key) != unique})
    for known in wanted.fields:
        if known.column not in {earlier.column for earlier in current.definition.fields}:
            tables.add_column(table, known, targets)
    for step in steps:
        _carry_values(table, step, columns)
    for earlier in current.definition.fields:
        if earlier.column not in kept:
            tables.drop_column(table, earlier.column)
    tables.create_indexes(table, {key: unique for key, unique in new.items() if old.get(key) != unique})
    return wanted


def _with_new_columns(wanted: CollectionDefinition, steps: list[Change], current: CollectionDefinition) -> CollectionDefinition:
    """A converted field that is stored otherwise gets a column of its own."""
    following = max(int(known.column[1:]) for known in (*current.fields, *wanted.fields)) + 1
    fields = []
    moved = {step.after.id for step in steps if step.change == "convert" and step.after and _is_moved(step)}
    for known in wanted.fields:
        if known.id in moved:
            fields.append(replace(known, column=f"c{following}"))
            following += 1
        else:
            fields.append(known)
    return replace(wanted, fields=tuple(fields))


def _is_moved(step: Change) -> bool:
    if step.before is None or step.after is None:
        return False
    return step.after.type == "relation" or not _same_storage(step.before, step.after)


def _carry_values(table: str, step: Change, columns: Mapping[str, str]) -> None:
    if step.after is None:
        return
    column = columns[step.after.id]
    for entity_id, value in step.converted.items():
        db.execute(f'UPDATE "{table}" SET "{column}" = ? WHERE id = ?', (value, entity_id))  # noqa: S608
    if step.change in ("add", "require") and step.after.default is not None:
        value = compile_field(step.after).default()
        db.execute(f'UPDATE "{table}" SET "{column}" = ? WHERE "{column}" IS NULL', (value,))  # noqa: S608


def _so_many(count: int, one: str, many: str) -> str:
    """`1 value occurs`, `2 values occur`."""
    return f"1 value {one}" if count == 1 else f"{count} values {many}"
