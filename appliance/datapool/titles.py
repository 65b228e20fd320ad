"""Titles of entities, shown where another entity refers to them: the value of the most descriptive field."""

from collections.abc import Iterable

from appliance.conditions import Compare
from appliance.datapool.compiled import CompiledCollection
from appliance.datapool.definition import CollectionDefinition, FieldDefinition
from appliance.datapool.entities import is_entity_id
from appliance.datapool.field_types import to_text
from appliance.datapool.queries import find_rows

MAX_TITLE_LENGTH = 120
_NAMES = ("name", "title", "label", "subject")
_TEXTS = ("text", "email", "select", "url")


def find_title_field(definition: CollectionDefinition) -> FieldDefinition | None:
    """The field used as the title: one named like a title, else a unique one, a searched one, or the first text field."""
    texts = [field for field in definition.fields if field.type in _TEXTS]
    ranked = (
        *(field for field in texts if field.name.lower() in _NAMES),
        *(field for field in definition.fields if field.unique),
        *(field for field in texts if field.id in definition.search),
        *(field for field in texts if field.name.lower().endswith(_NAMES)),
        *texts,
    )
    return ranked[0] if ranked else None


def find_titles(collection: CompiledCollection, entity_ids: Iterable[str]) -> dict[str, str]:
    """The titles by id, for the entities that exist and have one."""
    field = find_title_field(collection.definition)
    valid_ids = sorted({entity_id for entity_id in entity_ids if is_entity_id(entity_id)})
    if field is None or not valid_ids:
        return {}
    views = (collection.to_view(row) for row in find_rows(collection, Compare("id", "_in", tuple(valid_ids))))
    return {
        entity["id"]: to_text(entity[field.name])[:MAX_TITLE_LENGTH] for entity in views if entity[field.name] not in (None, "")
    }
