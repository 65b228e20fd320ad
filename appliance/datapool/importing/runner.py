"""Runs file imports on background threads, and continues those of processes that are gone.

An import is a row (see `records`) and a file in the blob store: a stopped process leaves both to the others, or to its
next start.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import IO

from appliance.blobs import Blobs
from appliance.core.database import db
from appliance.core.errors import ApplianceError
from appliance.core.leases import Lease, LeaseLost
from appliance.core.leases.claims import ClaimRunner
from appliance.core.pools import IMPORT
from appliance.core.scope import TenantScope
from appliance.datapool.importing import imports, records
from appliance.datapool.importing.reading import ImportReport
from appliance.datapool.importing.records import Claim
from appliance.formats import Formats


class ImportRunner(ClaimRunner[Claim]):
    """The imports that this process runs; one that stops continues after its last chunk."""

    leases, lease_ms, pool, label = records.LEASES, records.LEASE_MS, IMPORT, "import"

    def __init__(self, formats: Formats, blobs: Blobs, instance: str, is_alive: Callable[[str], bool]) -> None:
        super().__init__(instance, is_alive)
        self._formats, self._blobs = formats, blobs

    def open_file(self, scope: TenantScope, sha256: str) -> IO[bytes]:
        """A file of the blob store in an anonymous temporary file, verified; the caller closes it."""
        file = self._formats.scratch()
        try:
            for piece in self._blobs.read_checked(scope, sha256):
                file.write(piece)
            file.seek(0)
        except BaseException:
            file.close()
            raise
        return file

    def claim(self, lost: Lease) -> Claim | None:
        return records.claim(lost, self.instance)

    def work(self, claim: Claim) -> None:
        file_import = records.find_claimed(claim)
        if file_import is None or file_import.sha256 is None:
            raise LeaseLost(claim.id)
        options = replace(file_import.options, format=file_import.form)
        with self.open_file(claim.scope, file_import.sha256) as file:
            progress = imports.ImportProgress(
                file_import.report or ImportReport(), partial(records.save, claim), self.refuse_stopping
            )
            report = imports.import_rows(claim.scope, file_import.collection, file, options, progress)  # type: ignore[arg-type]
        db.write(partial(records.finish, claim, "tried" if options.dry_run else "done", report))

    def record_failure(self, claim: Claim, error: ApplianceError) -> None:
        records.fail(claim, error.message)
