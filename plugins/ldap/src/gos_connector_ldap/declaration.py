"""The settings and actions of the connector as JSON Schemas."""

from typing import Any

from appliance.connectors.contract import Action, object_schema

Schema = dict[str, Any]

USUAL_ENTRIES = 500
USUAL_PAGE = 500
MOST_ENTRIES = 10_000

_DN: Schema = {"type": "string", "maxLength": 2_000}
_ATTRIBUTE: Schema = {"type": "string", "pattern": r"^([A-Za-z0-9][A-Za-z0-9.;=-]{0,200}|[*+])$"}
_NAMES: Schema = {"type": "array", "items": _ATTRIBUTE, "minItems": 1, "maxItems": 200}


SETTINGS: Schema = {
    **object_schema(
        ["host"],
        host={"type": "string", "minLength": 1, "maxLength": 253, "title": "Server", "secret_target": True},
        port={
            "type": "integer",
            "minimum": 1,
            "maximum": 65535,
            "title": "Port",
            "description": "Default: 636 for tls, 389 otherwise",
            "secret_target": True,
        },
        tls={
            "enum": ["tls", "starttls", "off"],
            "default": "tls",
            "title": "Encryption",
            "secret_target": True,
            "description": "tls: encrypted from the start; starttls: switches to TLS after connecting; off: clear text, no sign-in",
        },
        ca={
            "type": "string",
            "title": "Certificate authority",
            "description": "PEM certificates to trust instead of the system's",
            "secret_target": True,
        },
        bind_dn={
            "type": "string",
            "minLength": 1,
            "maxLength": 2_000,
            "title": "User",
            "description": "A distinguished name, or another form the directory accepts; leave empty to search without signing in",
        },
        # With an empty password the bind would succeed anonymously (RFC 4513 § 5.1.2).
        password={"type": "string", "minLength": 1, "maxLength": 4_000, "title": "Password", "secret": True},
        page_size={
            "type": "integer",
            "minimum": 1,
            "maximum": 1_000,
            "default": USUAL_PAGE,
            "title": "Entries per page",
            "description": "Use fewer if the directory limits pages",
        },
        base_dn={**_DN, "title": "Base", "description": "Default base of searches, such as dc=example,dc=com"},
    ),
    "dependentRequired": {"bind_dn": ["password"], "password": ["bind_dn"]},
}

_ENTRY: Schema = object_schema(
    ["dn", "attributes"],
    dn={"type": "string"},
    attributes={
        "type": "object",
        "additionalProperties": {
            "type": "array",
            "items": {"anyOf": [{"type": "string"}, object_schema(["base64"], base64={"type": "string"})]},
        },
    },
)
_REQUESTED_ATTRIBUTES: Schema = {
    **_NAMES,
    "title": "Attributes",
    "description": "Default: all user attributes; `+` stands for operational attributes",
}
_BINARY: Schema = {
    **_NAMES,
    "title": "In base64",
    "description": "Attributes with binary values; common ones are recognised automatically",
}

ACTIONS = (
    Action(
        "search",
        "Find entries below a base",
        object_schema(
            [],
            base={**_DN, "title": "Base", "description": "Default: the base in the settings"},
            scope={
                "enum": ["sub", "one", "base"],
                "default": "sub",
                "title": "Scope: the whole subtree, one level, or only the base",
            },
            where={
                "type": "object",
                "title": "Conditions",
                "description": 'All must match: {"mail": "a@example.com", "sn": {"_starts_with": "M"}, "_or": [...]}',
            },
            filter={
                "type": "string",
                "minLength": 3,
                "maxLength": 10_000,
                "title": "Filter",
                "description": "An LDAP filter instead of conditions; never insert untrusted values",
            },
            attributes=_REQUESTED_ATTRIBUTES,
            binary=_BINARY,
            limit={"type": "integer", "minimum": 1, "maximum": MOST_ENTRIES, "default": USUAL_ENTRIES},
        ),
        object_schema(
            ["entries", "truncated"],
            entries={"type": "array", "items": _ENTRY},
            truncated={"type": "boolean"},
            referrals={"type": "array", "items": {"type": "string"}},
        ),
        "read",
        {"where": {"objectClass": "person"}, "attributes": ["cn", "mail"], "limit": 10},
    ),
    Action(
        "get",
        "Read one entry by its DN; `entry` is null if it does not exist or is not visible",
        object_schema(["dn"], dn={**_DN, "minLength": 1}, attributes=_REQUESTED_ATTRIBUTES, binary=_BINARY),
        object_schema(["entry"], entry={"anyOf": [_ENTRY, {"type": "null"}]}),
        "read",
        {"dn": "uid=anna,ou=people,dc=example,dc=com"},
    ),
    Action(
        "describe",
        "Describe the directory: its naming contexts, vendor and capabilities",
        object_schema([]),
        object_schema(["root"], root={"type": "object", "additionalProperties": {"type": "array"}}),
        "read",
    ),
)
