"""The actions and the trigger of the file connectors, with their JSON Schemas."""

from typing import Any

from appliance.connectors.contract import Action, Effect, Json, Trigger

MOST_BYTES = 5 * 1024 * 1024
MOST_LISTED = 1_000
USUAL_LISTED = 200
MOST_WATCHED = 5_000
MOST_SECONDS = 7 * 24 * 3600
USUAL_SECONDS = 3600

PATH = {
    "type": "string",
    "minLength": 1,
    "maxLength": 1000,
    "description": "Relative to the integration's root, names separated by /",
}
_FOLDER = {"type": "string", "maxLength": 1000, "default": "", "description": "The folder; empty for the integration's root"}
_ENTRY: dict[str, Any] = {
    "type": "object",
    "required": ["path", "name", "kind", "size", "modified"],
    "properties": {
        "path": {"type": "string"},
        "name": {"type": "string"},
        "kind": {"enum": ["file", "folder", "other"]},
        "size": {"type": "integer", "description": "Bytes"},
        "modified": {"type": ["string", "null"], "description": "RFC 3339; null if the server does not report it"},
    },
}
_CONTENT = {
    "base64": {"type": "string", "description": "The content as base64"},
    "text": {"type": "string", "description": "The content as text, in UTF-8"},
}


def _input_schema(*required: str, **properties: Any) -> Json:
    return {"type": "object", "required": list(required), "additionalProperties": False, "properties": properties}


def _output_schema(*required: str, **properties: Any) -> Json:
    return {"type": "object", "required": list(required), "properties": properties}


def _action(name: str, summary: str, effect: Effect, schemas: tuple[Json, Json], **sample: Any) -> Action:
    return Action(name, summary, schemas[0], schemas[1], effect, sample)


_LIST_SCHEMAS = (
    _input_schema(
        folder=_FOLDER,
        limit={"type": "integer", "minimum": 1, "maximum": MOST_LISTED, "default": USUAL_LISTED},
        after={"type": "string", "description": "The `after` of the previous page"},
    ),
    _output_schema(
        "entries",
        "after",
        entries={"type": "array", "items": _ENTRY},
        after={"type": ["string", "null"], "description": "Requests the next page; null on the last"},
    ),
)
_STAT_SCHEMAS = (_input_schema("path", path=PATH), _output_schema("exists", exists={"type": "boolean"}, entry=_ENTRY))
_GET_SCHEMAS = (
    _input_schema(
        "path",
        path=PATH,
        format={"enum": ["base64", "text"], "default": "base64", "description": "text: decode the file as UTF-8"},
        most_bytes={"type": "integer", "minimum": 1, "maximum": MOST_BYTES, "default": MOST_BYTES},
        as_document={"type": "boolean", "default": False, "description": "Store the content as a document and return its id"},
    ),
    _output_schema("size", size={"type": "integer"}, document={"type": "string", "description": "Its id"}, **_CONTENT),
)
_PUT_SCHEMAS = (
    {
        **_input_schema(
            "path", path=PATH, document={"type": "string", "description": "The id of the document to write"}, **_CONTENT
        ),
        "oneOf": [{"required": ["text"]}, {"required": ["base64"]}, {"required": ["document"]}],
    },
    _output_schema("size", size={"type": "integer"}),
)
_MOVE_SCHEMAS = (_input_schema("path", "to", path=PATH, to=PATH), _output_schema("path", path={"type": "string"}))
_DELETE_SCHEMAS = (
    _input_schema("path", path=PATH),
    _output_schema("deleted", deleted={"type": "boolean", "description": "False if nothing existed"}),
)
_MAKE_FOLDER_SCHEMAS = (
    _input_schema("path", path=PATH),
    _output_schema("made", made={"type": "boolean", "description": "False if it already existed"}),
)

_COPY_SCHEMAS = (_input_schema("path", "to", path=PATH, to=PATH), _output_schema("path", path={"type": "string"}))
_PRESIGN_SCHEMAS = (
    _input_schema(
        "path",
        path=PATH,
        method={"enum": ["get", "put"], "default": "get", "description": "get: to download; put: to upload"},
        seconds={"type": "integer", "minimum": 1, "maximum": MOST_SECONDS, "default": USUAL_SECONDS},
    ),
    _output_schema(
        "url",
        url={"type": "string", "description": "Works for anyone who has it"},
        method={"type": "string"},
        seconds={"type": "integer"},
    ),
)

ACTIONS: tuple[Action, ...] = (
    _action("list", "List a folder by name, page by page", "read", _LIST_SCHEMAS),
    _action("make_folder", "Create a folder and its parent folders", "idempotent", _MAKE_FOLDER_SCHEMAS, path="gos-sample"),
    _action(
        "put", "Write a file, replacing an existing one", "idempotent", _PUT_SCHEMAS, path="gos-sample/hello.txt", text="hello"
    ),
    _action("stat", "Check whether a file or folder exists", "read", _STAT_SCHEMAS, path="gos-sample/hello.txt"),
    _action("get", "Read a whole file", "read", _GET_SCHEMAS, path="gos-sample/hello.txt"),
    _action(
        "move",
        "Move or rename a file or folder without overwriting anything",
        "write",
        _MOVE_SCHEMAS,
        path="gos-sample/hello.txt",
        to="gos-sample/moved.txt",
    ),
    _action("delete", "Remove a file or an empty folder", "idempotent", _DELETE_SCHEMAS, path="gos-sample/moved.txt"),
)

_SAMPLE = "gos-sample/hello.txt"
BUCKET_ACTIONS: tuple[Action, ...] = (
    *(action for action in ACTIONS if action.name not in ("move", "delete")),
    _action(
        "copy",
        "Copy a file, replacing an existing one",
        "idempotent",
        _COPY_SCHEMAS,
        path=_SAMPLE,
        to="gos-sample/copied.txt",
    ),
    _action(
        "presign",
        "Create a URL with which anyone can download or upload a file",
        "idempotent",
        _PRESIGN_SCHEMAS,
        path=_SAMPLE,
    ),
    *(action for action in ACTIONS if action.name in ("move", "delete")),
)

TRIGGERS: tuple[Trigger, ...] = (
    Trigger(
        "new_files",
        "New or changed files in a folder, once they stop growing",
        _input_schema(
            folder=_FOLDER,
            pattern={
                "type": "string",
                "minLength": 1,
                "maxLength": 200,
                "default": "*",
                "description": "A shell pattern such as *.csv",
            },
            begin={"enum": ["now", "start"], "default": "now", "description": "Whether existing files count as new"},
        ),
        _ENTRY,
        {},
    ),
)
