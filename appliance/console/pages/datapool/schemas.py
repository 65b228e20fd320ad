"""Pages of a collection's schema: view it, edit it as a form or YAML, and review the migration plan before applying it."""

from collections.abc import Mapping
from typing import Any

from appliance.console.frame.routing import Answer, Page, Redirect, Visit, page
from appliance.core import yaml12
from appliance.core.errors import ApplianceError, NotFound, ValidationFailed, VersionConflict
from appliance.core.patches import make_patch
from appliance.core.sentences import Sentence
from appliance.core.yaml12 import YamlInvalid
from appliance.datapool import FIELD_TYPES, suggest_fields
from appliance.datapool import service as datapool

from .schema_forms import BLANK_ROWS, FieldRow, assign_errors, definition_of, parse_rows, rows_of

MEMBERS = ("name", "description", "fields", "indexes", "search", "access")
EMPTY: Mapping[str, Any] = {"fields": [], "indexes": [], "search": []}


@page("GET", "/datapool/<collection>/schema", scope="entities.read")
def show_schema(visit: Visit, collection: str) -> Answer:
    """The fields, indexes, searchable fields and access rules."""
    return _schema_page(visit, collection)


def _schema_page(visit: Visit, collection: str, problem: ApplianceError | None = None) -> Page:
    definition = datapool.get_collection(visit.scope, collection)
    values = {
        "collection": definition, "rows": rows_of(definition), "yaml": yaml12.dump(_document(definition)), "problem": problem,
        "size": datapool.count_entities(visit.scope, collection, datapool.Query(), 10_000), "most": 10_000,
    }  # fmt: skip
    return Page("schema.html", values, problem.status if problem else 200)


def _document(definition: Mapping[str, Any]) -> dict[str, Any]:
    """The definition as written in a file: without derived members and empty values."""
    return {name: definition[name] for name in MEMBERS if definition.get(name) not in (None, "")}


@page("GET", "/datapool/<collection>/schema/edit", scope="datapool.admin")
def show_schema_form(visit: Visit, collection: str) -> Answer:
    """The form of the fields, or the definition as YAML."""
    definition = datapool.get_collection(visit.scope, collection)
    text = yaml12.dump(_document(definition)) if visit.request.args.get("as") == "yaml" else None
    return _form_page(visit, definition, rows_of(definition), text)


def _form_page(
    visit: Visit, definition: Mapping[str, Any] | None, rows: list[FieldRow], text: str | None,
    problem: ApplianceError | None = None, import_id: str = "",
) -> Page:  # fmt: skip
    rest = assign_errors(rows, problem.details) if problem else []
    values = {
        "collection": definition, "rows": [*rows, *(FieldRow() for _ in range(BLANK_ROWS))], "text": text, "problem": problem,
        "rest": rest, "types": sorted(FIELD_TYPES), "name": visit.request.field("name"), "import_id": import_id,
        "description": visit.request.field("description"), "most_mb": visit.services.config.limits.upload_mb,
    }  # fmt: skip
    return Page("schema_form.html", values, problem.status if problem else 200)


def _parse_definition(visit: Visit, current: Mapping[str, Any]) -> dict[str, Any]:
    """The submitted definition, from YAML or form rows; ValidationFailed when the YAML is invalid."""
    text = visit.request.field("yaml")
    if not text:
        return definition_of(parse_rows(visit.request.form), current)
    try:
        document = yaml12.load(text)
    except YamlInvalid as error:
        raise ValidationFailed(Sentence("the YAML is invalid: %(error)s", error=error), pointer="/yaml") from error
    if not isinstance(document, dict):
        raise ValidationFailed("a collection is an object with name and fields", pointer="/yaml")
    return document


@page("POST", "/datapool/<collection>/schema/plan", scope="datapool.admin")
def plan_schema(visit: Visit, collection: str) -> Answer:
    """Show how the change affects the existing entities, without applying it."""
    definition = datapool.get_collection(visit.scope, collection)
    try:
        new_definition = _parse_definition(visit, _document(definition))
        plan = datapool.change_collection(visit.scope, collection, _build_patch(definition, new_definition), dry_run=True)
    except ApplianceError as error:
        text = visit.request.field("yaml") or None
        return _form_page(visit, definition, parse_rows(visit.request.form), text, error)
    return _plan_page(visit, definition, new_definition, plan["steps"])


def _build_patch(definition: Mapping[str, Any], new_definition: Mapping[str, Any]) -> dict[str, Any]:
    """The merge patch from one definition to the other; access rules that are left out become `deny`, as in solution files.

    An `access` that is not an object is passed on unchanged, so that validation refuses it with its pointer.
    """
    access = {} if new_definition.get("access") is None else new_definition["access"]
    if isinstance(access, Mapping):
        current = definition["access"]
        rules = {verb: _expand_nulls(rule) for verb, rule in access.items() if rule is not None}
        access = make_patch(current, {**dict.fromkeys(current, "deny"), **rules})
    return {"indexes": [], "search": [], "description": "", **new_definition, "access": access}


def _expand_nulls(rule: Any) -> Any:
    """A rule with each null replaced by `_null`, because a null in a merge patch deletes the member."""
    if not isinstance(rule, Mapping):
        return rule
    expanded: dict[str, Any] = {}
    for name, value in rule.items():
        if value is not None:
            expanded[name] = _expand_nulls(value)
        elif name in ("_eq", "_neq"):
            expanded["_null"] = name == "_eq"
        else:
            expanded[name] = {"_null": True}
    return expanded


def _plan_page(
    visit: Visit, definition: Mapping[str, Any], new_definition: Mapping[str, Any], steps: list[Any],
    problem: ApplianceError | None = None,
) -> Page:  # fmt: skip
    is_same = _build_patch(definition, new_definition) == _build_patch(definition, _document(definition))
    values = {
        "collection": definition, "steps": steps, "yaml": yaml12.dump(new_definition), "problem": problem,
        "lost": [step for step in steps if step["lost"] and not step["blocked"]],
        "blocked": [step for step in steps if step["blocked"]], "is_same": is_same,
    }  # fmt: skip
    return Page("schema_plan.html", values, problem.status if problem else 200)


@page("POST", "/datapool/<collection>/schema", scope="datapool.admin")
def change_schema(visit: Visit, collection: str) -> Answer:
    """Apply the planned change, if the collection has not changed since the plan was made."""
    definition = datapool.get_collection(visit.scope, collection)
    new_definition: dict[str, Any] = {}
    version = visit.request.field("version")
    try:
        new_definition = _parse_definition(visit, _document(definition))
        patch = _build_patch(definition, new_definition)
        if version != str(definition["_version"]):
            raise VersionConflict("someone else has changed this collection since the plan was made; review the new plan")
        datapool.change_collection(
            visit.scope, collection, patch, allow_loss=visit.request.field("allow_loss") == "yes", if_version=definition["_version"]
        )
    except ApplianceError as error:
        return _replan(visit, definition, new_definition, error)
    return Redirect(f"/console/datapool/{collection}/schema")


def _replan(visit: Visit, definition: Mapping[str, Any], new_definition: Mapping[str, Any], problem: ApplianceError) -> Page:
    """The current plan, or the form with the submitted text when no plan can be made from it."""
    if new_definition:
        try:
            patch = _build_patch(definition, new_definition)
            plan = datapool.change_collection(visit.scope, definition["name"], patch, dry_run=True)
            return _plan_page(visit, definition, new_definition, plan["steps"], problem)
        except ApplianceError as error:
            problem = error
    return _form_page(visit, definition, [], visit.request.field("yaml"), problem)


@page("POST", "/datapool/<collection>/schema/delete", scope="datapool.admin")
def delete_collection(visit: Visit, collection: str) -> Answer:
    """Delete the collection with all its entities."""
    try:
        datapool.delete_collection(visit.scope, collection, allow_loss=visit.request.field("allow_loss") == "yes")
    except NotFound:
        raise
    except ApplianceError as error:
        return _schema_page(visit, collection, error)
    return Redirect("/console/datapool")


@page("GET", "/datapool/-/new", scope="datapool.admin")
def show_new_collection(visit: Visit) -> Answer:
    """The form of a new collection, or a YAML skeleton."""
    is_yaml = visit.request.args.get("as") == "yaml"
    return _form_page(visit, None, [], "name: \nfields:\n  - {name: , type: text}\n" if is_yaml else None)


@page("POST", "/datapool/-/new", scope="datapool.admin")
def create_collection(visit: Visit) -> Answer:
    """Create the collection; then open its page, or the import of the file that it was created from."""
    import_id = visit.request.field("import")
    try:
        form_values = {name: visit.request.field(name).strip() for name in ("name", "description")}
        new_definition = _parse_definition(visit, {**form_values, **EMPTY})
        collection = datapool.create_collection(visit.scope, new_definition)
    except ApplianceError as error:
        return _form_page(visit, None, parse_rows(visit.request.form), visit.request.field("yaml") or None, error, import_id)
    here = f"/console/datapool/{collection['name']}"
    if visit.services.imports.find(visit.scope, import_id) is None:
        return Redirect(here)  # Created without a file, or the import has expired.
    visit.services.imports.set_collection(visit.scope, import_id, collection["name"])
    return Redirect(f"{here}/import/{import_id}")


@page("POST", "/datapool/-/guess", scope="datapool.admin", takes_files=True)
def guess_collection(visit: Visit) -> Answer:
    """The form of a new collection with one field for each column of the file, of the type that its values suggest."""
    sent = visit.request.file("file")
    try:
        if sent is None or not sent.received.size:
            raise ValidationFailed("choose a file that is not empty", pointer="/file")
        file_import = visit.services.imports.begin(visit.scope, "", sent.name, sent.received.open())
    except ApplianceError as error:
        return _form_page(visit, None, [], None, error)
    rows = rows_of({"fields": suggest_fields(file_import.columns, file_import.sample)})
    return _form_page(visit, None, rows, None, import_id=file_import.id)
