"""The form of an entity: built from the fields of its collection, and parsed back to values."""

from collections.abc import Mapping
from typing import Any

from appliance.console.frame.forms import MAX_OPTIONS, Field, InputForm, read_form
from appliance.console.frame.routing import Form, Visit
from appliance.core.errors import Detail, InvalidFilter, NotFound
from appliance.core.sentences import Sentence
from appliance.core.texts import gettext as _
from appliance.core.texts import mark
from appliance.datapool import normalize_time
from appliance.datapool import service as datapool

from .filter_rows import value_of

_TYPES = {
    "text": "string", "email": "string", "url": "string", "select": "string", "relation": "string", "decimal": "string",
    "date": "string", "datetime": "string", "number": "number", "integer": "integer", "boolean": "boolean",
}  # fmt: skip
_FORMATS = {"email": "email", "url": "uri", "date": "date"}
UTC_HELP = mark("For example 2026-01-31T09:30:00Z. A time without a zone is read as UTC.")
BY_TITLE_HELP = mark("The id of an entity in %(target)s, or its %(title)s.")


class EntityForm(InputForm):
    """The form for entities of one collection; `relations` maps each relation field to its target collection."""

    def __init__(self, visit: Visit, definition: Mapping[str, Any], entity: Mapping[str, Any] | None = None) -> None:
        self.kinds = {field["name"]: field["type"] for field in definition["fields"]}
        self.relations = {field["name"]: field["collection"] for field in definition["fields"] if field["type"] == "relation"}
        members = {field["name"]: _member_schema(visit, field, (entity or {}).get(field["name"])) for field in definition["fields"]}
        required = [field["name"] for field in definition["fields"] if field["required"]]
        super().__init__({"type": "object", "properties": members, "required": required})
        self.fill(_default_values(definition) if entity is None else entity)

    def __iter__(self) -> Any:
        return iter(self.fields)


def _default_values(definition: Mapping[str, Any]) -> dict[str, Any]:
    """The defaults of the fields, except `$now`, which is filled in when the entity is saved."""
    return {field["name"]: field["default"] for field in definition["fields"] if field["default"] not in (None, "$now")}


def _member_schema(visit: Visit, field: Mapping[str, Any], value: Any) -> dict[str, Any]:
    """The JSON Schema of one field."""
    kind = field["type"]
    help_texts = [field.get("description", "")]
    schema: dict[str, Any] = {"title": field["name"]}
    if kind in _TYPES:
        schema["type"] = _TYPES[kind]
    if kind in _FORMATS:
        schema["format"] = _FORMATS[kind]
    if kind == "text" and isinstance(field.get("max_length"), int):
        schema["maxLength"] = field["max_length"]
    if isinstance(value, str) and "\n" in value:
        schema["format"] = "multiline"  # A one-line field would drop the line breaks.
    if kind == "select":
        schema["enum"] = [*field["options"], *([value] if value is not None and value not in field["options"] else [])]
    if kind == "datetime":
        help_texts.append(_(UTC_HELP))
    if field["default"] == "$now":
        help_texts.append(_("If left empty, the time of saving is used."))
    if kind == "relation":
        help_texts.append(_add_targets(visit, field["collection"], value, schema))
    return schema | {"description": " ".join(part for part in help_texts if part)}


def _add_targets(visit: Visit, target: str, value: Any, schema: dict[str, Any]) -> str:
    """Offer the target entities as options if they are few enough; otherwise return a help text on how to name one."""
    title = datapool.get_title_field(visit.scope, target)
    targets = datapool.query_entities(visit.scope, target, {"limit": MAX_OPTIONS - 1, "sort": title or "id"})
    if targets.next_cursor is not None or title is None:
        current_title = datapool.find_titles(visit.scope, target, [value]).get(value, "") if value else ""
        help_text = _("The id of an entity in %(target)s.", target=target)
        if title:
            help_text = _(BY_TITLE_HELP, target=target, title=title)
        return f"{help_text} {_('Current: %(name)s.', name=current_title)}" if current_title else help_text
    options = [{"const": each["id"], "title": str(each[title] or each["id"])} for each in targets.items]
    if value and value not in {each["const"] for each in options}:
        options.append({"const": value, "title": str(value)})
    if options:
        schema["oneOf"] = options
        return ""
    return _("%(target)s has no entities yet. Add one there first.", target=target)


def read_entity(visit: Visit, form: EntityForm, sent: Form) -> dict[str, Any]:
    """The submitted values by field name; parse errors are collected in `form.problems`."""
    values = read_form(form, sent)
    for name, target in form.relations.items():
        if isinstance(values.get(name), str) and not values[name].startswith("ent_"):
            values[name] = _find_by_title(visit, form, name, target, values[name])
    for name, kind in form.kinds.items():
        if kind == "datetime" and isinstance(values.get(name), str) and not values[name].startswith("$"):
            values[name] = normalize_time(values[name])
    return {name: values.get(name) for name in form.kinds}


def _find_by_title(visit: Visit, form: EntityForm, name: str, target: str, text: str) -> str:
    """The id of the only entity with this title; otherwise the text unchanged, with an error at the field."""
    try:
        title = datapool.get_title_field(visit.scope, target)
        kinds = {field["name"]: field["type"] for field in datapool.get_collection(visit.scope, target)["fields"]}
        query = {"filter": {title: {"_eq": value_of(kinds[title], text)}}, "limit": 2} if title else {}
        matches = datapool.query_entities(visit.scope, target, query).items if title else []
    except (NotFound, InvalidFilter):  # The text does not fit the type of the title field, so no entity matches.
        matches = []
    if len(matches) == 1:
        return str(matches[0]["id"])
    problem = Detail(f"/{name}", "not_found", Sentence("no entity in %(target)s has this title.", target=target))
    if matches:
        problem = Detail(
            f"/{name}",
            "not_found",
            Sentence("several entities in %(target)s have this title; enter the id of one of them.", target=target),
        )
    form.problems.append(problem)
    form.show_errors([problem])
    return text


def changed_fields(form: EntityForm, before: EntityForm) -> list[str]:
    """The names of the fields whose text differs from the one in `before`; only these are saved."""
    before_by_pointer = {field.pointer: field for field in before.fields}
    return [field.pointer[1:] for field in form.fields if _text(field) != _text(before_by_pointer[field.pointer])]


def _text(field: Field) -> str:
    """A field's text in comparable form: normalized line ends, and `false` for an unticked checkbox."""
    text = field.value.replace("\r\n", "\n").replace("\r", "\n")
    return text or "false" if field.kind == "checkbox" else text


def refresh_unchanged(form: EntityForm, current: EntityForm, mine: list[str]) -> None:
    """Fill the fields that this person did not change with the values stored now."""
    stored = {field.pointer: field.value for field in current.fields}
    for field in form.fields:
        if field.pointer[1:] not in mine:
            field.value = stored[field.pointer]
