"""The base class of the file connectors: runs the actions and the trigger on a `Store` of the connector's protocol."""

import base64
import binascii
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any, ClassVar

from appliance.connectors.contract import Action, ConfigError, Connector, Context, Json, Polled, Rejected, Trigger
from gos_connector_files.declaration import ACTIONS, MOST_BYTES, TRIGGERS, USUAL_LISTED
from gos_connector_files.path import clean
from gos_connector_files.settling import new_files
from gos_connector_files.store import MOST_IN_FOLDER, Store


class FilesConnector(Connector):
    """Reads and writes files below one root."""

    contract_version = 1
    version = "0.1.0"
    actions: ClassVar[tuple[Action, ...]] = ACTIONS
    triggers: ClassVar[tuple[Trigger, ...]] = TRIGGERS

    def __init__(self, settings: Json) -> None:
        super().__init__(settings)
        self.verbs: dict[str, Callable[[Json, Context], dict[str, Any]]] = {
            "list": self._list_folder, "stat": self._stat, "get": self._get_file, "put": self._put_file, "move": self._move,
            "delete": self._delete, "make_folder": self._make_folder,
        }  # fmt: skip

    @abstractmethod
    def open(self, ctx: Context) -> AbstractContextManager[Store]:
        """Open a signed-in store for the duration of a call."""

    def poll(self, trigger: str, query: Json, cursor: Any, ctx: Context) -> Polled:
        if trigger != "new_files":
            return super().poll(trigger, query, cursor, ctx)
        folder = clean(query.get("folder", ""), may_be_root=True)
        with self.open(ctx) as store:
            entries = store.page(folder, None, MOST_IN_FOLDER).entries
        return new_files(entries, query, cursor)

    def _list_folder(self, params: Json, ctx: Context) -> dict[str, Any]:
        folder = clean(params.get("folder", ""), may_be_root=True)
        with self.open(ctx) as store:
            page = store.page(folder, params.get("after"), params.get("limit", USUAL_LISTED))
        return {"entries": [each.to_view() for each in page.entries], "after": page.after}

    def _stat(self, params: Json, ctx: Context) -> dict[str, Any]:
        path = clean(params["path"])
        with self.open(ctx) as store:
            entry = store.stat(path)
        return {"exists": False} if entry is None else {"exists": True, "entry": entry.to_view()}

    def _get_file(self, params: Json, ctx: Context) -> dict[str, Any]:
        path = clean(params["path"])
        if params.get("as_document", False):
            return self._get_document(path, ctx)
        with self.open(ctx) as store:
            content = store.read(path, params.get("most_bytes", MOST_BYTES))
        if params.get("format", "base64") == "base64":
            return {"size": len(content), "base64": base64.b64encode(content).decode("ascii")}
        try:
            return {"size": len(content), "text": content.decode("utf-8")}
        except UnicodeDecodeError as error:
            raise Rejected(f"{path!r} is not valid UTF-8; read it with `format: base64`.") from error

    def _get_document(self, path: str, ctx: Context) -> dict[str, Any]:
        size = 0

        def count_bytes(pieces: Iterable[bytes]) -> Iterator[bytes]:
            nonlocal size
            for piece in pieces:
                size += len(piece)
                yield piece

        with self.open(ctx) as store:
            name = path.rpartition("/")[2]
            document_id = store.read_through(path, lambda pieces: ctx.documents.create(name, count_bytes(pieces)))
        return {"size": size, "document": document_id}

    def _put_file(self, params: Json, ctx: Context) -> dict[str, Any]:
        if "document" in params:
            document = ctx.documents.open(params["document"])
            with self.open(ctx) as store:
                store.write_through(clean(params["path"]), document, ctx.idempotency_key)
            return {"size": document.size}
        path, content = clean(params["path"]), _decode_content(params)
        with self.open(ctx) as store:
            store.write(path, content, ctx.idempotency_key)
        return {"size": len(content)}

    def _move(self, params: Json, ctx: Context) -> dict[str, Any]:
        source, target = clean(params["path"]), clean(params["to"])
        with self.open(ctx) as store:
            store.move(source, target)
        return {"path": target}

    def _delete(self, params: Json, ctx: Context) -> dict[str, Any]:
        path = clean(params["path"])
        with self.open(ctx) as store:
            return {"deleted": store.delete(path)}

    def _make_folder(self, params: Json, ctx: Context) -> dict[str, Any]:
        path = clean(params["path"])
        with self.open(ctx) as store:
            return {"made": store.make_folder(path)}


def _decode_content(params: Mapping[str, Any]) -> bytes:
    if "text" in params:
        content = str(params["text"]).encode("utf-8", "surrogatepass")
    else:
        try:
            content = base64.b64decode(params["base64"], validate=True)
        except (binascii.Error, ValueError) as error:
            raise ConfigError("`base64` is not valid base64; encode the bytes, or use `text`.") from error
    if len(content) > MOST_BYTES:
        raise ConfigError(f"The content is {len(content)} bytes; the maximum is {MOST_BYTES}. Split it into several files.")
    return content
