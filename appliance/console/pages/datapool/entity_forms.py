"""The form of an entity: made from the fields of its collection, read back as the values that somebody changed."""

from collections.abc import Mapping
from typing import Any

from appliance.console.frame.forms import MAX_OPTIONS, Field, InputForm, read_form
from appliance.console.frame.routing import Form, Visit
from appliance.core.errors import Detail, InvalidFilter, NotFound
from appliance.core.sentences import Sentence
from appliance.core.texts import gettext as _
from appliance.core.texts import mark
from appliance.datapool import service as datapool
from appliance.datapool import with_zone

from .filter_rows import value_of

_TYPES = {
    "text": "string", "email": "string", "url": "string", "select": "string", "relation": "string", "decimal": "string",
    "date": "string", "datetime": "string", "number": "number", "integer": "integer", "boolean": "boolean",
}  # fmt: skip
_FORMATS = {"email": "email", "url": "uri", "date": "date"}
UTC_HELP = mark("For example 2026-01-31T09:30:00Z. A time without a zone is read as UTC.")
BY_TITLE_HELP = mark("The id of an entity in %(target)s, or its %(title)s.")


class EntityForm(InputForm):
    """The form of one collection's entities; `relations` are its fields that lead on, by name, with their collection."""

    def __init__(self, visit: Visit, definition: Mapping[str, Any], entity: Mapping[str, Any] | None = None) -> None:
        self.kinds = {field["name"]: field["type"] for field in definition["fields"]}
        self.relations = {field["name"]: field["collection"] for field in definition["fields"] if field["type"] == "relation"}
        members = {field["name"]: _member(visit, field, (entity or {}).get(field["name"])) for field in definition["fields"]}
        required = [field["name"] for field in definition["fields"] if field["required"]]
        super().__init__({"type": "object", "properties": members, "required": required})
        self.fill(_given(definition) if entity is None else entity)

    def __iter__(self) -> Any:
        return iter(self.fields)


def _given(definition: Mapping[str, Any]) -> dict[str, Any]:
    """The defaults, except those that are the moment of storing."""
    return {field["name"]: field["default"] for field in definition["fields"] if field["default"] not in (None, "$now")}


def _member(visit: Visit, field: Mapping[str, Any], value: Any) -> dict[str, Any]:
    """The JSON Schema of one field."""
    kind = field["type"]
    told = [field.get("description", "")]
    schema: dict[str, Any] = {"title": field["name"]}
    if kind in _TYPES:
        schema["type"] = _TYPES[kind]
    if kind in _FORMATS:
        schema["format"] = _FORMATS[kind]
    if kind == "text" and isinstance(field.get("max_length"), int):
        schema["maxLength"] = field["max_length"]
    if isinstance(value, str) and "\n" in value:
        schema["format"] = "multiline"  # a field of one line would lose the others
    if kind == "select":
        schema["enum"] = [*field["options"], *([value] if value is not None and value not in field["options"] else [])]
    if kind == "datetime":
        told.append(_(UTC_HELP))
    if field["default"] == "$now":
        told.append(_("If left empty, the time of saving is used."))
    if kind == "relation":
        told.append(_add_targets(visit, field["collection"], value, schema))
    return schema | {"description": " ".join(part for part in told if part)}


def _add_targets(visit: Visit, target: str, value: Any, schema: dict[str, Any]) -> str:
    """All that a relation can lead to, where they are few; else how to name one."""
    title = datapool.get_title_field(visit.scope, target)
    found = datapool.query_entities(visit.scope, target, {"limit": MAX_OPTIONS - 1, "sort": title or "id"})
    if found.next_cursor is not None or title is None:
        named = datapool.name_entities(visit.scope, target, [value]).get(value, "") if value else ""
        told = _(BY_TITLE_HELP, target=target, title=title) if title else _("The id of an entity in %(target)s.", target=target)
        return f"{told} {_('Current: %(name)s.', name=named)}" if named else told
    options = [{"const": each["id"], "title": str(each[title] or each["id"])} for each in found.items]
    if value and value not in {each["const"] for each in options}:
        options.append({"const": value, "title": str(value)})
    if options:
        schema["oneOf"] = options
        return ""
    return _("%(target)s has no entities yet. Add one there first.", target=target)


def read_entity(visit: Visit, form: EntityForm, sent: Form) -> dict[str, Any]:
    """The values that were sent, every field of the form by name; what cannot be read is noted in `form.problems`."""
    values = read_form(form, sent)
    for name, target in form.relations.items():
        if isinstance(values.get(name), str) and not values[name].startswith("ent_"):
            values[name] = _by_title(visit, form, name, target, values[name])
    for name, kind in form.kinds.items():
        if kind == "datetime" and isinstance(values.get(name), str) and not values[name].startswith("$"):
            values[name] = with_zone(values[name])
    return {name: values.get(name) for name in form.kinds}


def _by_title(visit: Visit, form: EntityForm, name: str, target: str, text: str) -> str:
    """The id of the one entity that is called so; else the text, and what is wrong with it."""
    try:
        title = datapool.get_title_field(visit.scope, target)
        kinds = {field["name"]: field["type"] for field in datapool.get_collection(visit.scope, target)["fields"]}
        query = {"filter": {title: {"_eq": value_of(kinds[title], text)}}, "limit": 2} if title else {}
        found = datapool.query_entities(visit.scope, target, query).items if title else []
    except (NotFound, InvalidFilter):  # a title of another type: nothing is called by such a text
        found = []
    if len(found) == 1:
        return str(found[0]["id"])
    problem = Detail(f"/{name}", "not_found", Sentence("none in %(target)s is called so.", target=target))
    if found:
        problem = Detail(
            f"/{name}",
            "not_found",
            Sentence("several in %(target)s are called so: give the id of the one that is meant.", target=target),
        )
    form.problems.append(problem)
    form.point_out([problem])
    return text


def changed_fields(form: EntityForm, before: EntityForm) -> list[str]:
    """The names of the fields whose text differs from what the form showed before; nobody else's value is touched."""
    shown = {field.pointer: field for field in before.fields}
    return [field.pointer[1:] for field in form.fields if _text(field) != _text(shown[field.pointer])]


def _text(field: Field) -> str:
    """What stands in a field, as a browser sends it back: with the line ends of its own, a box without a tick as `false`."""
    text = field.value.replace("\r\n", "\n").replace("\r", "\n")
    return text or "false" if field.kind == "checkbox" else text


def keep(form: EntityForm, current: EntityForm, mine: list[str]) -> None:
    """Show what is stored now in the fields that this person did not change."""
    stored = {field.pointer: field.value for field in current.fields}
    for field in form.fields:
        if field.pointer[1:] not in mine:
            field.value = stored[field.pointer]
