"""Database rows of file imports.  Every function but the readers and `delete_expired_imports` runs inside a write.

A row stores the progress with each chunk of rows, so that any process that claims it can continue behind the last chunk.  Every
change of a running import is guarded by the fence of its claim.
"""

from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, Literal

from appliance.core import clock
from appliance.core.database import db
from appliance.core.errors import Conflict, NotFound
from appliance.core.leases import Lease, LeaseTable
from appliance.core.leases.tenant_claims import TenantClaim, claim_lost
from appliance.core.scope import TenantScope
from appliance.datapool.importing.inspection import WORKBOOKS, Inspection
from appliance.datapool.importing.reading import ImportOptions, ImportReport
from appliance.datapool.models import FileImportRow

RETENTION_MS = 3_600_000
ACCESS_STEP_MS = 300_000
"""Reads store the time of the access this often, so that a page that polls does not write each time."""
MAX_PER_TENANT = 5
LEASE_MS = 60_000
BLOB_TABLES = ("file_import",)
RUNNING = ("trying", "importing")
LEASES = LeaseTable(
    FileImportRow, ("tenant_id", "id"), lease="lease_until", owner="owner", fence="fence",
    running="state IN ('trying', 'importing')", on_claim="claims = claims + 1",
)  # fmt: skip
Claim = TenantClaim
State = Literal["chosen", "trying", "tried", "importing", "done", "stopped"]


@dataclass(frozen=True)
class FileImport:
    """An uploaded file and the state of its import at one moment.

    `sample` has its first rows, `rows` counts those read so far; `sha256` is its content until the import is done.
    """

    id: str
    tenant_id: str
    actor: str
    collection: str
    name: str
    sha256: str | None
    form: Literal["csv", "ndjson"]
    delimiter: str
    encoding: str
    columns: list[str]
    sample: list[list[str]]
    state: State
    options: ImportOptions
    report: ImportReport | None
    problem: str
    accessed_at: int

    @property
    def rows(self) -> int:
        return self.report.rows if self.report else 0

    @property
    def has_text_cells(self) -> bool:
        """Whether the cells are text as typed (CSV); the cells of a workbook are already numbers and dates."""
        return self.form == "csv" and not self.name.lower().endswith(WORKBOOKS)

    @property
    def is_busy(self) -> bool:
        return self.state in RUNNING


def _to_file_import(row: FileImportRow) -> FileImport:
    options: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in row.options.items()}
    return FileImport(
        id=row.id, tenant_id=row.tenant_id, actor=row.actor, collection=row.collection, name=row.name, sha256=row.sha256,
        form=row.form, delimiter=row.delimiter, encoding=row.encoding, columns=row.columns, sample=row.sample, state=row.state,
        options=ImportOptions(**options), report=None if row.report is None else ImportReport(**row.report, errors=row.errors),
        problem=row.problem, accessed_at=row.accessed_at,
    )  # fmt: skip


def find(scope: TenantScope, import_id: str) -> FileImport:
    """The import, if it belongs to this user; NotFound an hour after the last access."""
    row = scope.find(FileImportRow, id=import_id, actor=scope.actor)
    if row is None or (row.state not in RUNNING and row.accessed_at < _oldest_access()):
        raise NotFound("this import has expired; choose the file again. Rows that were already imported are kept")
    return _to_file_import(row)


def find_claimed(claim: Claim) -> FileImport | None:
    """The import, while this claim is the current one and the import is running."""
    row = claim.scope.find(FileImportRow, id=claim.id, fence=claim.fence)
    return _to_file_import(row) if row is not None and row.state in RUNNING else None


def _oldest_access() -> int:
    return clock.now_ms() - RETENTION_MS - ACCESS_STEP_MS


def insert(scope: TenantScope, file_import: FileImport) -> None:
    """Insert a new import; drops the tenant's oldest ones if it has too many."""
    rows = scope.select(FileImportRow).where(FileImportRow.state.not_in(RUNNING)).order_by(FileImportRow.accessed_at)
    for row in list(rows)[: -MAX_PER_TENANT + 1]:
        scope.delete(FileImportRow).where(FileImportRow.id == row.id).execute()
    values = {name: getattr(file_import, name) for name in (
        "id", "actor", "collection", "name", "sha256", "form", "delimiter", "encoding", "columns", "sample", "state", "problem",
        "accessed_at",
    )}  # fmt: skip
    scope.insert(
        FileImportRow, **values, scopes=sorted(scope.scopes), request_id=scope.request_id, options=asdict(file_import.options),
        report=None, errors=[], owner=None, fence=0, claims=0, lease_until=0,
    )  # fmt: skip


def note_access(scope: TenantScope, import_id: str) -> None:
    """Keep the import for another hour."""
    scope.update(FileImportRow, accessed_at=clock.now_ms()).where(FileImportRow.id == import_id).execute()


def set_collection(scope: TenantScope, import_id: str, collection: str) -> None:
    """Import into this collection, which was created for the file."""
    scope.update(FileImportRow, collection=collection).where(FileImportRow.id == import_id).execute()


def set_inspection(scope: TenantScope, import_id: str, inspection: Inspection) -> None:
    """Store what was found in the file when it was read with another delimiter or encoding.  Conflict."""
    check_readable(find(scope, import_id))
    changes = {name: getattr(inspection, name) for name in ("delimiter", "encoding", "columns", "sample")}
    scope.update(FileImportRow, **changes, state="chosen", options=asdict(ImportOptions())).where(
        FileImportRow.id == import_id
    ).execute()


def check_readable(file_import: FileImport) -> None:
    """Conflict if the delimiter and encoding of the file cannot be changed."""
    if file_import.form != "csv" or file_import.is_busy or file_import.sha256 is None:
        raise Conflict("the delimiter and encoding of this file cannot be changed now; choose the file again")


def start(scope: TenantScope, import_id: str, options: ImportOptions | None, owner: str) -> Claim:
    """Start a dry run with these options, or with None the import with those of its dry run.  Conflict while one is running."""
    file_import = find(scope, import_id)
    if file_import.is_busy:
        raise Conflict("this file is already being read; wait until that has finished")
    if (options is None and file_import.state != "tried") or file_import.sha256 is None:
        raise Conflict("this file was already imported, or not checked yet; to import it again, choose the file again")
    state = "importing" if options is None else "trying"
    chosen = replace(file_import.options, dry_run=False) if options is None else replace(options, dry_run=True, in_parts=True)
    scope.update(
        FileImportRow, state=state, options=asdict(chosen), report=None, errors=[], problem="", claims=0,
        scopes=sorted(scope.scopes), request_id=scope.request_id, accessed_at=clock.now_ms(),
    ).where(FileImportRow.id == import_id).execute()  # fmt: skip
    row = scope.get(FileImportRow, id=import_id)
    LEASES.claim((scope.tenant_id, import_id), row.fence, until=clock.now_ms() + LEASE_MS, owner=owner)
    return Claim(scope, import_id, row.fence + 1, 1)


def claim(lost: Lease, owner: str) -> Claim | None:
    """Continue an import whose process is gone; None when another process was faster."""
    return claim_lost(LEASES, lost, owner, clock.now_ms() + LEASE_MS)


def save(claim: Claim, before: ImportReport, report: ImportReport) -> None:
    """Store the progress, and extend the lease.  LeaseLost: another process runs the import, so nothing of this may be stored."""
    changes: dict[str, Any] = {"report": _counts(report), "claims": 0, "accessed_at": clock.now_ms()}
    if len(report.errors) > len(before.errors):  # They may have 200 KB, so they are not written with every chunk.
        changes["errors"] = report.errors
    LEASES.renew(claim.key, claim.fence, clock.now_ms() + LEASE_MS, changes)


def finish(claim: Claim, state: Literal["tried", "done"], report: ImportReport) -> None:
    """Store the result; the file of an import that is done is no longer needed.  LeaseLost."""
    changes: dict[str, Any] = {
        "state": state, "report": _counts(report), "errors": report.errors, "accessed_at": clock.now_ms(),
    }  # fmt: skip
    if state == "done":
        changes["sha256"] = None
    LEASES.settle(claim.key, claim.fence, changes)


def fail(claim: Claim, problem: str) -> None:
    """Store why the import stopped; the report counts the rows that were stored.  LeaseLost."""
    LEASES.settle(claim.key, claim.fence, {"state": "stopped", "problem": problem, "accessed_at": clock.now_ms()})


def _counts(report: ImportReport) -> dict[str, Any]:
    return {name: value for name, value in vars(report).items() if name != "errors"}


def delete_expired_imports() -> int:
    """Delete the imports of all tenants that nobody has accessed for an hour; returns how many."""
    sql = "DELETE FROM file_import WHERE accessed_at < ? AND state NOT IN ('trying', 'importing')"
    return db.write(partial(db.execute, sql, (_oldest_access(),)))
