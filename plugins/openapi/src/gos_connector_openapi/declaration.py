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
    "title": "Pagination",
    "description": "By action, or * for every list.",
    "additionalProperties": {
        "type": "object",
        "required": ["kind"],
        "additionalProperties": False,
        "properties": {
            "kind": {"enum": ["none", "link", "next", "cursor", "page", "offset"]},
            "at": {**_TEXT, "description": "Path to the next address or cursor in the answer, for example meta.next."},
            "parameter": {**_TEXT, "description": "Query parameter for the cursor, page or offset."},
            "size_parameter": {**_TEXT, "description": "Query parameter for the number of items per page."},
            "items": {**_TEXT, "description": "Path to the list in the answer, for example data.items."},
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
            "description": "Fetched when the settings are tested, and before the first call after a change.",
        },
        "document": {"type": "string", "title": "Document content", "description": "JSON or YAML, up to 1 MB."},
        "base_url": {
            "type": "string",
            "pattern": _ADDRESS,
            "title": "Base address",
            "secret_target": True,
            "description": "Address of the API. If left empty and no secret is sent, the document's first server is used.",
        },
        "auth": auth_settings("none", "basic", "bearer", "header", "query", "oauth2"),
        "credentials": _CREDENTIALS,
        "headers": {"type": "object", "additionalProperties": _HEADER, "title": "Headers of every call"},
        "check_path": {**_TEXT, "pattern": "^/", "title": "Path requested to test the settings"},
        "effects": {
            "type": "object",
            "additionalProperties": {"enum": ["read", "idempotent", "write"]},
            "title": "Effects that differ from the HTTP method's",
            "description": "By action or operationId.",
        },
        "only_tags": {
            "type": "array",
            "items": {**_TEXT, "minLength": 1},
            "title": "Only operations with these tags",
            "description": 'A list like ["users", "groups"]. If left empty, every operation is imported.',
        },
        "only_paths": {
            "type": "array",
            "items": {**_TEXT, "pattern": "^/"},
            "title": "Only operations under these paths",
            "description": 'A list like ["/users/{id}"], as written in the document. Paths below are included.',
        },
        "paging": _PAGING,
        "answers": {
            "enum": ["typed", "checked", "as_sent"],
            "default": "typed",
            "title": "Answers",
            "description": "typed: members may be missing or null, but must have the right type. checked: exactly as in the"
            " document. as_sent: not checked.",
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
