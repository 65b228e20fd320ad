"""The connector `folder`: a folder on the appliance's own machine that its operator allows."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from appliance.connectors.contract import ConfigError, Context, DocumentContent, FileInfo, Folder, Json
from gos_connector_files.connector import FilesConnector
from gos_connector_files.path import join
from gos_connector_files.store import (
    MOST_IN_FOLDER,
    Consumer,
    Entry,
    Missing,
    Page,
    Store,
    draft_of,
    folder_too_full,
    page_of,
    too_large,
)

_CHUNK = 64 * 1024


class FolderConnector(FilesConnector):
    """A folder of the appliance's own machine."""

    name = "folder"
    title = "Folder"
    tested_against = "the file system of Linux"
    settings_schema: ClassVar[Json] = {
        "type": "object",
        "required": ["root"],
        "additionalProperties": False,
        "properties": {
            "root": {
                "type": "string",
                "pattern": "^/.",
                "maxLength": 1000,
                "title": "Root",
                "description": "The absolute path of the folder; the operator must allow it in folders.allow",
            },
        },
    }

    @contextmanager
    def open(self, ctx: Context) -> Iterator[Store]:
        yield FolderStore(ctx.folder(self.settings["root"]))

    def check(self, ctx: Context) -> str:
        folder = ctx.folder(self.settings["root"])
        if folder.stat("") is None:
            raise ConfigError(f"{self.settings['root']} does not exist on this machine; create it, or correct `root`.")
        access = "readable and writable" if folder.writable else "read-only"
        return f"{self.settings['root']} exists and is {access}."


@dataclass(frozen=True)
class FolderStore(Store):
    """Files below a folder that the appliance guards; links are not followed."""

    folder: Folder

    def page(self, folder: str, after: str | None, limit: int) -> Page:
        entry = self.stat(folder) if folder else None
        if folder and entry is None:
            raise Missing(folder)
        entries: list[Entry] = []
        for each in self.folder.scan(folder):
            if len(entries) >= MOST_IN_FOLDER:
                raise folder_too_full()
            entries.append(_entry(join(folder, each.name), each))
        return page_of(entries, after, limit)

    def stat(self, path: str) -> Entry | None:
        info = self.folder.stat(path)
        return None if info is None else _entry(path, info)

    def read(self, path: str, most: int) -> bytes:
        if self.stat(path) is None:
            raise Missing(path)
        with self.folder.open(path) as file:
            content = file.read(most + 1)
            if len(content) > most:
                info = self.folder.stat(path)
                raise too_large(path, max(info.size if info else 0, len(content)), most)
        return content

    def write(self, path: str, content: bytes, key: str) -> None:
        self.folder.write(path, [content], draft_of(path, key))

    def read_through(self, path: str, consume: Consumer) -> str:
        if self.stat(path) is None:
            raise Missing(path)
        with self.folder.open(path) as file:
            return consume(iter(partial(file.read, _CHUNK), b""))

    def write_through(self, path: str, content: DocumentContent, key: str) -> None:
        self.folder.write(path, content.chunks(), draft_of(path, key))

    def move(self, source: str, target: str) -> None:
        if self.stat(source) is None:
            raise Missing(source)
        self.folder.move(source, target)

    def delete(self, path: str) -> bool:
        return self.folder.delete(path)

    def make_folder(self, path: str) -> bool:
        return self.folder.make_folder(path)


def _entry(path: str, info: FileInfo) -> Entry:
    return Entry(path, info.kind, info.size, info.modified)
