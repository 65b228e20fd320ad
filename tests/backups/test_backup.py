"""A backup contains everything and is restored unchanged or refused."""

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import BinaryIO, cast

import pytest
import zstandard

from appliance.app.parts import make_places
from appliance.backups.creation import protect_contents
from appliance.backups.envelope import OpeningReader
from appliance.backups.problems import BackupInvalid
from appliance.backups.restoring import RestoreRequest, restore_backup
from appliance.backups.verification import verify_backup
from appliance.core.catalogues import load_languages
from appliance.core.config import Config
from appliance.core.database import db
from appliance.core.database.presence import Presence
from appliance.core.errors import AlreadyExists, Conflict
from appliance.core.leases import OrphanFinder
from appliance.core.pages import PageRequest
from appliance.documents.models import DocumentRow
from appliance.integrations import records
from appliance.monitor import audit
from appliance.tenants import appliance_scope, people, service
from appliance.tenants.sign_in import sessions
from tests.backups.conftest import CANARY, PASSPHRASE, World, digests, make_world, restore


def url_of(kind: str, request: pytest.FixtureRequest) -> str:
    return "" if kind == "sqlite" else str(request.getfixturevalue("cluster").emptied())


@pytest.mark.parametrize(("from_kind", "to_kind"), [("sqlite", "sqlite"), ("postgresql", "sqlite"), ("sqlite", "postgresql")])
def test_a_restored_backup_is_complete(from_kind: str, to_kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    source = make_world(tmp_path / "data", url_of(from_kind, request))
    with source.opened():
        source.fill()
        before = digests()
        backup = source.backup(tmp_path / "whole.gosb")
    assert (backup.contents, backup.tables["document"], backup.damaged) == (2, 2, ())
    target = make_world(tmp_path / "elsewhere", url_of(to_kind, request))
    assert restore(backup.path, target).manifest["tables"] == backup.tables
    with target.opened() as sealer:
        assert digests() == before
        scope = service.system_scope("initech")
        assert service.unseal_secret(scope, sealer, "erp") == CANARY
        row = scope.select(DocumentRow).get()
        assert b"".join(target.blobs.read_checked(scope, row.sha256)) == b"the text of initech" * 1000
        # What is new gets numbers of its own.
        service.set_secret(scope, sealer, "other", "another value of a test")
        db.write(lambda: db.execute("INSERT INTO task (queue, data, priority) VALUES ('x', ?, 0)", (b"x",)))


@pytest.mark.parametrize("to_kind", ["sqlite", "postgresql"])
def test_who_restored_it_is_in_the_restored_trail(to_kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    source = make_world(tmp_path / "data")
    with source.opened():
        source.fill()
        backup = source.backup(tmp_path / "whole.gosb")
    target = make_world(tmp_path / "elsewhere", url_of(to_kind, request))
    done = restore(backup.path, target, by="operator")
    with target.opened():
        entry = audit.list_entries(appliance_scope(), audit.AuditFilter(action="backup.restore"), PageRequest()).items[0]
        assert audit.verify(appliance_scope()).intact
    assert (entry.actor, entry.subject) == ("system", str(backup.path))
    assert f'"made_at":"{done.manifest["made_at"]}"' in json.dumps(entry.fields, separators=(",", ":")).replace("\\", "")


@pytest.fixture(scope="module")
def stopped_world(tmp_path_factory: pytest.TempPathFactory) -> tuple[World, Path]:
    """An appliance, stopped, and its encrypted backup beside its data."""
    folder = tmp_path_factory.mktemp("made")
    world = make_world(folder / "data")
    with world.opened():
        world.fill()
        world.backup(folder / "whole.gosb")
        world.backup(folder / "open.gosb", None)
    return world, folder


def test_no_secret_is_readable_in_a_backup(stopped_world: tuple[World, Path]) -> None:
    world, folder = stopped_world
    key = (world.config.data / "key").read_bytes().strip()
    with (folder / "open.gosb").open("rb") as file:
        content = zstandard.ZstdDecompressor().stream_reader(file).read()
    assert b"the text of initech" in content
    assert CANARY.encode() not in content
    assert key not in content
    sealed = (folder / "whole.gosb").read_bytes()
    assert b"ustar" not in sealed
    with (folder / "whole.gosb").open("rb") as file:
        inside = zstandard.ZstdDecompressor().stream_reader(cast(BinaryIO, OpeningReader(file, PASSPHRASE))).read()
    assert key in inside
    assert CANARY.encode() not in inside


def test_a_backup_that_is_not_encrypted_needs_the_key_file(stopped_world: tuple[World, Path], tmp_path: Path) -> None:
    world, folder = stopped_world
    target = make_world(tmp_path / "data")
    with pytest.raises(BackupInvalid, match="--key"):
        restore(folder / "open.gosb", target)
    other = make_world(tmp_path / "other")
    with other.opened():
        pass
    with pytest.raises(BackupInvalid, match=r"needs the master key .* but the key file has"):
        restore(folder / "open.gosb", target, key_file=other.config.data / "key")
    assert not target.config.data.exists()
    restore(folder / "open.gosb", target, key_file=world.config.data / "key")
    with target.opened() as sealer:
        assert service.unseal_secret(service.system_scope("hooli"), sealer, "erp") == CANARY


@pytest.mark.parametrize("passphrase", [PASSPHRASE, None], ids=["sealed", "open"])
def test_the_configured_languages_are_restored(world: World, tmp_path: Path, passphrase: str | None) -> None:
    """A configuration that names one whose file is not there would refuse to start."""
    with world.opened():
        (world.config.data / "translations").mkdir()
        (world.config.data / "translations" / "nl.po").write_text('msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\n"\n')
        backup = world.backup(tmp_path / "whole.gosb", passphrase)
    target = make_world(tmp_path / "elsewhere")
    restore(backup.path, target, passphrase=passphrase, key_file=world.config.data / "key")
    assert load_languages([target.config.data / "translations"], "nl").default.tag == "nl"


def unpack(backup: bytes) -> bytes | None:
    """What an unencrypted backup contains, None if it cannot be decompressed whole."""
    try:
        with zstandard.ZstdDecompressor().stream_reader(backup) as reader:
            return reader.read() + reader.read(1)
    except zstandard.ZstdError:
        return None


def test_a_damaged_backup_is_refused_and_changes_nothing(stopped_world: tuple[World, Path], tmp_path: Path) -> None:
    content = (stopped_world[1] / "open.gosb").read_bytes()
    key, target = stopped_world[0].config.data / "key", make_world(tmp_path / "data")
    damaged = tmp_path / "damaged.gosb"
    variants = [content[: len(content) * part // 8] for part in range(1, 8)]
    variants += [
        content[:at] + bytes([content[at] ^ 0x10]) + content[at + 1 :] for at in range(50, len(content), len(content) // 8)
    ]
    for each in variants:
        if unpack(each) == unpack(content):
            continue  # a bit of a compressed stream that makes no difference, one in 200
        damaged.write_bytes(each)
        with pytest.raises(BackupInvalid):
            verify_backup(damaged, None)
        with pytest.raises(BackupInvalid):
            restore(damaged, target, key_file=key)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["damaged.gosb"]


def test_nothing_is_overwritten(stopped_world: tuple[World, Path]) -> None:
    world, folder = stopped_world
    before = (folder / "whole.gosb").read_bytes()
    with world.opened(), pytest.raises(AlreadyExists, match="not overwritten"):
        world.backup(folder / "whole.gosb")
    assert (folder / "whole.gosb").read_bytes() == before
    with pytest.raises(Conflict, match="not empty"):
        restore(folder / "whole.gosb", world)


def test_the_previous_data_is_kept(stopped_world: tuple[World, Path], tmp_path: Path) -> None:
    target = make_world(tmp_path / "data")
    with target.opened():
        service.create_tenant("former", "Former")
    done = restore(stopped_world[1] / "whole.gosb", target, replace=True)
    assert done.previous_data is not None
    with make_world(done.previous_data).opened():
        assert [tenant.id for tenant in service.list_tenants()] == ["former"]
    with target.opened():
        assert [tenant.id for tenant in service.list_tenants()] == ["hooli", "initech"]


def test_the_settings_that_a_backup_lacks_stay_when_it_replaces(stopped_world: tuple[World, Path], tmp_path: Path) -> None:
    """Without them the appliance would start unconfigured, perhaps on another database."""
    world, folder = stopped_world
    target = make_world(tmp_path / "data")
    data = target.config.data
    (data / "tls").mkdir(parents=True)
    (data / "translations").mkdir()
    settings = {"config.yaml": "server: {port: 8443}\n", "tls/ca.pem": "a certificate", "translations/nl.po": "a language"}
    for name, text in settings.items():
        (data / name).write_text(text)
    (data / "key").write_bytes((world.config.data / "key").read_bytes())
    config_paths: list[Path | None] = []

    def load(config_path: Path | None) -> Config:
        config_paths.append(config_path)
        return target.config

    done = restore_backup(load, make_places, RestoreRequest(folder / "open.gosb", replace=True))
    assert (done.copied, done.missing) == (("config.yaml", "tls", "translations/nl.po"), ())
    assert config_paths == [None, None]
    assert done.previous_data is not None
    for name, text in settings.items():
        assert (data / name).read_text() == (done.previous_data / name).read_text() == text


def test_the_settings_of_a_backup_replace_those_that_were_there(world: World, tmp_path: Path) -> None:
    with world.opened():
        (world.config.data / "config.yaml").write_text("server: {port: 9443}\n")
        (world.config.data / "translations").mkdir()
        (world.config.data / "translations" / "fr.po").write_text("a language")
        encrypted, unencrypted = world.backup(tmp_path / "whole.gosb"), world.backup(tmp_path / "bare.gosb", None)
    target = make_world(tmp_path / "elsewhere")
    (target.config.data / "translations").mkdir(parents=True)
    (target.config.data / "translations" / "nl.po").write_text("one that may be what keeps it from starting")
    (target.config.data / "config.yaml").write_text("server: {port: 8443}\n")
    done = restore(encrypted.path, target, replace=True)
    assert (done.copied, done.missing) == ((), ())
    assert (target.config.data / "config.yaml").read_text() == "server: {port: 9443}\n"
    assert [path.name for path in (target.config.data / "translations").iterdir()] == ["fr.po"]
    done = restore(unencrypted.path, make_world(tmp_path / "empty"), key_file=world.config.data / "key")
    assert (done.copied, done.missing) == ((), ("config.yaml",))


def test_a_running_appliance_is_not_replaced(stopped_world: tuple[World, Path], tmp_path: Path) -> None:
    target = make_world(tmp_path / "data")
    presence = Presence(target.config.data / "workers")
    try:
        with pytest.raises(Conflict, match="is running"):
            restore(stopped_world[1] / "whole.gosb", target, replace=True)
    finally:
        presence.close()


def test_sessions_are_not_restored(world: World, tmp_path: Path) -> None:
    with world.opened() as sealer:
        world.fill()
        person = people.check_password("ada", "a password that nobody guesses")
        sessions.create_session(sealer, str(person.id), "initech", lifetime_ms=3_600_000)
        assert db.rows("SELECT count(*) FROM session") == [(1,)]
        backup = world.backup(tmp_path / "whole.gosb")
    target = make_world(tmp_path / "elsewhere")
    restore(backup.path, target)
    with target.opened():
        assert db.rows("SELECT count(*) FROM session") == [(0,)]


def test_a_newer_schema_is_refused(world: World, tmp_path: Path) -> None:
    with world.opened():
        db.write(lambda: db.execute("INSERT INTO migration (number, name, applied_at) VALUES (9999, 'future', 0)"))
        world.backup(tmp_path / "newer.gosb")
    with pytest.raises(BackupInvalid, match="install the release"):
        verify_backup(tmp_path / "newer.gosb", PASSPHRASE)


def test_an_interrupted_write_is_unknown_after_a_restore(world: World, tmp_path: Path) -> None:
    with world.opened():
        scope = world.fill()
        _insert_running_call(scope.tenant_id)
        backup = world.backup(tmp_path / "whole.gosb")
    target = make_world(tmp_path / "elsewhere")
    restore(backup.path, target)
    with target.opened():
        presence = Presence(target.config.data / "workers")
        try:
            orphans = OrphanFinder(records.LEASES, presence.instance, presence.is_alive, lambda key: False)
            assert records.close_orphans(orphans) == 1
        finally:
            presence.close()
        assert db.rows("SELECT status, outcome FROM integration_call") == [("waiting", "unknown")]


def _insert_running_call(tenant: str) -> None:
    columns = "(tenant_id, id, name, connector, settings, sealed, version, created_at, updated_at, failed_in_row)"
    integration = f"INSERT INTO integration {columns} "
    call = (
        "INSERT INTO integration_call (tenant_id, id, integration_id, connector, action, effect, status, input, actor, request_id, "
        "owner, tries, deadline_at, created_at, started_at, request_digest, sent_key, output_kept) "
    )

    def insert() -> None:
        db.execute(integration + "VALUES (?, 'erp', 'ERP', 'http', '{}', ?, 1, 0, 0, 0)", (tenant, b"x"))
        values = (
            "VALUES (?, 'cal_1', 'erp', 'http', 'send', 'write', 'running', '{}', 'system', '', 'wrk_gone', 1, 0, 0, 0, '', '', 0)"
        )
        db.execute(call + values, (tenant,))

    db.write(insert)


def test_damaged_content_is_named_and_the_rest_is_restored(world: World, tmp_path: Path) -> None:
    with world.opened():
        world.fill()
        damaged = next(path for path in (world.config.data / "blobs" / "hooli").rglob("*") if path.is_file())
        damaged.write_bytes(b"x" * damaged.stat().st_size)
        backup = world.backup(tmp_path / "whole.gosb")
    assert backup.damaged == (damaged.relative_to(world.config.data / "blobs").as_posix(),)
    assert backup.contents == 1
    assert verify_backup(backup.path, PASSPHRASE)["contents"]["damaged"] == list(backup.damaged)


def test_contents_of_the_snapshot_are_not_garbage_collected(world: World) -> None:
    with world.opened():
        scope = world.fill()
        unused = world.blobs.put(scope, b"nobody refers to this any more")
        db.write(lambda: db.execute("UPDATE blob SET touched_at = 0"))
        protect_contents()
        assert world.blobs.collect() == 0
        assert b"".join(world.blobs.read_checked(scope, unused.sha256)) == b"nobody refers to this any more"


FULL = """
import resource, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), int(sys.argv[1])))
from appliance.cli import main
sys.exit(main(["--data", sys.argv[2], "backup", sys.argv[3]]))
"""


def test_a_full_disk_leaves_no_partial_backup(tmp_path: Path) -> None:
    """In the file itself; the content is random and therefore incompressible."""
    world = make_world(tmp_path / "data")
    with world.opened():
        scope = world.fill()
        world.blobs.put(scope, random.Random(2).randbytes(4_000_000))  # noqa: S311
    target = tmp_path / "there"
    target.mkdir()
    command = [sys.executable, "-c", FULL, "1_500_000", str(world.config.data), str(target / "whole.gosb")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, "disk is full" in done.stderr) == (1, True), done.stderr
    assert list(target.iterdir()) == []
