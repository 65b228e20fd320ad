"""JSON Schemas shared by the declarations of the connectors."""

from typing import Any

from appliance.connectors.contract import object_schema

Schema = dict[str, Any]

DEFAULT_RECORDS = 500
MAX_RECORDS = 10_000


TEXT: Schema = {"type": "string", "minLength": 1}
SECRET: Schema = {"type": "string", "minLength": 1, "secret": True}
KEY: Schema = {**SECRET, "pattern": "^[!-~]+$"}  # sent in a header, so visible ASCII only
ADDRESS: Schema = {"type": "string", "pattern": r"^https?://[^/?#@\\]+(/[^?#\\]*)?$", "title": "Address", "secret_target": True}


def base_url(default: str) -> Schema:
    """Return the schema of an address that is only changed for a gateway or a test."""
    return {**ADDRESS, "default": default}


TIMEOUT: Schema = {"type": "number", "exclusiveMinimum": 0, "maximum": 900, "default": 60, "title": "Seconds per request"}
LIMIT: Schema = {"type": "integer", "minimum": 1, "maximum": MAX_RECORDS, "default": DEFAULT_RECORDS}
BEGIN: Schema = {
    "enum": ["now", "start"],
    "default": "now",
    "title": "Begin",
    "description": "Whether to begin with changes from now on or with all existing records.",
}
RECORDS: Schema = {"type": "array", "items": {"type": "object"}}
RECORDS_PAGE: Schema = object_schema(["records", "truncated"], records=RECORDS, truncated={"type": "boolean"})
ITEM: Schema = object_schema(
    ["id", "changed_at", "record"], id={"type": ["string", "integer"]}, changed_at=TEXT, record={"type": "object"}
)
