"""What an entity is called where another leads to it: the value of the field that tells it from others best."""

from collections.abc import Iterable

from appliance.conditions import Compare
from appliance.datapool.compiled import CompiledCollection
from appliance.datapool.definition import CollectionDefinition, FieldDefinition
from appliance.datapool.entities import is_entity_id
from appliance.datapool.field_types import to_text
from appliance.datapool.queries import find_rows

LONGEST = 120
_NAMES = ("name", "title", "label", "subject")
_TEXTS = ("text", "email", "select", "url")


def title_field(definition: CollectionDefinition) -> FieldDefinition | None:
    """The field that names an entity: one called so, else a unique one, one that is searched, or the first text."""
    texts = [field for field in definition.fields if field.type in _TEXTS]
    ranked = (
        *(field for field in texts if field.name.lower() in _NAMES),
        *(field for field in definition.fields if field.unique),
        *(field for field in texts if field.id in definition.search),
        *(field for field in texts if field.name.lower().endswith(_NAMES)),
        *texts,
    )
    return ranked[0] if ranked else None


def titles_of(collection: CompiledCollection, entity_ids: Iterable[str]) -> dict[str, str]:
    """The titles of those entities that are there and have one."""
    field = title_field(collection.definition)
    wanted = sorted({entity_id for entity_id in entity_ids if is_entity_id(entity_id)})
    if field is None or not wanted:
        return {}
    shown = (collection.show(row) for row in find_rows(collection, Compare("id", "_in", tuple(wanted))))
    return {entity["id"]: to_text(entity[field.name])[:LONGEST] for entity in shown if entity[field.name] not in (None, "")}
