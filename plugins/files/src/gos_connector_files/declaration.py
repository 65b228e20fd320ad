"""What the connectors take and give: actions and the trigger as JSON Schemas."""

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
        "modified": {"type": ["string", "null"], "description": "RFC 3339; null where the server does not tell"},
    },
}
_CONTENT = {
    "base64": {"type": "string", "description": "The content as base64"},
    "text": {"type": "string", "description": "The content as text, in UTF-8"},
}


def _takes(*required: str, **properties: Any) -> Json:
    return {"type": "object", "required": list(required), "additionalProperties": False, "properties": properties}


def _gives(*required: str, **properties: Any) -> Json:
    return {"type": "object", "required": list(required), "properties": properties}


def _action(name: str, summary: str, effect: Effect, schemas: tuple[Json, Json], **sample: Any) -> Action:
    return Action(name, summary, schemas[0], schemas[1], effect, sample)


_LIST = (
    _takes(
        folder=_FOLDER,
        limit={"type": "integer", "minimum": 1, "maximum": MOST_LISTED, "default": USUAL_LISTED},
        after={"type": "string", "description": "`after` of the page before"},
    ),
    _gives(
        "entries",
        "after",
        entries={"type": "array", "items": _ENTRY},
        after={"type": ["string", "null"], "description": "Asks for the next page; null on the last"},
    ),
)
_STAT = (_takes("path", path=PATH), _gives("exists", exists={"type": "boolean"}, entry=_ENTRY))
_GET = (
    _takes(
        "path",
        path=PATH,
        format={"enum": ["base64", "text"], "default": "base64", "description": "text: the file is UTF-8"},
        most_bytes={"type": "integer", "minimum": 1, "maximum": MOST_BYTES, "default": MOST_BYTES},
        as_document={"type": "boolean", "default": False, "description": "Keep it as a document and answer its id"},
    ),
    _gives("size", size={"type": "integer"}, document={"type": "string", "description": "Its id"}, **_CONTENT),
)
_PUT = (
    {
        **_takes("path", path=PATH, document={"type": "string", "description": "The id of the document to write"}, **_CONTENT),
        "oneOf": [{"required": ["text"]}, {"required": ["base64"]}, {"required": ["document"]}],
    },
    _gives("size", size={"type": "integer"}),
)
_MOVE = (_takes("path", "to", path=PATH, to=PATH), _gives("path", path={"type": "string"}))
_DELETE = (_takes("path", path=PATH), _gives("deleted", deleted={"type": "boolean", "description": "False: nothing was there"}))
_MAKE = (_takes("path", path=PATH), _gives("made", made={"type": "boolean", "description": "False: it was there"}))

_COPY = (_takes("path", "to", path=PATH, to=PATH), _gives("path", path={"type": "string"}))
_PRESIGN = (
    _takes(
        "path",
        path=PATH,
        method={"enum": ["get", "put"], "default": "get", "description": "get: to download; put: to upload"},
        seconds={"type": "integer", "minimum": 1, "maximum": MOST_SECONDS, "default": USUAL_SECONDS},
    ),
    _gives(
        "url",
        url={"type": "string", "description": "Works for whoever has it"},
        method={"type": "string"},
        seconds={"type": "integer"},
    ),
)

ACTIONS: tuple[Action, ...] = (
    _action("list", "List a folder by name, page by page", "read", _LIST),
    _action("make_folder", "Make a folder with those above it", "idempotent", _MAKE, path="gos-sample"),
    _action(
        "put", "Write a whole file, new or in place of the old one", "idempotent", _PUT, path="gos-sample/hello.txt", text="hello"
    ),
    _action("stat", "Ask whether something is there, and what", "read", _STAT, path="gos-sample/hello.txt"),
    _action("get", "Read a whole file", "read", _GET, path="gos-sample/hello.txt"),
    _action(
        "move",
        "Rename a file or folder; never over another",
        "write",
        _MOVE,
        path="gos-sample/hello.txt",
        to="gos-sample/moved.txt",
    ),
    _action("delete", "Remove a file or an empty folder", "idempotent", _DELETE, path="gos-sample/moved.txt"),
)

_SAMPLE = "gos-sample/hello.txt"
BUCKET_ACTIONS: tuple[Action, ...] = (
    *(action for action in ACTIONS if action.name not in ("move", "delete")),
    _action("copy", "Copy a file, in place of what is there", "idempotent", _COPY, path=_SAMPLE, to="gos-sample/copied.txt"),
    _action("presign", "Make an address with which anybody may get or put a file", "idempotent", _PRESIGN, path=_SAMPLE),
    *(action for action in ACTIONS if action.name in ("move", "delete")),
)

TRIGGERS: tuple[Trigger, ...] = (
    Trigger(
        "new_files",
        "Files of a folder that are new or changed, once they have stopped growing",
        _takes(
            folder=_FOLDER,
            pattern={"type": "string", "minLength": 1, "maxLength": 200, "default": "*", "description": "As of a shell: *.csv"},
            begin={"enum": ["now", "start"], "default": "now", "description": "Whether what is there already counts as new"},
        ),
        _ENTRY,
        {},
    ),
)
