"""What a tenant says of its documents: an object of its own, whose members can be asked for."""

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
LONGEST_ASKED = 1000  # characters of a value that lists can be narrowed by
_EXACT = 2**53

Metadata = Mapping[str, Any]


def check_metadata(metadata: Metadata, pointer: str = "/metadata") -> dict[str, Any]:
    """The object itself, in the order of its names; ValidationFailed."""
    for name in metadata:
        if not 1 <= len(name) <= LONGEST_NAME or not name.isprintable() or name != name.strip():
            raise ValidationFailed(
                Sentence(
                    "%(name)s is not a name; use 1 to %(longest_name)s printable characters",
                    name=repr(name[:80]), longest_name=LONGEST_NAME,
                ),
                pointer=f"{pointer}/{name[:80].replace('~', '~0').replace('/', '~1')}",
            )
    if len(metadata) > MOST_MEMBERS:
        raise ValidationFailed(
            Sentence("a document's metadata has at most %(most_members)s members", most_members=MOST_MEMBERS), pointer=pointer
        )
    ordered = dict(sorted(metadata.items()))
    if len(_written(ordered, pointer)) > MOST_BYTES:
        raise ValidationFailed(
            Sentence("a document's metadata has at most %(most_bytes)s KiB as JSON", most_bytes=MOST_BYTES >> 10), pointer=pointer
        )
    return ordered


def _written(value: Any, pointer: str) -> bytes:
    try:
        return db.dump_json(value).encode()
    except (ValueError, TypeError) as error:  # NaN, or half of a pair of surrogates
        raise ValidationFailed("this is not JSON that every program reads", pointer=pointer) from error


def read_metadata(text: str, pointer: str = "/metadata") -> dict[str, Any]:
    """The object that a JSON text holds; ValidationFailed."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValidationFailed('write the metadata as a JSON object: {"customer": "ACME"}', pointer=pointer) from error
    if not isinstance(found, dict):
        raise ValidationFailed('write the metadata as a JSON object: {"customer": "ACME"}', pointer=pointer)
    return check_metadata(found, pointer)


def merge(old: Metadata, patch: Metadata) -> dict[str, Any]:
    """RFC 7396: null takes a member away, objects are merged member by member."""
    merged = dict(old)
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        elif isinstance(value, dict):
            known = merged.get(name)
            merged[name] = merge(known if isinstance(known, dict) else {}, value)
        else:
            merged[name] = value
    return merged


def set_metadata(scope: TenantScope, document_id: str, metadata: Metadata) -> None:
    """Inside a write: what can be asked for is what the object says, and nothing else."""
    scope.delete(DocumentMetadata).where(DocumentMetadata.document_id == document_id).execute()
    for name, value in metadata.items():
        if (asked := _asked(value)) is not None:
            scope.insert(DocumentMetadata, document_id=document_id, name=name, value=asked)


def having(scope: TenantScope, query: Any, document_id: Any, wanted: Metadata) -> Any:
    """The query narrowed to documents whose metadata has every member of `wanted`; InvalidFilter."""
    for name, value in wanted.items():
        asked = _asked(value)
        if asked is None:
            raise InvalidFilter(Sentence(
                "metadata %(name)s: documents are found by texts, numbers and truth values of at most "
                "%(longest_asked)s characters",
                name=repr(name[:80]), longest_asked=LONGEST_ASKED,
            ))
        equal = (DocumentMetadata.name == name) & (DocumentMetadata.value == asked)
        query = query.where(document_id.in_(scope.select(DocumentMetadata, DocumentMetadata.document_id).where(equal)))
    return query


def _asked(value: Any) -> str | None:
    """The one text of equal values (1 and 1.0 are equal, true and 1 are not); None for what is not compared."""
    if isinstance(value, float) and value.is_integer() and abs(value) < _EXACT:
        value = int(value)
    if not isinstance(value, str | int | float):
        return None
    text = db.dump_json(value)
    return text if len(text) <= LONGEST_ASKED else None
