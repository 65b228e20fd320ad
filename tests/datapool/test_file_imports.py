"""Files are inspected and imported, and an import continues where its process ended."""

import io
import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from appliance.blobs import GRACE_MS, Blobs, LocalPlaces
from appliance.core.database import db
from appliance.core.errors import Conflict, NotFound, ValidationFailed
from appliance.core.events import hub
from appliance.core.leases import LeaseLost
from appliance.core.scope import TenantScope
from appliance.datapool import BLOB_TABLES, FileImport, FileImports, ImportOptions, delete_expired_imports
from appliance.datapool import service as datapool
from appliance.datapool.entities import EntitiesChanged
from appliance.datapool.field_suggestions import suggest_fields
from appliance.datapool.importing import imports, records
from appliance.datapool.importing.inspection import MAX_COLUMNS
from appliance.datapool.importing.reading import ImportReport
from appliance.formats import Formats, Settings
from tests.processes.world import Wall, wait_until

ROWS = 4 * imports.CHUNK_ROWS + 100
CODES = "code,country\n" + "".join(f"{number},de\n" for number in range(ROWS))
OPTIONS = ImportOptions(fields=("code", "country"))
Open = Callable[[str], FileImports]


@pytest.fixture
def alive() -> set[str]:
    """The processes that are alive."""
    return set()


@pytest.fixture
def blobs(tmp_path: Path) -> Blobs:
    return Blobs(LocalPlaces(tmp_path / "blobs"), BLOB_TABLES)


@pytest.fixture
def opened(database: None, alive: set[str], blobs: Blobs, tmp_path: Path) -> Iterator[Open]:
    """Opens the imports of a process by its name."""
    formats = Formats(Settings(tmp_path / "formats"))
    processes: list[FileImports] = []

    def open_imports(name: str) -> FileImports:
        alive.add(name)
        processes.append(FileImports(formats, blobs, name, alive.__contains__))
        return processes[-1]

    yield open_imports
    for each in processes:
        each.stop()
    formats.stop()
    db.write(lambda: db.execute("DELETE FROM file_import"))


def begin(process: FileImports, scope: TenantScope, text: str = CODES, name: str = "a.csv") -> FileImport:
    return process.begin(scope, "customers", name, io.BytesIO(text.encode()))


def wait_for(process: FileImports, scope: TenantScope, import_id: str) -> FileImport:
    """The import as soon as nothing is running."""
    wait_until(lambda: not process.get(scope, import_id).is_busy)
    return process.get(scope, import_id)


def check(process: FileImports, scope: TenantScope, text: str = CODES) -> FileImport:
    """The import of a file after its dry run."""
    file_import = begin(process, scope, text)
    process.start_dry_run(scope, file_import.id, OPTIONS)
    return wait_for(process, scope, file_import.id)


def stored(scope: TenantScope) -> list[int]:
    """The codes of all customers."""
    lines = b"".join(datapool.export_entities(scope, "customers", "ndjson")).splitlines()
    return sorted(int(json.loads(line)["code"]) for line in lines)


# -- inspections


def table(columns: int, delimiter: str = ",") -> str:
    return delimiter.join(["a"] * columns) + "\n" + delimiter.join(["1"] * columns) + "\n"


def test_a_file_has_a_maximum_number_of_columns(opened: Open, acme: TenantScope) -> None:
    process = opened("one")
    assert len(begin(process, acme, table(MAX_COLUMNS)).columns) == MAX_COLUMNS
    many = json.dumps({f"m{number}": 1 for number in range(MAX_COLUMNS + 1)})
    for name, text in (("a.csv", table(MAX_COLUMNS + 1)), ("a.ndjson", many)):
        with pytest.raises(ValidationFailed, match="more than 1,000 columns") as caught:
            begin(process, acme, text, name)
        assert caught.value.details[0].pointer == "/file"


def test_an_inspection_with_too_many_columns_leaves_the_file_unchanged(opened: Open, acme: TenantScope) -> None:
    process, text = opened("one"), "|".join(["a"] * (MAX_COLUMNS + 1))
    before = begin(process, acme, f"{text},b\n1,2\n3,4\n")
    assert len(before.columns) == 2
    with pytest.raises(ValidationFailed, match="more than 1,000 columns"):
        process.inspect_again(acme, before.id, "|", "utf-8")
    assert process.get(acme, before.id) == before


def test_duplicate_columns_get_unique_names() -> None:
    names = [field["name"] for field in suggest_fields(["a", "a", "a_2", "a", "Order ID", "", "1"], [])]
    assert names == ["a", "a_2", "a_2_2", "a_3", "order_id", "column_6", "column_1"]
    assert len({field["name"] for field in suggest_fields(["a"] * MAX_COLUMNS, [])}) == MAX_COLUMNS


# -- several processes


def test_an_import_is_shown_and_run_by_any_process(opened: Open, acme: TenantScope) -> None:
    here, there = opened("one"), opened("two")
    checked = check(here, acme, "code,country\n1,de\n1,fr\nlonger than ten,de\n")
    assert (checked.state, checked.report and (checked.report.created, checked.report.failed)) == ("tried", (1, 2))
    assert there.get(acme, checked.id) == checked, "with the errors"
    there.start_import(acme, checked.id)
    done = wait_for(here, acme, checked.id)
    assert (done.state, done.rows, stored(acme)) == ("done", 3, [1])
    for process in (here, there):
        with pytest.raises(Conflict, match="already imported"):
            process.start_import(acme, checked.id)


def test_nobody_else_sees_an_import(opened: Open, acme: TenantScope, globex: TenantScope) -> None:
    process = opened("one")
    file_import = begin(process, acme)
    for other in (acme.with_actor("user:other"), TenantScope("globex", acme.actor)):
        with pytest.raises(NotFound, match="choose the file again"):
            process.get(other, file_import.id)


def test_an_import_continues_in_another_process_when_its_own_stops(opened: Open, acme: TenantScope) -> None:
    """The process is stopped while it stores the second chunk, so it stores two; the other one stores the rest."""
    here, there = opened("one"), opened("two")
    file_import = check(here, acme)
    chunks = 0

    with ThreadPoolExecutor(1) as thread:

        def stop_in_second_chunk(*_: object) -> None:
            nonlocal chunks
            chunks += 1
            if chunks == 2:
                thread.submit(here.stop)
                assert here.runner._stopping.wait(10)

        end = hub.subscribe(EntitiesChanged, stop_in_second_chunk)
        try:
            here.start_import(acme, file_import.id)
            wait_until(here.runner._stopping.is_set)
        finally:
            thread.shutdown(wait=True)
            end()
    left = there.get(acme, file_import.id)
    assert (left.state, left.rows, left.problem) == ("importing", 2 * imports.CHUNK_ROWS, "")
    assert stored(acme) == list(range(2 * imports.CHUNK_ROWS))
    there.runner.resume()
    done = wait_for(there, acme, file_import.id)
    assert (done.state, done.report and done.report.created, done.rows) == ("done", ROWS, ROWS)
    assert stored(acme) == list(range(ROWS))


def claim_for(process: FileImports, scope: TenantScope, import_id: str) -> records.Claim:
    """A claim of the process, which it does not work on: as if it hung."""
    return db.write(lambda: records.start(scope, import_id, None, process.runner.instance))


def test_a_dry_run_continues_behind_the_rows_that_were_checked(opened: Open, alive: set[str], acme: TenantScope) -> None:
    here, there = opened("one"), opened("two")
    file_import = begin(here, acme, CODES + "longer than ten,de\n")
    claim = db.write(lambda: records.start(acme, file_import.id, OPTIONS, "one"))
    checks = iter(range(2))
    progress = imports.ImportProgress(ImportReport(), partial(records.save, claim), lambda: next(checks))  # type: ignore[arg-type]
    with pytest.raises(StopIteration):
        imports.import_rows(acme, "customers", io.BytesIO(CODES.encode()), here.get(acme, file_import.id).options, progress)
    assert here.get(acme, file_import.id).rows == 2 * imports.CHUNK_ROWS
    alive.remove("one")
    there.runner.resume()
    report = wait_for(there, acme, file_import.id).report
    assert report is not None
    assert (report.rows, report.created, report.failed, report.stored) == (ROWS + 1, ROWS, 1, False)
    assert [error["line"] for error in report.errors] == [ROWS + 2]
    assert stored(acme) == []


def test_a_process_that_lost_its_import_stores_no_further_row(
    opened: Open, alive: set[str], acme: TenantScope
) -> None:
    here, there = opened("one"), opened("two")
    file_import = check(here, acme)
    claim = claim_for(here, acme, file_import.id)
    progress = imports.ImportProgress(ImportReport(), partial(records.save, claim), lambda: None)
    there.runner.resume()
    assert there.runner._active == {}, "its process lives"
    alive.remove("one")
    there.runner.resume()
    assert wait_for(there, acme, file_import.id).state == "done"
    with pytest.raises(LeaseLost):
        imports.import_rows(acme, "customers", io.BytesIO(b"code,country\nlate,de\n"), OPTIONS, progress)
    assert stored(acme) == list(range(ROWS)), "the late row is rolled back"


def test_a_process_that_is_alive_and_silent_loses_its_import(
    opened: Open, acme: TenantScope, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = opened("one"), opened("two")
    file_import = check(here, acme)
    claim_for(here, acme, file_import.id)
    Wall(monkeypatch).offset = records.LEASE_MS + 1
    there.runner.resume()
    assert there.runner._active == {}, "the clock may have been set"
    there.runner._orphans.silent_seconds = 0.0
    there.runner.resume()
    assert wait_for(there, acme, file_import.id).state == "done"
    assert stored(acme) == list(range(ROWS))


def test_an_import_that_ends_every_process_is_given_up(opened: Open, alive: set[str], acme: TenantScope) -> None:
    here, there = opened("one"), opened("two")
    file_import = check(here, acme)
    claim_for(here, acme, file_import.id)
    for name in ("three", "four", "five", "six"):
        alive.clear()
        alive.add(name)
        (lost,) = records.LEASES.list_running()
        assert db.write(partial(records.claim, lost, name)) is not None
    alive.clear()
    there.runner.resume()
    failed = wait_for(there, acme, file_import.id)
    assert (failed.state, failed.problem) == ("stopped", "an internal error occurred; see the log of the appliance")
    assert stored(acme) == []


# -- the file and the row


def test_the_file_is_stored_until_the_import_is_done(
    opened: Open, blobs: Blobs, acme: TenantScope, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = opened("one")
    file_import = check(process, acme, "code,country\n1,de\n")
    Wall(monkeypatch).offset = GRACE_MS + 60_000
    db.write(lambda: records.note_access(acme, file_import.id))
    assert blobs.collect() == 0
    Blobs(blobs._places, []).collect()  # by a process of an earlier release, which does not know the table
    process.start_import(acme, file_import.id)
    assert wait_for(process, acme, file_import.id).state == "done"
    assert blobs.collect() == 1


def test_an_import_expires_an_hour_after_the_last_access(
    opened: Open, acme: TenantScope, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = opened("one")
    unused, used, running = (check(process, acme, f"code,country\n{number},de\n") for number in range(3))
    claim_for(process, acme, running.id)
    wall = Wall(monkeypatch)
    for minutes in (50, 100):
        wall.offset = minutes * 60_000
        process.get(acme, used.id)
    with pytest.raises(NotFound, match="has expired"):
        process.get(acme, unused.id)
    assert delete_expired_imports() == 1
    assert {process.get(acme, each.id).state for each in (used, running)} == {"tried", "importing"}


def test_a_tenant_has_a_maximum_of_imports_and_keeps_the_latest(opened: Open, acme: TenantScope) -> None:
    process = opened("one")
    ids = [begin(process, acme, f"code,country\n{number},de\n").id for number in range(records.MAX_PER_TENANT + 1)]
    assert [each for each in ids if process.find(acme, each) is None] == ids[:1]
