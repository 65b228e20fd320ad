"""Pages of one entity: its values, relations and history, and the forms to create, edit and delete it."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from appliance.console.frame.display_values import OWN, DisplayValue, find_titles, format_value
from appliance.console.frame.people import Names
from appliance.console.frame.routing import Answer, Page, Redirect, Visit, page
from appliance.core import clock
from appliance.core.errors import ApplianceError, NotFound, ValidationFailed, VersionConflict
from appliance.core.pages import PageRequest
from appliance.core.sentences import Sentence
from appliance.datapool import Change
from appliance.datapool import service as datapool

from .entity_forms import EntityForm, changed_fields, read_entity, refresh_unchanged

CHANGES = 20
OWN_NAMES = tuple(field["name"] for field in OWN)


@dataclass(frozen=True)
class FieldChange:
    """One field of a change, with its values before and after."""

    name: str
    before: DisplayValue
    after: DisplayValue


@dataclass(frozen=True)
class HistoryEntry:
    """A change of an entity with the fields it altered, for the history on its page."""

    change: Change
    at_ms: int
    altered: list[FieldChange]


@page("GET", "/datapool/<collection>/new", scope="entities.write")
def show_new_entity(visit: Visit, collection: str) -> Answer:
    """The form of a new entity, filled with the defaults."""
    definition = datapool.get_collection(visit.scope, collection)
    return _form_page(visit, definition, EntityForm(visit, definition))


@page("POST", "/datapool/<collection>/new", scope="entities.write")
def create_entity(visit: Visit, collection: str) -> Answer:
    """Create an entity; then show it, or an empty form for the next one."""
    definition = datapool.get_collection(visit.scope, collection)
    form = EntityForm(visit, definition)
    values = read_entity(visit, form, visit.request.form)
    moments = [field["name"] for field in definition["fields"] if field["default"] == "$now" and values[field["name"]] is None]
    try:
        _refuse_unread(form)
        entity = datapool.create_entity(visit.scope, collection, {n: v for n, v in values.items() if n not in moments})
    except ApplianceError as error:
        return _form_page(visit, definition, form, problem=error)
    again = visit.request.field("then") == "another"
    return Redirect(f"/console/datapool/{collection}/new?made={entity['id']}" if again else _address(collection, entity["id"]))


@page("GET", "/datapool/<collection>/<entity_id>", scope="entities.read")
def show_entity(visit: Visit, collection: str, entity_id: str) -> Answer:
    """One entity with every field and its history; for a deleted entity its last values and the history."""
    return _entity_page(visit, collection, entity_id)


@page("GET", "/datapool/<collection>/<entity_id>/edit", scope="entities.write")
def show_entity_form(visit: Visit, collection: str, entity_id: str) -> Answer:
    """The form with the entity's values."""
    definition = datapool.get_collection(visit.scope, collection)
    entity = datapool.get_entity(visit.scope, collection, entity_id)
    return _form_page(visit, definition, EntityForm(visit, definition, entity), entity)


@page("POST", "/datapool/<collection>/<entity_id>/edit", scope="entities.write")
def change_entity(visit: Visit, collection: str, entity_id: str) -> Answer:
    """Save the fields that were changed in the form, unless the entity has been changed by someone else in the meantime."""
    definition = datapool.get_collection(visit.scope, collection)
    current = datapool.get_entity(visit.scope, collection, entity_id)
    form = EntityForm(visit, definition, current)
    values = read_entity(visit, form, visit.request.form)
    if _version_sent(visit) != current["_version"]:
        return _conflict_page(visit, definition, form, current)
    mine = changed_fields(form, EntityForm(visit, definition, current))
    try:
        _refuse_unread(form)
        if mine:
            _store(visit, collection, current, {name: values[name] for name in mine})
    except VersionConflict:
        return _conflict_page(visit, definition, form, datapool.get_entity(visit.scope, collection, entity_id))
    except ApplianceError as error:
        return _form_page(visit, definition, form, current, problem=error)
    return Redirect(_address(collection, entity_id))


@page("POST", "/datapool/<collection>/<entity_id>/delete", scope="entities.write")
def delete_entity(visit: Visit, collection: str, entity_id: str) -> Answer:
    """Delete the entity, if it is still at the version that the page showed."""
    try:
        datapool.delete_entity(visit.scope, collection, entity_id, if_version=_version_sent(visit))
    except NotFound:
        raise
    except ApplianceError as error:
        return _entity_page(visit, collection, entity_id, error)
    return Redirect(f"/console/datapool/{collection}")


def _address(collection: str, entity_id: str) -> str:
    return f"/console/datapool/{collection}/{entity_id}"


def _refuse_unread(form: EntityForm) -> None:
    """ValidationFailed when values could not be parsed; the messages are next to the fields."""
    count = len(form.problems)
    if count == 1:
        raise ValidationFailed("one value is invalid; see the message next to its field", details=form.problems)
    if count:
        raise ValidationFailed(
            Sentence("%(count)s values are invalid; see the messages next to the fields", count=count), details=form.problems
        )


def _version_sent(visit: Visit) -> int:
    """The entity version that the form was built from; 0, which no entity has, when the field is invalid."""
    text = visit.request.field("version")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else 0


def _store(visit: Visit, collection: str, current: Mapping[str, Any], changed: Mapping[str, Any]) -> None:
    """Save the changed values.

    A JSON object replaces the previous one entirely, because the form showed all of it; a merge would keep removed members.
    """
    scope, version = visit.scope, current["_version"]
    if any(isinstance(value, dict) and isinstance(current[name], dict) for name, value in changed.items()):
        whole = {name: value for name, value in current.items() if name not in OWN_NAMES} | dict(changed)
        datapool.replace_entity(scope, collection, current["id"], whole, if_version=version)
    else:
        datapool.update_entity(scope, collection, current["id"], changed, if_version=version)


def _conflict_page(visit: Visit, definition: Mapping[str, Any], form: EntityForm, current: Mapping[str, Any]) -> Page:
    """The form after an edit conflict: the changes that someone else saved, next to this person's input."""
    collection = definition["name"]
    base = datapool.find_entity_version(visit.scope, collection, current["id"], _version_sent(visit))
    before = {**current, **(base.entity if base else {})}
    stored = EntityForm(visit, definition, current)
    mine = changed_fields(form, EntityForm(visit, definition, before))
    refresh_unchanged(form, stored, mine)
    kinds = {field["name"]: field for field in definition["fields"]}
    theirs = [name for name in kinds if before.get(name) != current[name]]
    titles = find_titles(visit, definition["fields"], [before, current])
    altered = [
        FieldChange(n, format_value(kinds[n], before.get(n), titles), format_value(kinds[n], current[n], titles)) for n in theirs
    ]
    problem = VersionConflict("someone else has changed this entity since you opened it; compare the changes, then save again")
    latest = datapool.list_entity_history(visit.scope, collection, current["id"], PageRequest(1)).items
    more = {"altered": altered, "mine": mine, "by": Names(visit).of(latest[0].actor) if latest else ""}
    return _form_page(visit, definition, form, current, problem=problem, more=more)


def _form_page(
    visit: Visit, definition: Mapping[str, Any], form: EntityForm, entity: Mapping[str, Any] | None = None, *,
    problem: ApplianceError | None = None, more: Mapping[str, Any] | None = None,
) -> Page:  # fmt: skip
    if problem is not None:
        form.show_errors([each for each in problem.details if each not in form.problems])
    values = {
        "collection": definition, "form": form, "entity": entity, "problem": problem, "altered": [], "mine": [], "by": "",
        "title": _title(visit, definition, entity), "created_id": visit.request.args.get("made", ""), **(more or {}),
    }  # fmt: skip
    return Page("entity_form.html", values, problem.status if problem else 200)


def _title(visit: Visit, definition: Mapping[str, Any], entity: Mapping[str, Any] | None) -> str:
    if entity is None:
        return ""
    name = datapool.get_title_field(visit.scope, definition["name"])
    return str(entity.get(name) or entity["id"]) if name else str(entity["id"])


def _entity_page(visit: Visit, collection: str, entity_id: str, problem: ApplianceError | None = None) -> Page:
    definition = datapool.get_collection(visit.scope, collection)
    request = PageRequest(CHANGES, visit.request.args.get("cursor") or None)
    changes = datapool.list_entity_history(visit.scope, collection, entity_id, request)
    entity = datapool.find_entity(visit.scope, collection, entity_id)
    fields = definition["fields"]
    if entity is None and not changes.items:
        raise NotFound(
            Sentence("there is no entity %(entity_id)s in %(collection)s", entity_id=repr(entity_id[:80]), collection=collection)
        )
    snapshot = entity or {**dict.fromkeys(field["name"] for field in fields), **changes.items[0].entity}
    titles, may = find_titles(visit, fields, [snapshot, *(each.entity for each in changes.items)]), visit.may("documents.read")
    values = {
        "collection": definition, "entity": snapshot, "is_deleted": entity is None, "problem": problem,
        "title": _title(visit, definition, snapshot),
        "own": [(each, format_value(each, snapshot[each["name"]], {})) for each in OWN],
        "cells": [(field, format_value(field, snapshot.get(field["name"]), titles, may_read_documents=may)) for field in fields],
        "history": _build_history(visit, definition, changes.items, titles), "next_cursor": changes.next_cursor,
        "names": Names(visit),
        "as_json": json.dumps(snapshot, ensure_ascii=False, indent=2),
    }  # fmt: skip
    return Page("entity.html", values, problem.status if problem else 200)


def _build_history(visit: Visit, definition: Mapping[str, Any], changes: Sequence[Change], titles: Any) -> list[HistoryEntry]:
    """Each change with the fields it altered; the version before the oldest change on this page is loaded to compare with."""
    if not changes:
        return []
    oldest = changes[-1]
    before_oldest = datapool.find_entity_version(visit.scope, definition["name"], oldest.entity["id"], oldest.version - 1)
    previous = [*changes[1:], before_oldest]
    return [_history_entry(definition, change, before, titles) for change, before in zip(changes, previous, strict=True)]


def _history_entry(definition: Mapping[str, Any], change: Change, before: Change | None, titles: Any) -> HistoryEntry:
    altered = []
    if change.event == "updated" and before is not None:
        for field in definition["fields"]:
            old, new = before.entity.get(field["name"]), change.entity.get(field["name"])
            if old != new:
                altered.append(FieldChange(field["name"], format_value(field, old, titles), format_value(field, new, titles)))
    return HistoryEntry(change, clock.parse_rfc3339(change.at), altered)
