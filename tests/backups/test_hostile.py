"""A forged or changed export writes only into the tenant it is imported as."""

import io
import re
import sqlite3
import tarfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
import zstandard

from appliance.backups import parts, tenant_imports
from appliance.backups.copying import FileSource
from appliance.backups.importing import ImportRequest, SecretReplacement
from appliance.backups.parts import MANIFEST, new_file, parse_manifest, parts_of, read_small
from appliance.backups.problems import BackupInvalid
from appliance.backups.tenant_exports import TENANT_DATABASE, export_tenant
from appliance.core.database import db
from appliance.core.errors import StorageFull
from appliance.tenants import service
from tests.backups.conftest import World, make_world

Change = Callable[[sqlite3.Connection], object]
OUTSIDE = "of the forger's choice"


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> tuple[World, Path]:
    """An appliance with two tenants, and the export of one."""
    folder = tmp_path_factory.mktemp("hostile")
    world = make_world(folder / "data")
    with world.opened():
        export_tenant(world.fill(), world.places, folder / "initech.gost", None)
    return world, folder / "initech.gost"


def forge_export(source: Path, target: Path, change: Change, leave_out: str = "nothing") -> Path:
    """The export with another database and a manifest that matches it."""
    database = target.with_suffix(".db")
    with parts_of(source, None) as parts, new_file(target, None) as written:
        for part in parts:
            if part.name == TENANT_DATABASE:
                database.write_bytes(b"".join(part.pieces))
                with closing(sqlite3.connect(database, isolation_level=None)) as file:
                    file.execute("PRAGMA writable_schema=1")
                    change(file)
                    names = FileSource(file.execute).tables()
                    counts = {name: file.execute(f'SELECT count(*) FROM "{name}"').fetchone()[0] for name in names}  # noqa: S608
                    places = dict(file.execute("SELECT sha256, place FROM blob").fetchall())
                own = written.add_file(part.name, database)
            elif part.name == MANIFEST:
                manifest = parse_manifest(read_small(part))
            elif leave_out not in part.name:
                content = b"".join(part.pieces)
                ((_, place),) = places.items()
                written.add_bytes(f"contents/{place}", content)
            else:
                size = len(b"".join(part.pieces))
                missing_contents = {"count": 0, "bytes": 0, "gone": [part.name], "damaged": [], "size": size}
        manifest["parts"] = [{"name": own.name, "size": own.size, "sha256": own.sha256}]
        manifest["tables"] = {name: count for name, count in counts.items() if count and name != "migration"}
        manifest["contents"] = missing_contents if leave_out != "nothing" else manifest["contents"]
        written.finish(manifest)
    return target


def try_import(world: World, path: Path) -> object:
    with world.opened() as sealer:
        try:
            return tenant_imports.import_tenant(
                world.places, SecretReplacement(sealer), ImportRequest(path, None, "copy"), world.config.data
            )
        finally:
            if service.tenant_exists("copy"):
                service.delete_tenant("copy")


def test_a_forged_export_without_changes_is_imported(exported: tuple[World, Path], tmp_path: Path) -> None:
    """Otherwise the forgeries below might be refused for their format only."""
    world, file = exported
    assert try_import(world, forge_export(file, tmp_path / "same.gost", lambda _: None))


def _path_as_digest(tmp_path: Path) -> Change:
    def change(file: sqlite3.Connection) -> None:
        file.execute("UPDATE blob SET sha256 = ?", (str(tmp_path / OUTSIDE),))

    return change


def test_content_is_stored_under_a_new_place(exported: tuple[World, Path], tmp_path: Path) -> None:
    world, file = exported
    with pytest.raises(BackupInvalid):
        try_import(world, forge_export(file, tmp_path / "path.gost", _path_as_digest(tmp_path)))
    assert not (tmp_path / OUTSIDE).exists()


def _collection(file: sqlite3.Connection) -> str:
    return str(file.execute("SELECT table_name FROM collection WHERE name = 'orders'").fetchone()[0])


def _redirect_entities(file: sqlite3.Connection) -> None:
    file.execute("UPDATE collection SET table_name = 'tenant' WHERE name = 'orders'")


def _quoted_column(file: sqlite3.Connection) -> None:
    (stored,) = file.execute("SELECT definition FROM collection WHERE name = 'orders'").fetchone()
    column = re.search(r'"column": ?"(c\d+)"', stored)
    assert column
    quoted = column[1] + " "
    file.execute("UPDATE collection SET definition = replace(definition, ?, ?)", (f'"{column[1]}"', f'"{quoted}"'))
    file.execute(f'ALTER TABLE "{_collection(file)}" RENAME COLUMN "{column[1]}" TO "{quoted}"')


CHANGES: dict[str, Change] = {
    "other_case": lambda file: file.execute('ALTER TABLE document_tag RENAME COLUMN tenant_id TO "TENANT_ID"'),
    "quote": lambda file: file.execute('ALTER TABLE document ADD COLUMN "a"") b" TEXT'),
    "further_table": lambda file: file.execute("CREATE TABLE further (a)"),
    "trigger": lambda file: file.execute("CREATE TRIGGER t AFTER INSERT ON migration BEGIN DELETE FROM tenant; END"),
    "view": lambda file: file.execute("CREATE VIEW v AS SELECT 1"),
    "entities_elsewhere": _redirect_entities,
    "column_of_entities": _quoted_column,
    "two_tenants": lambda file: file.execute(
        "INSERT INTO tenant (id, name, kind, created_at) SELECT 'more', name, kind, created_at FROM tenant"
    ),
    "type": lambda file: file.execute("UPDATE collection SET definition = '[]'"),
    "index": lambda file: file.execute(f'CREATE INDEX further ON "{_collection(file)}" (id)'),
    "no_schema": lambda file: file.execute("DELETE FROM migration"),
}


@pytest.mark.parametrize("name", sorted(CHANGES))
def test_a_database_that_is_not_ours_is_refused(name: str, exported: tuple[World, Path], tmp_path: Path) -> None:
    world, file = exported
    with pytest.raises(BackupInvalid, match="do not use this file"):
        try_import(world, forge_export(file, tmp_path / "other.gost", CHANGES[name]))


def test_missing_content_is_not_taken_from_another_tenant(exported: tuple[World, Path], tmp_path: Path) -> None:
    """A row that points to another tenant's bytes could read and delete them."""
    world, file = exported
    with world.opened():
        ((place,),) = db.rows("SELECT place FROM blob WHERE tenant_id = 'hooli'")

    def steal(database: sqlite3.Connection) -> None:
        database.execute("UPDATE blob SET place = ?", (place,))

    path = forge_export(file, tmp_path / "steal.gost", steal, leave_out="contents/")
    with world.opened() as sealer:
        tenant_imports.import_tenant(
            world.places, SecretReplacement(sealer), ImportRequest(path, None, "thief"), world.config.data
        )
        ((imported_place,),) = db.rows("SELECT place FROM blob WHERE tenant_id = 'thief'")
        service.delete_tenant("thief")
    assert imported_place.startswith("thief/")


def write_tar(path: Path, *members: tuple[tarfile.TarInfo, bytes]) -> Path:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for info, content in members:
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    path.write_bytes(zstandard.compress(buffer.getvalue()))
    return path


def read_all(path: Path, folder: Path) -> None:
    with parts_of(path, None) as opened_parts:
        for part in opened_parts:
            parts.store_part(part, folder / part.name)


def test_sparse_parts_and_huge_headers_are_refused(tmp_path: Path) -> None:
    sparse, huge = tarfile.TarInfo("sparse"), tarfile.TarInfo("huge")
    sparse.pax_headers = {"GNU.sparse.map": "0,1", "GNU.sparse.size": "8"}
    huge.pax_headers = {"comment": "x" * (16 << 20)}
    with pytest.raises(BackupInvalid, match="is invalid"):
        read_all(write_tar(tmp_path / "sparse.gost", (sparse, b"x")), tmp_path)
    with pytest.raises(BackupInvalid, match="header that is too large"):
        read_all(write_tar(tmp_path / "huge.gost", (huge, b"x")), tmp_path)


def test_a_part_that_does_not_fit_is_refused_before_it_is_written(tmp_path: Path) -> None:
    part = parts.OpenPart("vast", 1 << 60, iter([b"never read"]))
    with pytest.raises(StorageFull, match="does not fit"):
        parts.store_part(part, tmp_path / "vast")
    assert not (tmp_path / "vast").exists()
