"""Metadata of documents: a JSON object chosen by the tenant, whose fields can be used as filters."""

import json
from collections.abc import Mapping
from typing import Any

from appliance.core.database import db
from appliance.core.errors import InvalidFilter, ValidationFailed
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence

from .models import DocumentMetadata

MOST_MEMBERS = 50
MOST_BYTES = 16 << 10
LONGEST_NAME = 60
LONGEST_FILTER = 1000  # characters of a value usable as a filter
_EXACT = 2**53

Metadata = Mapping[str, Any]


def check_metadata(metadata: Metadata, pointer: str = "/metadata") -> dict[str, Any]:
    """The validated object, sorted by name; ValidationFailed."""
    for name in metadata:
        if not 1 <= len(name) <= LONGEST_NAME or not name.isprintable() or name != name.strip():
            raise ValidationFailed(
                Sentence(
                    "%(name)s is not a field name; use 1 to %(longest_name)s printable characters",
                    name=repr(name[:80]), longest_name=LONGEST_NAME,
                ),
                pointer=f"{pointer}/{name[:80].replace('~', '~0').replace('/', '~1')}",
            )
    if len(metadata) > MOST_MEMBERS:
        raise ValidationFailed(
            Sentence("a document's metadata has at most %(most_members)s members", most_members=MOST_MEMBERS), pointer=pointer
        )
    ordered = dict(sorted(metadata.items()))
    if len(_serialize(ordered, pointer)) > MOST_BYTES:
        raise ValidationFailed(
            Sentence("a document's metadata has at most %(most_bytes)s KiB as JSON", most_bytes=MOST_BYTES >> 10), pointer=pointer
        )
    return ordered


def _serialize(value: Any, pointer: str) -> bytes:
    try:
        return db.dump_json(value).encode()
    except (ValueError, TypeError) as error:  # NaN, or an unpaired surrogate
        raise ValidationFailed("this value cannot be represented in standard JSON", pointer=pointer) from error


def read_metadata(text: str, pointer: str = "/metadata") -> dict[str, Any]:
    """Parse metadata from JSON; ValidationFailed."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValidationFailed('enter the metadata as a JSON object: {"customer": "ACME"}', pointer=pointer) from error
    if not isinstance(value, dict):
        raise ValidationFailed('enter the metadata as a JSON object: {"customer": "ACME"}', pointer=pointer)
    return check_metadata(value, pointer)


def set_metadata(scope: TenantScope, document_id: str, metadata: Metadata) -> None:
    """Inside a write: replace the filterable fields by those of the object."""
    scope.delete(DocumentMetadata).where(DocumentMetadata.document_id == document_id).execute()
    for name, value in metadata.items():
        if (filter_value := _to_filter_value(value)) is not None:
            scope.insert(DocumentMetadata, document_id=document_id, name=name, value=filter_value)


def filter_by_metadata(scope: TenantScope, query: Any, document_id: Any, filters: Metadata) -> Any:
    """The query restricted to documents whose metadata has every field in `wanted`; InvalidFilter."""
    for name, value in filters.items():
        filter_value = _to_filter_value(value)
        if filter_value is None:
            raise InvalidFilter(Sentence(
                "metadata %(name)s: filters can be texts, numbers and booleans of at most "
                "%(longest_asked)s characters",
                name=repr(name[:80]), longest_asked=LONGEST_FILTER,
            ))
        equal = (DocumentMetadata.name == name) & (DocumentMetadata.value == filter_value)
        query = query.where(document_id.in_(scope.select(DocumentMetadata, DocumentMetadata.document_id).where(equal)))
    return query


def _to_filter_value(value: Any) -> str | None:
    """The canonical text of a value (1 equals 1.0, but true does not equal 1); None for values that cannot be compared."""
    if isinstance(value, float) and value.is_integer() and abs(value) < _EXACT:
        value = int(value)
    if not isinstance(value, str | int | float):
        return None
    text = db.dump_json(value)
    return text if len(text) <= LONGEST_FILTER else None
