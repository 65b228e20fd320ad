"""Views, bodies and query parameters of the DataPool's routes."""

from dataclasses import asdict
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from appliance.core.pages import DEFAULT_LIMIT
from appliance.datapool import service as datapool

from .frame.routing import Body, ListQuery, Query, View

Entity = Annotated[dict[str, Any], Field(description=(
    "The values by field, and the entity's `id` (`ent_…`), `created_at` and `updated_at` (RFC 3339, UTC) and `_version`."
))]
JsonFilter = Annotated[
    str | None, Field(description='A filter as JSON, such as `{"total": {"_gt": 100}}`; default: every entity.')
]


class StepView(View):
    """One step of a schema change: it loses `lost` values, and `blocked` entities prevent it."""

    field: Annotated[str, Field(description=(
        "The field concerned, by its new name; several names for a combination that must be unique, `access` for a rule."
    ))]
    change: Annotated[
        str, Field(description="What happens: `add`, `drop`, `rename`, `convert`, `require`, `unique`, `index` or `access`.")
    ]
    message: Annotated[str, Field(description="The change in words, and what to do where entities prevent it.")]
    lost: Annotated[int, Field(description="How many values disappear; more than 0 needs `allow_loss`.")]
    blocked: Annotated[int, Field(description="How many entities make the change impossible; it is refused unless this is 0.")]


class CollectionView(View):
    """A collection's definition."""

    model_config = ConfigDict(frozen=True, serialize_by_alias=True)

    name: Annotated[str, Field(description=(
        "Identifies the collection in the tenant: at most 63 lower-case letters, digits, hyphens and underscores."
    ))]
    description: Annotated[
        str | None, Field(description="What the collection is for, at most 2,000 characters. Absent if there is none.")
    ] = None
    fields: Annotated[list[dict[str, Any]], Field(description=(
        "The fields, 1 to 200: `id`, `name`, `type`, `required`, `unique`, `default` and the options of the type."
    ))]
    indexes: Annotated[list[dict[str, Any]], Field(description="The indexes, at most 20: `fields` (1 to 8 names) and `unique`.")]
    search: Annotated[list[str], Field(description="The names of the fields that `search` looks at.")]
    access: Annotated[dict[str, Any], Field(description=(
        "What WebApps, members and agents may do: `list`, `view`, `create`, `update`, `delete`, each `deny`, `allow` or a filter."
    ))]
    created_at: Annotated[str, Field(description="When the collection was created; RFC 3339, UTC.")]
    updated_at: Annotated[str, Field(description="When its definition last changed; RFC 3339, UTC.")]
    version: Annotated[int, Field(serialization_alias="_version", description=(
        "The number of changes of the definition, from 1. The ETag of the collection."
    ))]
    steps: Annotated[list[StepView] | None, Field(description=(
        "What the change does or, with `dry_run`, would do. Absent unless the definition is being changed."
    ))] = None


class ChangeQuery(Query):
    dry_run: Annotated[bool, Field(description="Return the steps of the change and change nothing.")] = False
    allow_loss: Annotated[bool, Field(description="Accept that values are lost by dropping or converting fields.")] = False


class DeleteQuery(Query):
    allow_loss: Annotated[bool, Field(description="Delete the collection although it has entities.")] = False


class EntityQuery(Query):
    fields: Annotated[
        str | None, Field(description="The names of the fields to return, separated by commas, at most 50; default: all.")
    ] = None
    expand: Annotated[str | None, Field(description=(
        "The names of relation fields whose entities are to be included, separated by commas, at most 50."
    ))] = None


class EntityListQuery(ListQuery, EntityQuery):
    """`filter` is a filter as JSON; `fields` and `expand` are comma-separated names."""

    filter: JsonFilter = None
    search: Annotated[str | None, Field(description=(
        "Words that the searched fields must all contain, separated by spaces: at most 10 of 100 characters each."
    ))] = None


class BatchBody(Body):
    """Operations that are stored together or not at all."""

    operations: Annotated[
        list[Any], Field(description="The operations in order, 1 to 1,000: `{op, collection, id?, key?, values?, if_version?}`.")
    ]
    dry_run: Annotated[bool, Field(description="Check the operations and return their results, but store nothing.")] = False


class OutcomeView(View):
    """The result of one operation of a batch."""

    event: Annotated[Literal["created", "updated", "unchanged", "deleted"], Field(description=(
        "What happened to the entity; `unchanged` if the values were already those."
    ))]
    collection: Annotated[str, Field(description="The name of the entity's collection.")]
    entity: Annotated[Entity, Field(description=(
        "The entity after the operation, or before its deletion: its values and `id`, `created_at`, `updated_at`, `_version`."
    ))]


class ImportQuery(Query):
    """`key` lists the fields, comma-separated, that identify an entity: rows are then upserted.  `decimal` is the decimal
    separator of a CSV's numbers: with a comma, `1.234,50` is read."""

    key: Annotated[str, Field(description=(
        "The fields that identify an entity, separated by commas: rows are then upserted. Empty: every row is a new entity."
    ))] = ""
    on_error: Annotated[Literal["report", "refuse"], Field(description=(
        "`report` stores the valid rows and lists the others; `refuse` stores nothing unless every row is valid."
    ))] = "report"
    dry_run: Annotated[bool, Field(description="Check the rows and return the report, but store nothing.")] = False
    delimiter: Annotated[str, Field(pattern="^[,;|\t]?$", description=(
        "The character between the cells of a CSV: comma, semicolon, bar or tab. Empty: it is detected."
    ))] = ""
    decimal: Annotated[
        Literal[".", ","], Field(description="The decimal separator of a CSV's numbers; with a comma, `1.234,50` is 1234.5.")
    ] = "."


class ImportErrorView(View):
    """A row that was not imported, and why."""

    line: Annotated[int, Field(description="The line of the row in the file, from 1.")]
    field: Annotated[
        str | None, Field(description="The field whose value is not accepted. Absent if the whole row is wrong.")
    ] = None
    code: Annotated[str, Field(description="What kind of problem it is, such as `wrong_type` or `not_unique`; stable.")]
    message: Annotated[str, Field(description="What is wrong with the value or row.")]


class ImportView(View):
    """Counts of imported rows; `errors` lists the first 1,000 errors, `error_count` counts all of them."""

    rows: Annotated[int, Field(description="The number of rows in the file, without the header.")]
    created: Annotated[int, Field(description="How many rows became new entities.")]
    updated: Annotated[int, Field(description="How many rows changed an existing entity.")]
    unchanged: Annotated[int, Field(description="How many rows were equal to an existing entity.")]
    failed: Annotated[int, Field(description="How many rows were not accepted.")]
    stored: Annotated[bool, Field(description="Whether the accepted rows were stored; false after a dry run and a refusal.")]
    ignored_columns: Annotated[list[str], Field(description="The columns of a CSV that are no field of the collection.")]
    error_count: Annotated[int, Field(description="The number of all errors; one row may have several.")]
    errors: Annotated[list[ImportErrorView], Field(description="The first 1,000 errors, by line.")]


class HistoryQuery(Query):
    limit: Annotated[int, Field(description="The most changes to return, 1 to 500.")] = DEFAULT_LIMIT
    cursor: Annotated[
        str | None, Field(description="Where to continue: the `next_cursor` of the previous page; default: the newest change.")
    ] = None


class ChangeView(View):
    """One change of an entity; `entity` is its state after the change, or before a deletion."""

    event: Annotated[
        Literal["created", "updated", "deleted"], Field(description="Whether the entity was created, updated or deleted.")
    ]
    version: Annotated[int, Field(description="The `_version` of the entity after the change, or its last before a deletion.")]
    at: Annotated[str, Field(description="When the change was made; RFC 3339, UTC.")]
    actor: Annotated[str, Field(description="Who made it, such as `user:<id>`, `key:<id>` or `execution:<id>`.")]
    entity: Annotated[Entity, Field(description="The entity after the change, or before its deletion.")]


class ExportQuery(Query):
    format: Annotated[Literal["csv", "ndjson"], Field(description=(
        "The format of the file: `csv` with a header line, or `ndjson` with one JSON object for each line."
    ))] = "csv"
    filter: JsonFilter = None


def collection_view(collection: dict[str, Any]) -> CollectionView:
    members = {("version" if name == "_version" else name): value for name, value in collection.items()}
    return CollectionView(**members)


def change_view(change: datapool.Change) -> ChangeView:
    return ChangeView.model_validate(asdict(change))
