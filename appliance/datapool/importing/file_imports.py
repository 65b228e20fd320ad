"""Imports of uploaded files from the console: inspected, checked in a dry run and imported in the background.

Each is a row, and its file is in the blob store, so that any process can show it and continue it.
"""

from collections.abc import Callable
from functools import partial
from typing import IO

from appliance.blobs import Blobs
from appliance.core import clock, ids
from appliance.core.database import db
from appliance.core.errors import NotFound, ValidationFailed
from appliance.core.scope import TenantScope
from appliance.datapool.importing import records
from appliance.datapool.importing.inspection import WORKBOOKS, inspect_csv, inspect_file, read_workbook
from appliance.datapool.importing.reading import ImportOptions
from appliance.datapool.importing.records import FileImport
from appliance.datapool.importing.runner import ImportRunner
from appliance.formats import FormatFailed, Formats


class FileImports:
    """The imports of all tenants; one expires an hour after the last access.

    `instance` names this process, `is_alive` tells whether another process is alive.
    """

    def __init__(self, formats: Formats, blobs: Blobs, instance: str, is_alive: Callable[[str], bool]) -> None:
        self._formats, self._blobs = formats, blobs
        self.runner = ImportRunner(formats, blobs, instance, is_alive)

    def begin(self, scope: TenantScope, collection: str, name: str, file: IO[bytes]) -> FileImport:
        """Detect the format, encoding, delimiter, columns and first rows of a file, and store it.  Takes over closing the file.

        ValidationFailed when the file has no rows; StorageFull when the tenant has no space for it.
        """
        with file:
            if not name.lower().endswith(WORKBOOKS):
                return self._store(scope, collection, name, file)
            with read_workbook(self._formats, file) as text:
                return self._store(scope, collection, name, text)

    def _store(self, scope: TenantScope, collection: str, name: str, file: IO[bytes]) -> FileImport:
        inspection = inspect_file(name, file)
        file.seek(0)
        sha256 = self._blobs.put(scope, file).sha256
        file_import = FileImport(
            id=ids.new("imp"), tenant_id=scope.tenant_id, actor=scope.actor, collection=collection, name=name[:200], sha256=sha256,
            **vars(inspection), state="chosen", options=ImportOptions(), report=None, problem="", accessed_at=clock.now_ms(),
        )  # fmt: skip

        def insert() -> None:
            records.insert(scope, file_import)
            self._blobs.hold(scope, sha256)

        db.write(insert)
        return file_import

    def inspect_again(self, scope: TenantScope, import_id: str, delimiter: str, encoding: str) -> None:
        """Read the first rows again with the delimiter and encoding that the user chose."""
        file_import = self.get(scope, import_id)
        records.check_readable(file_import)
        try:
            with self.runner.open_file(scope, file_import.sha256 or "") as file:
                inspection = inspect_csv(file, delimiter, encoding)
        except FormatFailed as error:
            raise ValidationFailed(error.message, pointer="/encoding") from error
        db.write(partial(records.set_inspection, scope, import_id, inspection))

    def get(self, scope: TenantScope, import_id: str) -> FileImport:
        """The import as it is now, if it belongs to this user; NotFound an hour after the last access."""
        file_import = records.find(scope, import_id)
        if file_import.accessed_at < clock.now_ms() - records.ACCESS_STEP_MS:
            db.write(partial(records.note_access, scope, import_id))
        return file_import

    def find(self, scope: TenantScope, import_id: str) -> FileImport | None:
        """As `get`; None instead of NotFound."""
        try:
            return self.get(scope, import_id)
        except NotFound:
            return None

    def set_collection(self, scope: TenantScope, import_id: str, collection: str) -> None:
        """Import into this collection, which was created for the file."""
        db.write(partial(records.set_collection, scope, import_id, collection))

    def start_dry_run(self, scope: TenantScope, import_id: str, options: ImportOptions) -> None:
        """Start a dry run: validate every row and store none."""
        self._start(scope, import_id, options)

    def start_import(self, scope: TenantScope, import_id: str) -> None:
        """Start the import with the options of the dry run: valid rows are stored, the report lists the others."""
        self._start(scope, import_id, None)

    def _start(self, scope: TenantScope, import_id: str, options: ImportOptions | None) -> None:
        self.runner.submit(db.write(partial(records.start, scope, import_id, options, self.runner.instance)))

    def stop(self) -> None:
        """End running imports after their current chunk; another process continues them, or this one after its next start."""
        self.runner.stop()
