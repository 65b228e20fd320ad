"""Pages of a collection's schema: what it is, changed as a form or as YAML, with a plan of what that means before it is done."""

from collections.abc import Mapping
from typing import Any

from appliance.console.frame.routing import Answer, Page, Redirect, Visit, page
from appliance.core import yaml12
from appliance.core.errors import ApplianceError, NotFound, ValidationFailed, VersionConflict
from appliance.core.patches import make_patch
from appliance.core.sentences import Sentence
from appliance.core.yaml12 import YamlInvalid
from appliance.datapool import FIELD_TYPES, guess_fields
from appliance.datapool import service as datapool

from .schema_forms import BLANK_ROWS, FieldRow, definition_of, point_out, rows_of, rows_sent

MEMBERS = ("name", "description", "fields", "indexes", "search", "access")
EMPTY: Mapping[str, Any] = {"fields": [], "indexes": [], "search": []}


@page("GET", "/datapool/<collection>/schema", scope="entities.read")
def show_schema(visit: Visit, collection: str) -> Answer:
    """Fields, indexes, searched fields and access rules."""
    return _schema_page(visit, collection)


def _schema_page(visit: Visit, collection: str, problem: ApplianceError | None = None) -> Page:
    definition = datapool.get_collection(visit.scope, collection)
    values = {
        "collection": definition, "rows": rows_of(definition), "yaml": yaml12.dump(_document(definition)), "problem": problem,
        "size": datapool.count_entities(visit.scope, collection, datapool.Query(), 10_000), "most": 10_000,
    }  # fmt: skip
    return Page("schema.html", values, problem.status if problem else 200)


def _document(definition: Mapping[str, Any]) -> dict[str, Any]:
    """The definition as somebody writes it."""
    return {name: definition[name] for name in MEMBERS if definition.get(name) not in (None, "")}


@page("GET", "/datapool/<collection>/schema/edit", scope="datapool.admin")
def show_schema_form(visit: Visit, collection: str) -> Answer:
    """The form of the fields, or the whole as YAML."""
    definition = datapool.get_collection(visit.scope, collection)
    text = yaml12.dump(_document(definition)) if visit.asked.args.get("as") == "yaml" else None
    return _form_page(visit, definition, rows_of(definition), text)


def _form_page(
    visit: Visit, definition: Mapping[str, Any] | None, rows: list[FieldRow], text: str | None,
    problem: ApplianceError | None = None, import_id: str = "",
) -> Page:  # fmt: skip
    rest = point_out(rows, problem.details) if problem else []
    values = {
        "collection": definition, "rows": [*rows, *(FieldRow() for _ in range(BLANK_ROWS))], "text": text, "problem": problem,
        "rest": rest, "types": sorted(FIELD_TYPES), "name": visit.asked.field("name"), "import_id": import_id,
        "description": visit.asked.field("description"), "most_mb": visit.services.config.limits.upload_mb,
    }  # fmt: skip
    return Page("schema_form.html", values, problem.status if problem else 200)


def _wanted(visit: Visit, current: Mapping[str, Any]) -> dict[str, Any]:
    """The definition that was sent, as YAML or as rows; ValidationFailed when the YAML cannot be read."""
    text = visit.asked.field("yaml")
    if not text:
        return definition_of(rows_sent(visit.asked.form), current)
    try:
        found = yaml12.load(text)
    except YamlInvalid as error:
        raise ValidationFailed(Sentence("the YAML cannot be read: %(error)s", error=error), pointer="/yaml") from error
    if not isinstance(found, dict):
        raise ValidationFailed("a collection is an object with name and fields", pointer="/yaml")
    return found


@page("POST", "/datapool/<collection>/schema/plan", scope="datapool.admin")
def plan_schema(visit: Visit, collection: str) -> Answer:
    """What the change means for the entities that are there; nothing is done."""
    definition = datapool.get_collection(visit.scope, collection)
    try:
        wanted = _wanted(visit, _document(definition))
        planned = datapool.change_collection(visit.scope, collection, _patch(definition, wanted), dry_run=True)
    except ApplianceError as error:
        text = visit.asked.field("yaml") or None
        return _form_page(visit, definition, rows_sent(visit.asked.form), text, error)
    return _plan_page(visit, definition, wanted, planned["steps"])


def _patch(definition: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """The change that makes one of the other: what is left out of the rules is denied, as in a file of a solution.

    Rules are no rules but something else when somebody miswrote them: that is passed on, to be refused by its name.
    """
    access = {} if wanted.get("access") is None else wanted["access"]
    if isinstance(access, Mapping):
        current = definition["access"]
        rules = {verb: _spelled_out(rule) for verb, rule in access.items() if rule is not None}
        access = make_patch(current, {**dict.fromkeys(current, "deny"), **rules})
    return {"indexes": [], "search": [], "description": "", **wanted, "access": access}


def _spelled_out(rule: Any) -> Any:
    """A rule with `_null` for each null of it, because a null in a patch takes away what is there."""
    if not isinstance(rule, Mapping):
        return rule
    told: dict[str, Any] = {}
    for name, value in rule.items():
        if value is not None:
            told[name] = _spelled_out(value)
        elif name in ("_eq", "_neq"):
            told["_null"] = name == "_eq"
        else:
            told[name] = {"_null": True}
    return told


def _plan_page(
    visit: Visit, definition: Mapping[str, Any], wanted: Mapping[str, Any], steps: list[Any], problem: ApplianceError | None = None
) -> Page:
    is_same = _patch(definition, wanted) == _patch(definition, _document(definition))
    values = {
        "collection": definition, "steps": steps, "yaml": yaml12.dump(wanted), "problem": problem,
        "lost": [step for step in steps if step["lost"] and not step["blocked"]],
        "blocked": [step for step in steps if step["blocked"]], "is_same": is_same,
    }  # fmt: skip
    return Page("schema_plan.html", values, problem.status if problem else 200)


@page("POST", "/datapool/<collection>/schema", scope="datapool.admin")
def change_schema(visit: Visit, collection: str) -> Answer:
    """Do what the plan said, if the collection is still as it was then."""
    definition = datapool.get_collection(visit.scope, collection)
    wanted: dict[str, Any] = {}
    version = visit.asked.field("version")
    try:
        wanted = _wanted(visit, _document(definition))
        patch = _patch(definition, wanted)
        if version != str(definition["_version"]):
            raise VersionConflict("somebody has changed this collection since the plan was made; look at the new plan")
        datapool.change_collection(
            visit.scope, collection, patch, allow_loss=visit.asked.field("allow_loss") == "yes", if_version=definition["_version"]
        )
    except ApplianceError as error:
        return _plan_anew(visit, definition, wanted, error)
    return Redirect(f"/console/datapool/{collection}/schema")


def _plan_anew(visit: Visit, definition: Mapping[str, Any], wanted: Mapping[str, Any], problem: ApplianceError) -> Page:
    """The plan as it is now, or the text that was sent when there is none to make of it."""
    if wanted:
        try:
            planned = datapool.change_collection(visit.scope, definition["name"], _patch(definition, wanted), dry_run=True)
            return _plan_page(visit, definition, wanted, planned["steps"], problem)
        except ApplianceError as error:
            problem = error
    return _form_page(visit, definition, [], visit.asked.field("yaml"), problem)


@page("POST", "/datapool/<collection>/schema/delete", scope="datapool.admin")
def delete_collection(visit: Visit, collection: str) -> Answer:
    """Delete the collection with everything in it."""
    try:
        datapool.delete_collection(visit.scope, collection, allow_loss=visit.asked.field("allow_loss") == "yes")
    except NotFound:
        raise
    except ApplianceError as error:
        return _schema_page(visit, collection, error)
    return Redirect("/console/datapool")


@page("GET", "/datapool/-/new", scope="datapool.admin")
def show_new_collection(visit: Visit) -> Answer:
    """An empty form, or an empty text."""
    is_yaml = visit.asked.args.get("as") == "yaml"
    return _form_page(visit, None, [], "name: \nfields:\n  - {name: , type: text}\n" if is_yaml else None)


@page("POST", "/datapool/-/new", scope="datapool.admin")
def create_collection(visit: Visit) -> Answer:
    """Make the collection; then on to its page, or to the import of the file that it was made for."""
    import_id = visit.asked.field("import")
    try:
        given = {name: visit.asked.field(name).strip() for name in ("name", "description")}
        wanted = _wanted(visit, {**given, **EMPTY})
        made = datapool.create_collection(visit.scope, wanted)
    except ApplianceError as error:
        return _form_page(visit, None, rows_sent(visit.asked.form), visit.asked.field("yaml") or None, error, import_id)
    here = f"/console/datapool/{made['name']}"
    try:
        found = visit.services.imports.get(visit.scope, import_id)
    except NotFound:
        return Redirect(here)  # made without a file, or looked at too long ago
    found.collection = made["name"]
    return Redirect(f"{here}/import/{import_id}")


@page("POST", "/datapool/-/guess", scope="datapool.admin", takes_files=True)
def guess_collection(visit: Visit) -> Answer:
    """The form with a field for each column of a file, with the type that its values fit."""
    sent = visit.asked.file("file")
    try:
        if sent is None or not sent.received.size:
            raise ValidationFailed("choose a file that is not empty", pointer="/file")
        found = visit.services.imports.begin(visit.scope, "", sent.name, sent.received.open())
    except ApplianceError as error:
        return _form_page(visit, None, [], None, error)
    rows = rows_of({"fields": guess_fields(found.columns, found.sample)})
    return _form_page(visit, None, rows, None, import_id=found.id)
