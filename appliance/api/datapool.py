"""/api/v1/datapool: collections, entities, queries, changes, import and export."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import asdict
from functools import partial
from typing import Any, Literal

from werkzeug.http import parse_options_header

from appliance.core.errors import (
    AlreadyExists,
    Conflict,
    InvalidCursor,
    InvalidFilter,
    InvalidJson,
    InvalidRequest,
    NotFound,
    UnsupportedMediaType,
    VersionConflict,
)
from appliance.core.json_text import load_json
from appliance.core.pages import Page, PageRequest
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.datapool import service as datapool
from appliance.tenants.grants import continued_access

from .datapool_views import (
    BatchBody,
    ChangeQuery,
    ChangeView,
    CollectionView,
    DeleteQuery,
    Entity,
    EntityListQuery,
    EntityQuery,
    ExportQuery,
    HistoryQuery,
    ImportQuery,
    ImportView,
    OutcomeView,
    change_view,
    collection_view,
)
from .frame.routing import Acts, Answer, Call, Events, Json, route
from .frame.tool_arguments import batch_arguments, operation_arguments
from .tenants.tenants import DeletedView, NoQuery

POLL_SECONDS = 0.3
EVENTS_AT_ONCE = 200
NEW_COLLECTION = Json("document", "The definition of the collection; JSON or YAML.")
CHANGES = Json("document", "The members of the definition to change; `fields` is the complete new list. JSON or YAML.")
VALUES = Json("object", "The values of the entity, by field.")
QUERY = Json("object", "The query; `{}` lists every entity, the newest first.")
ROWS = Json("lines", "CSV with a header line that names the fields, or NDJSON with one object for each entity.")
MEDIA: dict[str, Literal["csv", "ndjson"]] = {"text/csv": "csv", "application/x-ndjson": "ndjson", "application/jsonl": "ndjson"}


def entity_answer(entity: Entity, status: int | None = None, location: str = "") -> Answer:
    headers = {"Location": location} if location else {}
    version = entity.get("_version")
    return Answer(entity, status, headers, etag=None if version is None else str(version))


def expected_version(call: Call) -> int | None:
    """The version in If-Match, or None without it; VersionConflict for an ETag that this appliance cannot have issued."""
    if call.if_match is None:
        return None
    if not call.if_match.isascii() or not call.if_match.isdigit():
        raise VersionConflict(
            Sentence(
                "the ETag %(if_match)s is not current; read the resource again and repeat the change",
                if_match=repr(call.if_match[:40]),
            )
        )
    return int(call.if_match)


def read_filter(call: Call, text: str | None) -> Any:
    """Parse the filter in a query parameter; an absent one matches everything."""
    if text is None:
        return {}
    try:
        return load_json(text.encode("utf8", "replace"), call.services.config.limits.json_depth)
    except InvalidJson as error:
        raise InvalidFilter('filter must be JSON such as {"total": {"_gt": 100}}', pointer="/filter") from error


@route("GET", "/datapool", scope="entities.read", returns=CollectionView, listed=True)
def list_collections(call: Call) -> Page[CollectionView]:
    """List the collections of the tenant.

    Each comes with its whole definition. Sorted by `name`; `sort` also takes `created_at` and `updated_at`.
    """
    return datapool.list_collections(call.scope, call.query.page).map(collection_view)


@route(
    "POST", "/datapool", scope="datapool.admin", body=NEW_COLLECTION, returns=CollectionView, status=201,
    errors=(AlreadyExists, Conflict, InvalidFilter),
)  # fmt: skip
def create_collection(call: Call) -> Answer:
    """Create a collection.

    The body is its definition: `{name, description?, fields, indexes?, search?, access?}`. A tenant has at most 500 collections.
    """
    created = datapool.create_collection(call.scope, call.body.data)
    return Answer(
        collection_view(created), headers={"Location": f"/api/v1/datapool/{created['name']}"}, etag=str(created["_version"])
    )


@route(
    "POST", "/datapool/batch", scope="entities.write", body=BatchBody, returns=list[OutcomeView],
    acts=Acts("write_entities", arguments=batch_arguments), errors=(Conflict, NotFound, VersionConflict),
)  # fmt: skip
def run_batch(call: Call) -> list[OutcomeView]:
    """Change up to 1,000 entities at once.

    All operations are stored, or none. An operation is `{op: create|update|upsert|delete, collection, id?, key?, values?,
    if_version?}`. Results come in the order of the operations; if any fails, the error lists all problems with a JSON pointer to
    each.
    """
    outcomes = datapool.run_batch(call.scope, call.body.operations, dry_run=call.body.dry_run)
    return [OutcomeView(event=o.event, collection=o.collection, entity=o.entity) for o in outcomes]


@route("GET", "/datapool/{collection}", scope="entities.read", returns=CollectionView)
def get_collection(call: Call, collection: str) -> Answer:
    """Show a collection's definition.

    The ETag is the version of the definition, which conditional changes name.
    """
    definition = datapool.get_collection(call.scope, collection)
    return Answer(collection_view(definition), etag=str(definition["_version"]))


@route(
    "PATCH", "/datapool/{collection}", scope="datapool.admin", body=CHANGES, query=ChangeQuery, returns=CollectionView,
    errors=(InvalidFilter,),
)  # fmt: skip
def change_collection(call: Call, collection: str) -> Answer:
    """Change a collection's definition and migrate its entities.

    `fields` is the complete new list; a field with the id of an existing one renames or converts it. With `dry_run`, the
    steps are returned and nothing changes; a step that would lose values needs `allow_loss`. Takes If-Match.
    """
    changed = datapool.change_collection(
        call.scope, collection, call.body.data, dry_run=call.query.dry_run, allow_loss=call.query.allow_loss,
        if_version=expected_version(call),
    )  # fmt: skip
    return Answer(collection_view(changed), etag=str(changed["_version"]))


@route("DELETE", "/datapool/{collection}", scope="datapool.admin", query=DeleteQuery, returns=DeletedView, errors=(Conflict,))
def delete_collection(call: Call, collection: str) -> DeletedView:
    """Delete a collection with its entities.

    One that has entities is deleted only with `allow_loss`. It is gone at once and its name is free; many entities are removed from
    the database afterwards.
    """
    datapool.delete_collection(call.scope, collection, allow_loss=call.query.allow_loss)
    return DeletedView(deleted=collection)


@route(
    "GET", "/datapool/{collection}/entities", scope="entities.read", query=EntityListQuery, returns=Entity, listed=True,
    acts=Acts("query_entities"),
)  # fmt: skip
def list_entities(call: Call, collection: str) -> Page[Entity]:
    """List, filter and search entities.

    The newest come first unless `sort` says otherwise; sorting is by fields of the collection, with `-` for descending.
    """
    parameters = call.query.model_dump(exclude_none=True, exclude={"filter"})
    return datapool.query_entities(call.scope, collection, {**parameters, "filter": read_filter(call, call.query.filter)})


@route(
    "POST", "/datapool/{collection}/entities", scope="entities.write", body=VALUES, returns=Entity, status=201,
    acts=Acts("write_entities", arguments=operation_arguments("create")),
)  # fmt: skip
def create_entity(call: Call, collection: str) -> Answer:
    """Create an entity from its values.

    Fields that are left out get their default; all problems with the values are listed at once.
    """
    entity = datapool.create_entity(call.scope, collection, call.body)
    return entity_answer(entity, 201, f"/api/v1/datapool/{collection}/entities/{entity['id']}")


@route(
    "GET", "/datapool/{collection}/entities/{entity_id}", scope="entities.read", query=EntityQuery, returns=Entity,
    acts=Acts("query_entities"),
)  # fmt: skip
def get_entity(call: Call, collection: str, entity_id: str) -> Answer:
    """Show an entity.

    The ETag is its `_version`, which conditional changes name.
    """
    members = call.query.model_dump(exclude_none=True)
    query = datapool.parse_query(members) if members else None
    return entity_answer(datapool.get_entity(call.scope, collection, entity_id, query=query))


@route(
    "PATCH", "/datapool/{collection}/entities/{entity_id}", scope="entities.write", body=VALUES, returns=Entity,
    acts=Acts("write_entities", arguments=operation_arguments("update")),
)  # fmt: skip
def update_entity(call: Call, collection: str, entity_id: str) -> Answer:
    """Merge values into an entity.

    A JSON merge patch (RFC 7396): fields that are left out stay, null removes a value. Takes If-Match.
    """
    version = expected_version(call)
    return entity_answer(datapool.update_entity(call.scope, collection, entity_id, call.body, if_version=version))


@route(
    "PUT", "/datapool/{collection}/entities/{entity_id}", scope="entities.write", body=VALUES, returns=Entity,
    acts=Acts("write_entities", arguments=operation_arguments("replace")),
)  # fmt: skip
def replace_entity(call: Call, collection: str, entity_id: str) -> Answer:
    """Replace all values of an entity.

    Fields that are left out get their default, or no value. Takes If-Match.
    """
    version = expected_version(call)
    return entity_answer(datapool.replace_entity(call.scope, collection, entity_id, call.body, if_version=version))


@route(
    "DELETE", "/datapool/{collection}/entities/{entity_id}", scope="entities.write", returns=DeletedView,
    acts=Acts("write_entities", arguments=operation_arguments("delete")), errors=(Conflict,),
)  # fmt: skip
def delete_entity(call: Call, collection: str, entity_id: str) -> DeletedView:
    """Delete an entity.

    Refused while another entity refers to it. Takes If-Match.
    """
    datapool.delete_entity(call.scope, collection, entity_id, if_version=expected_version(call))
    return DeletedView(deleted=entity_id)


@route(
    "GET", "/datapool/{collection}/entities/{entity_id}/history", scope="entities.read", query=HistoryQuery, returns=ChangeView,
    listed=True, acts=Acts("query_entities"),
)  # fmt: skip
def list_entity_history(call: Call, collection: str, entity_id: str) -> Page[ChangeView]:
    """List the changes of an entity.

    The newest come first; a deleted entity keeps its history.
    """
    page = PageRequest(call.query.limit, call.query.cursor)
    return datapool.list_entity_history(call.scope, collection, entity_id, page).map(change_view)


@route("GET", "/datapool/{collection}/events", scope="entities.read", media="text/event-stream", acts=Acts("query_entities"))
async def follow_collection(call: Call, collection: str) -> Answer:
    """Stream a collection's changes as server-sent events.

    The stream starts now, or after the `Last-Event-ID` of an interrupted stream.
    """
    last = call.headers.get("last-event-id")
    if last is not None and not (last.isascii() and last.isdigit() and len(last) <= 18):
        raise InvalidRequest("Last-Event-ID must be the id of an event of this stream", pointer="/Last-Event-ID")
    find = partial(datapool.get_last_change, call.scope, collection)
    newest = await asyncio.get_running_loop().run_in_executor(call.services.threads, find)
    return Answer(Events(_changes(call, collection, newest if last is None else int(last))))


async def _changes(call: Call, collection: str, number: int) -> AsyncIterator[tuple[int, str, Any]]:
    """Yield changes as they are committed, until the caller disconnects, the key ends or the collection is deleted."""
    loop = asyncio.get_running_loop()
    in_thread = partial(loop.run_in_executor, call.services.threads)
    while (changes := await in_thread(_changes_after, call.scope, collection, number)) is not None:
        for change in changes:
            number = change.number  # the next poll starts after the last change
            yield number, change.event, change_view(change).model_dump()
        if len(changes) < EVENTS_AT_ONCE:
            await asyncio.sleep(call.services.limits.streams.poll_interval(POLL_SECONDS))


def _changes_after(scope: TenantScope, collection: str, number: int) -> list[datapool.Change] | None:
    """The next changes; None once the stream's key has ended or lost its read access, or the collection is deleted."""
    if not continued_access.is_still_allowed(scope, "entities.read"):
        return None
    try:
        return datapool.list_changes_after(scope, collection, number, EVENTS_AT_ONCE)
    except NotFound:
        return None


@route(
    "POST", "/datapool/{collection}/query", scope="entities.read", body=QUERY, query=NoQuery, returns=Entity, listed=True,
    acts=Acts("query_entities", "read"), errors=(InvalidCursor, InvalidFilter),
)  # fmt: skip
def query_entities(call: Call, collection: str) -> Page[Entity]:
    """Query entities, or groups of them.

    The body is `{filter, sort, fields, expand, search, group, aggregate: {name: {fn: count|sum|avg|min|max, field}}, having,
    limit, cursor, count}`; all members are optional.
    """
    return datapool.query_entities(call.scope, collection, call.body)


@route(
    "POST", "/datapool/{collection}/import", scope="entities.write", body=ROWS, query=ImportQuery, returns=ImportView,
    errors=(UnsupportedMediaType,),
)  # fmt: skip
def import_entities(call: Call, collection: str) -> ImportView:
    """Import entities from CSV or NDJSON.

    CSV is `text/csv`, with an optional `charset`; NDJSON is `application/x-ndjson`. Every row is stored, or reported with its
    line and field. With `on_error=refuse`, nothing is stored unless every row is valid; otherwise the answer is 422 with the
    first 100 problems as details (a dry run returns the report). An import in one transaction (`refuse`, `dry_run`, an
    Idempotency-Key) may have at most 20,000 lines.
    """
    media, parameters = parse_options_header(call.headers.get("content-type", ""))
    media = media.strip().lower()
    if media not in MEDIA:
        raise UnsupportedMediaType(Sentence("send the rows as %(media)s", media=' or '.join(MEDIA)))
    key = tuple(name.strip() for name in call.query.key.split(",") if name.strip())
    with call.body.received.open() as file:
        options = datapool.ImportOptions(
            MEDIA[media], key, call.query.on_error, dry_run=call.query.dry_run, delimiter=call.query.delimiter,
            in_write=call.idempotency is not None, decimal=call.query.decimal,
            encoding=datapool.detect_charset(file, MEDIA[media], parameters.get("charset", "")),
        )  # fmt: skip
        report = datapool.import_entities(call.scope, collection, file, options)
    if report.failed and call.query.on_error == "refuse" and not call.query.dry_run:
        raise report.to_error()
    return ImportView.model_validate(asdict(report))


@route(
    "GET", "/datapool/{collection}/export", scope="entities.read", query=ExportQuery, media="application/octet-stream",
    acts=Acts("query_entities"),
)  # fmt: skip
def export_entities(call: Call, collection: str) -> Answer:
    """Export entities as CSV or NDJSON.

    The oldest come first. A text that a spreadsheet would execute gets an apostrophe in CSV, which the import removes.
    """
    format_ = call.query.format
    filters = read_filter(call, call.query.filter)
    data = b"".join(datapool.export_entities(call.scope, collection, format_, filter_document=filters))
    name = json.dumps(f"{collection}.{format_}")
    return Answer(data, headers={"Content-Disposition": f"attachment; filename={name}"})
