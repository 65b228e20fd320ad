"""Ships what the rows of a point name: contents of documents and WebApps, by their sha256, and suspended code."""

import hashlib
import logging
import sqlite3
import tempfile
import threading
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

from appliance.backups.creation import TEMPLATES
from appliance.backups.parts import PIECE
from appliance.backups.problems import ShouldStop, refuse_stopping
from appliance.blobs import Places

from .archives import CONTENTS, Archive

log = logging.getLogger(__name__)
DRAFTS = "points"
"""The folder in the data folder for temporary files."""
_IN_MEMORY = 8 << 20
_NEW = "SELECT rowid, sha256, size, place FROM blob WHERE rowid > ? ORDER BY rowid"
_ALL = "SELECT rowid, sha256, size, place FROM blob ORDER BY sha256"


class ContentShipper:
    """Stores in the archive what it lacks; `data` is the data folder.

    Rows of contents are numbered as they are committed, unless the newest ones were deleted; then all are looked at again.
    Thread-safe, as contents are deleted from the archive by another thread than the one that ships new ones.
    """

    def __init__(self, data: Path, places: Places, archive: Archive, should_stop: ShouldStop) -> None:
        self._data, self._places, self._archive, self._should_stop = data, places, archive, should_stop
        self._newest: tuple[int, str] | None = None
        self._templates: set[str] = set()
        self._lock = threading.Lock()
        self._recent: set[str] = set()

    def begin_base(self) -> None:
        """Forget what was shipped: the base that is begun now names it, if it is still needed."""
        with self._lock:
            self._recent.clear()

    def unless_shipped(self, sha256: str, delete: Callable[[], object]) -> bool:
        """Delete a content, unless it was shipped again since the last base began; whether it was deleted."""
        with self._lock:
            if sha256 in self._recent:
                return False
            delete()
            return True

    def ship_new(self, connection: sqlite3.Connection) -> None:
        """Ship what was committed since the last call; with the first one, everything."""
        newest = connection.execute("SELECT rowid, place FROM blob ORDER BY rowid DESC LIMIT 1").fetchone() or (0, "")
        if newest != self._newest:
            is_continued = self._newest is not None and self._is_there(connection, *self._newest)
            if self._newest is not None and is_continued:
                rows = connection.execute(_NEW, (self._newest[0],)).fetchall()
                self._note(rows)
                for number, sha256, size, place in rows:
                    self._ship(sha256, size, place)
                    self._newest = (number, place)
            else:
                if self._newest is not None:
                    self._note(connection.execute(_ALL))
                self.ship_all(connection)
            self._newest = newest
        for (template,) in connection.execute("SELECT DISTINCT template FROM suspended_step").fetchall():
            self._ship_template(str(template))

    def _is_there(self, connection: sqlite3.Connection, number: int, place: str) -> bool:
        return number == 0 or connection.execute("SELECT place FROM blob WHERE rowid = ?", (number,)).fetchone() == (place,)

    def _note(self, rows: Iterable[tuple[int, str, int, str]]) -> None:
        """Before it is shipped: from now on it is not deleted from the archive."""
        digests = {row[1] for row in rows}
        with self._lock:
            self._recent |= digests

    def ship_list(self, base: str, connection: sqlite3.Connection) -> None:
        """Store the list of the contents that a base names, by which it is known which ones are no longer needed."""
        rows = connection.execute("SELECT DISTINCT sha256 FROM blob ORDER BY sha256")
        name = list_name(base)
        self._archive.store.put(name, self._archive.sealer.pack(name, (bytes.fromhex(row[0]) for row in rows)))

    def ship_all(self, connection: sqlite3.Connection, should_stop: ShouldStop | None = None) -> None:
        """Ship every content that the database names and the archive lacks."""
        folder = f"{self._archive.path}/{CONTENTS}"
        stored = {bytes.fromhex(each.name.rpartition("/")[2]) for each in self._archive.store.list(folder)}
        rows = (row for row in connection.execute(_ALL) if bytes.fromhex(row[1]) not in stored)
        for _, sha256, size, place in rows:
            refuse_stopping(should_stop or self._should_stop)
            self._ship(sha256, size, place)

    def _ship(self, sha256: str, size: int, place: str) -> None:
        name = self._archive.content_name(sha256)
        with tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY, dir=str(self._data / DRAFTS)) as spool:
            digest = hashlib.sha256()
            try:
                for piece in self._places.read(place, 0, size):
                    refuse_stopping(self._should_stop)
                    digest.update(piece)
                    spool.write(piece)
            except FileNotFoundError:  # deleted since the row was read, or missing, which `gos doctor` says
                return
            if digest.hexdigest() != sha256:
                log.warning("A damaged content is not shipped.", extra={"fields": {"sha256": sha256}})
                return
            spool.seek(0)
            self._archive.store.put(name, self._archive.sealer.pack(name, iter(partial(spool.read, PIECE), b"")))

    def _ship_template(self, template: str) -> None:
        if template in self._templates:
            return
        name, path = template_name(self._archive, template), self._data / TEMPLATES / f"{template}.wasm"
        try:
            content = path.read_bytes()
        except FileNotFoundError:  # its step has continued meanwhile
            return
        if not self._archive.store.has(name):
            self._archive.store.put(name, self._archive.sealer.pack(name, [content]))
        self._templates.add(template)


def list_name(base: str) -> str:
    """The name of the list of the contents that a base names."""
    return f"{base}.contents"


def template_name(archive: Archive, template: str) -> str:
    """The name of suspended code in the archive."""
    return f"{archive.path}/{TEMPLATES}/{template}"
