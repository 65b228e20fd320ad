"""An appliance's data with something of everything in it, on either kind of database."""

import hashlib
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from appliance import migrations
from appliance.app.parts import make_places
from appliance.app.store import open_store
from appliance.backups import BackupSource
from appliance.backups.copying import Source, open_source
from appliance.backups.creation import Backup, make_backup
from appliance.backups.restoring import RestoreRequest, RestoreResult, restore_backup
from appliance.blobs import Blobs, read_installation
from appliance.core.config import Config, load_config
from appliance.core.crypto import Sealer, load_or_make_key
from appliance.core.database import db
from appliance.core.scope import TenantScope
from appliance.datapool import service as datapool
from appliance.documents import service as documents
from appliance.documents.contents import incoming_blobs
from appliance.tenants import people, service

CANARY = "canary-7f3a9c51e0d24b86"
PASSPHRASE = "a passphrase of a test"
FIELDS = [{"name": "number", "type": "text", "unique": True}, {"name": "total", "type": "decimal", "scale": 2}]


@dataclass
class World:
    """One data folder; `opened` opens its store as the appliance does."""

    config: Config

    @contextmanager
    def opened(self) -> Iterator[Sealer]:
        own = self.config.data / "gos.db"
        if not self.config.storage.database and not own.exists():
            self.config.data.mkdir(parents=True, exist_ok=True, mode=0o700)
            own.write_bytes(_empty_database())
        sealer = open_store(self.config)
        try:
            yield sealer
        finally:
            db.close_database()

    @property
    def blobs(self) -> Blobs:
        return Blobs(self.places, documents.BLOB_TABLES)

    @property
    def places(self) -> Any:
        return make_places(self.config, read_installation(self.config))

    def fill(self) -> TenantScope:
        """Inside `opened`: two tenants with entities that refer to each other, documents, a secret, a person."""
        sealer = Sealer(load_or_make_key(self.config.data / "key"))
        people.create_user("ada", "a password that nobody guesses")
        for name in ("initech", "hooli"):
            service.create_tenant(name, name.title())
            scope = service.system_scope(name)
            service.set_secret(scope, sealer, "erp", CANARY)
            people.add_member(scope, "ada", "owner")
            datapool.create_collection(scope, {"name": "orders", "fields": FIELDS})
            relation = {"name": "order", "type": "relation", "collection": "orders"}
            datapool.create_collection(scope, {"name": "lines", "fields": [relation]})
            for number in range(4):
                entity = datapool.create_entity(scope, "orders", {"number": f"{name}-{number}", "total": "10.50"})
                datapool.create_entity(scope, "lines", {"order": entity["id"]})
            content = self.blobs.put(scope, f"the text of {name}".encode() * 1000)
            documents.Documents(self.incoming).create_document(scope, documents.NewDocument("report.txt"), content)
        return service.system_scope("initech")

    @property
    def incoming(self) -> Any:
        return incoming_blobs(self.config.scan, self.places, [*documents.BLOB_TABLES])

    def backup(self, path: Path, passphrase: str | None = PASSPHRASE) -> Backup:
        """Inside `opened`."""
        return make_backup(self.config, self.places, path, passphrase)


@cache
def _empty_database() -> bytes:
    """The file of this release's schema, made once: migrating takes its time."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "gos.db")
        db.open_database(f"sqlite:///{path}")
        migrations.migrate()
        db.close_database()
        return path.read_bytes()


def make_world(folder: Path, url: str = "") -> World:
    return World(load_config(environment={}, flags={"storage.data": str(folder), "storage.database": url}))


@pytest.fixture
def world(tmp_path: Path) -> World:
    return make_world(tmp_path / "data")


def restore(path: BackupSource, target: World, **options: Any) -> RestoreResult:
    options.setdefault("passphrase", PASSPHRASE)
    return restore_backup(lambda _: target.config, make_places, RestoreRequest(path, **options))


def digests() -> dict[str, str]:
    """The row count and digest of every table of the open database, independent of engine and row order."""
    result = {}
    with db.snapshot():
        source = open_source()
        for table in source.tables():
            columns = sorted(source.columns(table))
            rows = rows_of(source, table, columns)
            result[table] = f"{len(rows)} {hashlib.sha256(repr((columns, rows)).encode()).hexdigest()}"
    return result


def rows_of(source: Source, table: str, columns: list[str], condition: str = "1 = 1", *params: str) -> list[str]:
    """The rows, the same on either kind of database."""
    column_list = ", ".join(f'"{column}"' for column in columns)
    rows = source.rows(f'SELECT {column_list} FROM "{table}" WHERE {condition}', params)  # noqa: S608
    return sorted(repr([_plain(value) for value in row]) for row in rows)


def _plain(value: Any) -> Any:
    return int(value) if isinstance(value, bool) else bytes(value) if isinstance(value, memoryview) else value
