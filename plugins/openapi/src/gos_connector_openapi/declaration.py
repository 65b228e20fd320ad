"""What the connector declares: the schema of its settings."""

from typing import Any

from appliance.connectors.contract import auth_settings

Schema = dict[str, Any]

_TEXT: Schema = {"type": "string"}
_HEADER: Schema = {"type": "string", "pattern": "^[^\\r\\n]*$"}
_ADDRESS = "^https?://[^/?#@\\\\\\s]+(/[^?#\\\\\\s]*)?$"
_CREDENTIALS: Schema = {
    "type": "object",
    "title": "Credentials by security scheme",
    "description": "Under the document's name of the scheme: a key or token; for basic, user:password.",
    "additionalProperties": {"type": "string", "secret": True, "minLength": 1},
}
_PAGING: Schema = {
    "type": "object",
    "title": "How lists go on",
    "description": "By action, or * for every list.",
    "additionalProperties": {
        "type": "object",
        "required": ["kind"],
        "additionalProperties": False,
        "properties": {
            "kind": {"enum": ["none", "link", "next", "cursor", "page", "offset"]},
            "at": {**_TEXT, "description": "Path in the answer to the next address or cursor, like meta.next."},
            "parameter": {**_TEXT, "description": "Query parameter of the cursor, page or offset."},
            "size_parameter": {**_TEXT, "description": "Query parameter of the number of items in a page."},
            "items": {**_TEXT, "description": "Path in the answer to the list, like data.items."},
        },
    },
}

SETTINGS: Schema = {
    "type": "object",
    "additionalProperties": False,
    "secrets_need": "base_url",
    "oneOf": [{"required": ["document_url"]}, {"required": ["document"]}],
    "properties": {
        "document_url": {
            "type": "string",
            "pattern": "^https?://[^/?#@\\\\\\s]+(/[^\\\\\\s]*)?$",
            "title": "Address of the document",
            "description": "Fetched when the settings are tested, and before the first call after they changed.",
        },
        "document": {"type": "string", "title": "The document itself", "description": "JSON or YAML, up to 1 MB."},
        "base_url": {
            "type": "string",
            "pattern": _ADDRESS,
            "title": "Base address",
            "secret_target": True,
            "description": "Where the operations are. The document's first server when it is left out and no secret is sent.",
        },
        "auth": auth_settings("none", "basic", "bearer", "header", "query", "oauth2"),
        "credentials": _CREDENTIALS,
        "headers": {"type": "object", "additionalProperties": _HEADER, "title": "Headers of every call"},
        "check_path": {**_TEXT, "pattern": "^/", "title": "Path to GET for the test of the settings"},
        "effects": {
            "type": "object",
            "additionalProperties": {"enum": ["read", "idempotent", "write"]},
            "title": "Effects that differ from their method's",
            "description": "By action or operationId.",
        },
        "only_tags": {
            "type": "array",
            "items": {**_TEXT, "minLength": 1},
            "title": "Only operations with these tags",
            "description": 'A list like ["users", "groups"]. Left empty, every operation is taken.',
        },
        "only_paths": {
            "type": "array",
            "items": {**_TEXT, "pattern": "^/"},
            "title": "Only operations under these paths",
            "description": 'A list like ["/users/{id}"], as paths stand in the document; what lies below is taken too.',
        },
        "paging": _PAGING,
        "answers": {
            "enum": ["typed", "checked", "as_sent"],
            "default": "typed",
            "title": "Answers",
            "description": "typed: members may be missing or null, but not of another type. checked: as the document has them."
            " as_sent: anything.",
        },
    },
    "allOf": [
        {"if": {"required": ["credentials"]}, "then": {"required": ["base_url"]}},
        {
            "if": {
                "required": ["auth"],
                "properties": {"auth": {"required": ["kind"], "properties": {"kind": {"not": {"const": "none"}}}}},
            },
            "then": {"required": ["base_url"]},
        },
    ],
}
