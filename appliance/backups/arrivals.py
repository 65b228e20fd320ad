"""Exports of tenants that an administrator sent to the console: opened, looked at, and only then made a tenant."""

import shutil
import threading
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from appliance.blobs import Places, Received
from appliance.core import clock, ids
from appliance.core.config import Config
from appliance.core.crypto import Sealer
from appliance.core.database import db
from appliance.core.errors import Conflict, NotFound, ValidationFailed
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.monitor import audit
from appliance.tenants import service

from .arriving import Imported, ImportRequest, Unpacked, check_new_id, unpack_export, write_tenant
from .parts import is_sealed
from .problems import BackupInvalid, Course
from .settling import Resealing
from .works import Work, Works

FOLDER = "arriving"
KEPT_MS = 3_600_000
_FILE, _UNPACKED = "export.gost", "unpacked"


@dataclass
class Arrival:
    """A file that was sent and what has become of it; whoever sent it alone sees it, for an hour after the last look."""

    id: str
    actor: str
    file_name: str
    size: int
    folder: Path
    is_sealed: bool
    touched_ms: int
    work: Work | None = None
    unpacked: Unpacked | None = None
    imported: Imported | None = None

    @property
    def is_busy(self) -> bool:
        return self.work is not None and not self.work.is_over


class Arrivals:
    """The files that were sent to this process."""

    def __init__(self, config: Config, places: Places, sealer: Sealer, works: Works) -> None:
        self._room, self._places, self._sealer, self._works = config.data / FOLDER, places, sealer, works
        self._lock = threading.Lock()
        self._known: dict[str, Arrival] = {}

    def receive(self, scope: TenantScope, name: str, received: Received) -> Arrival:
        """Take a file over and, unless it is sealed, begin to read it; ValidationFailed when it is none of ours."""
        try:
            sealed = is_sealed(received.path)
        except BackupInvalid as error:
            raise ValidationFailed(
                "this is no export of a tenant; choose the file that an export of this product wrote", pointer="/file"
            ) from error
        arrival_id = ids.new("arr")
        folder = self._room / arrival_id
        self._room.mkdir(mode=0o700, exist_ok=True)
        folder.mkdir(mode=0o700)
        shutil.move(received.path, folder / _FILE)
        found = Arrival(arrival_id, scope.actor, name[:200], received.size, folder, sealed, clock.now_ms())
        with self._lock:
            self._known[arrival_id] = found
        if not sealed:
            self.open(scope, arrival_id, None)
        return found

    def get(self, scope: TenantScope, arrival_id: str) -> Arrival:
        """One that this person sent; NotFound after an hour, or when the appliance has started anew."""
        with self._lock:
            found = self._known.get(arrival_id)
        if found is None or found.actor != scope.actor:
            raise NotFound("this file is not known any more; the list of tenants shows whether it was imported, else send it again")
        found.touched_ms = clock.now_ms()
        return found

    def open(self, scope: TenantScope, arrival_id: str, passphrase: str | None) -> None:
        """Begin to read and check it as a whole; Conflict while that goes on, or when it was done."""
        found = self.get(scope, arrival_id)
        if found.unpacked is not None or found.is_busy:
            raise Conflict("this file is being read, or was read already")
        found.work = self._works.begin(_nobody(scope, found), "open", partial(self._unpack, found, passphrase))

    def _unpack(self, found: Arrival, passphrase: str | None, course: Course) -> None:
        folder = found.folder / _UNPACKED
        folder.mkdir(mode=0o700)
        try:
            course.tell("reading", 0, 0)
            found.unpacked = Unpacked(folder, unpack_export(found.folder / _FILE, passphrase, folder, course))
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        (found.folder / _FILE).unlink(missing_ok=True)  # everything of it lies unpacked

    def write(self, scope: TenantScope, arrival_id: str, request: ImportRequest) -> None:
        """Begin to make a tenant of it; ValidationFailed and AlreadyExists tell what is wrong with its id and its name."""
        found = self.get(scope, arrival_id)
        if found.unpacked is None or found.is_busy or found.imported is not None:
            raise Conflict("this file is not read yet, or was imported already")
        check_new_id(request.name or found.unpacked.manifest["tenant"]["id"])
        if len(request.title) > service.LONGEST_NAME:
            raise ValidationFailed(
                Sentence("name must have 1 to %(longest_name)s characters", longest_name=service.LONGEST_NAME), pointer="/title"
            )
        asked = replace(request, actor=scope.actor)
        found.work = self._works.begin(_nobody(scope, found), "import", partial(self._write, scope, found, found.unpacked, asked))

    def _write(self, scope: TenantScope, found: Arrival, export: Unpacked, request: ImportRequest, course: Course) -> None:
        imported = write_tenant(self._places, Resealing(self._sealer), request, export, course)
        told = {"from": imported.manifest["tenant"]["id"], "file": found.file_name}
        db.write(partial(audit.record, scope, "tenant.import", imported.tenant_id, told))
        found.imported = imported
        shutil.rmtree(export.folder, ignore_errors=True)

    def forget(self, scope: TenantScope, arrival_id: str) -> None:
        """Delete what was sent; Conflict while something is done with it."""
        found = self.get(scope, arrival_id)
        if found.is_busy:
            raise Conflict("something is being done with this file; wait for its end")
        with self._lock:
            self._known.pop(arrival_id, None)
        shutil.rmtree(found.folder, ignore_errors=True)

    def tidy(self) -> None:
        """Delete what nobody has looked at for an hour, and what a killed process left."""
        now = clock.now_ms()
        with self._lock:
            old = [each for each in self._known.values() if not each.is_busy and each.touched_ms < now - KEPT_MS]
            for each in old:
                del self._known[each.id]
            known = {each.folder for each in self._known.values()}
        for folder in self._room.iterdir() if self._room.is_dir() else ():
            with suppress(OSError):
                is_dead = folder not in known and folder.stat().st_mtime * 1000 < now - 24 * KEPT_MS
                if is_dead or folder in {each.folder for each in old}:
                    shutil.rmtree(folder, ignore_errors=True)

    def stop(self) -> None:
        """Nobody comes back to what was sent."""
        for each in self._known.values():
            shutil.rmtree(each.folder, ignore_errors=True)


def _nobody(scope: TenantScope, found: Arrival) -> TenantScope:
    """A name for the work's own: several files may be read at once, whatever tenant their sender is in."""
    return TenantScope(found.id, scope.actor)
