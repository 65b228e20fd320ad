"""One rehearsal: a backup is restored, started, asked and thrown away, and nothing outside notices."""

import json
import os
import shutil
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Literal

import pytest

from appliance.app.parts import make_places
from appliance.backups import restoring
from appliance.backups.problems import BackupInvalid
from appliance.backups.rehearsal import RehearsalFailed, RehearsalRequest, RehearsalResult, rehearse, servers, trials
from appliance.backups.rehearsal.isolation import clean_environment, command_of, free_port
from appliance.connectors.contract import AddressNotAllowed
from appliance.connectors.egress import Egress
from appliance.core.crypto import Sealer, load_or_make_key
from appliance.core.database import db
from appliance.core.errors import StorageFull
from appliance.monitor import Webhooks, WebhookSpec, audit, emit
from appliance.tenants import service
from tests.backups.conftest import PASSPHRASE, World, digests, make_world, restore
from tests.processes.world import wait_until


def rehearse_file(world: World, path: Path, passphrase: str | None = PASSPHRASE, key_file: Path | None = None) -> RehearsalResult:
    return rehearse(world.config, make_places, RehearsalRequest(path, passphrase, key_file))


def leftovers(world: World) -> list[Path]:
    return list((world.config.data / "rehearsals").iterdir())


@pytest.fixture
def backup_file(world: World, tmp_path: Path) -> Path:
    with world.opened():
        world.fill()
        world.backup(tmp_path / "whole.gosb")
    return tmp_path / "whole.gosb"


@pytest.mark.parametrize("passphrase", [PASSPHRASE, None], ids=["encrypted", "plain"])
def test_a_backup_is_restored_started_asked_and_thrown_away(world: World, tmp_path: Path, passphrase: str | None) -> None:
    path = tmp_path / "whole.gosb"
    with world.opened():
        world.fill()
        backup, before = world.backup(path, passphrase), digests()
    key_file = None if passphrase else world.config.data / "key"
    result = rehearse_file(world, path, passphrase, key_file)
    assert (result.rows, result.contents, result.sampled, result.trails) == (backup.rows, 2, 2, 3)
    assert result.restore_ms > 0
    assert result.start_ms > 0
    assert leftovers(world) == []
    with world.opened():
        assert digests() == before, "the appliance itself is not touched"


@pytest.mark.parametrize("source", ["environment", "command"])
def test_the_master_key_comes_from_where_the_appliance_has_it(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: Literal["environment", "command"]
) -> None:
    path, vault = tmp_path / "whole.gosb", tmp_path / "vault"
    with world.opened():
        world.fill()
        backup = world.backup(path, None)
    shutil.move(world.config.data / "key", vault)
    if source == "environment":
        monkeypatch.setenv("GOS_MASTER_KEY", vault.read_text())
    settings = replace(world.config.master_key, source=source, command=("cat", str(vault)))
    result = rehearse_file(World(replace(world.config, master_key=settings)), path, None)
    assert result.rows == backup.rows


# -- nothing to the outside


@dataclass
class Sink:
    """A port of this machine that counts who connects."""

    port: int = 0
    connections: list[str] = field(default_factory=list)


@contextmanager
def open_sink() -> Iterator[Sink]:
    sink = Sink()
    with socket.create_server(("127.0.0.1", 0)) as server:
        sink.port = server.getsockname()[1]

        def accept() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                sink.connections.append(connection.recv(100).decode("latin1"))
                connection.close()

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield sink
        server.shutdown(socket.SHUT_RDWR)
    thread.join(10)


def configure(world: World, sink: Sink) -> None:
    """A configuration by which the appliance connects to the sink as soon as it runs, and that is in its backup."""
    where = f"127.0.0.1:{sink.port}"
    settings = {
        "audit": {"syslog": f"tcp://{where}"}, "otlp": {"endpoint": f"http://{where}", "metrics_seconds": 1},
        "mail": {"server": f"smtp://{where}", "sender": "gos@example.test"}, "egress": {"allow": [where]},
    }  # fmt: skip
    (world.config.data / "config.yaml").write_text(json.dumps(settings))
    hooks = Webhooks(Sealer(load_or_make_key(world.config.data / "key")), Egress.of([where]))
    scope = service.system_scope("initech")
    hooks.create_webhook(scope, WebhookSpec(f"http://{where}/hook", ["execution.failed"]))
    assert db.write(lambda: emit(scope, "execution.failed", lambda: {"id": "exe_1"}))


def test_a_rehearsal_connects_to_nothing_outside(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the configuration in the backup nor the environment makes it; started as usual, the same data does connect."""
    with open_sink() as sink:
        with world.opened():
            world.fill()
            configure(world, sink)
            world.backup(tmp_path / "whole.gosb")
        monkeypatch.setenv("GOS_AUDIT_SYSLOG", f"tcp://127.0.0.1:{sink.port}")
        monkeypatch.setenv("GOS_OTLP_ENDPOINT", f"http://127.0.0.1:{sink.port}")
        rehearse_file(world, tmp_path / "whole.gosb")
        assert sink.connections == []
        usual = make_world(tmp_path / "usual")
        restore(tmp_path / "whole.gosb", usual)
        command = command_of(["--data", str(usual.config.data), "serve", "--port", str(free_port())])
        quiet = subprocess.DEVNULL
        with subprocess.Popen(command, env=clean_environment(world.config), stdout=quiet, stderr=quiet) as process:
            try:
                wait_until(lambda: any("POST /hook" in each for each in sink.connections), seconds=120)
            finally:
                process.kill()


def test_a_closed_egress_reaches_nothing() -> None:
    egress = Egress.of(["10.0.0.0/8", "none"])
    for host in ("10.0.0.1", "93.184.216.34", "example.com"):
        with pytest.raises(AddressNotAllowed, match=r"egress\.allow is none"):
            egress.addresses(host, 443, 1.0)
        with pytest.raises(AddressNotAllowed):
            egress.dial(host, 443, 1.0)


# -- what a rehearsal finds


def test_rows_and_contents_that_a_restore_lost_are_found(
    world: World, backup_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = restoring.restore_backup

    def lose(what: str, *arguments: object) -> object:
        done = real(*arguments)  # type: ignore[arg-type]
        if what == "rows":
            db.open_database(f"sqlite:///{done.data / 'gos.db'}")
            db.write(lambda: db.execute("DELETE FROM document_tag"))
            db.write(lambda: db.execute("DELETE FROM secret WHERE tenant_id = 'hooli'"))
            db.close_database()
        else:
            shutil.rmtree(done.data / "blobs" / "hooli")
        return done

    for what, words in (("rows", "the table secret has 1 rows"), ("contents", "a content of the tenant hooli")):
        monkeypatch.setattr(trials, "restore_backup", partial(lose, what))
        with pytest.raises(RehearsalFailed, match=words):
            rehearse_file(world, backup_file)
        assert leftovers(world) == []


def test_a_broken_audit_trail_is_found(world: World, tmp_path: Path) -> None:
    with world.opened():
        world.fill()
        for number in range(3):
            db.write(partial(audit.record, service.system_scope("hooli"), "test.done", "something", {"n": number}))
        db.write(lambda: db.execute("UPDATE audit_entry SET actor = 'nobody' WHERE tenant_id = 'hooli' AND seq = 2"))
        world.backup(tmp_path / "whole.gosb")
    with pytest.raises(RehearsalFailed, match="audit trail of hooli"):
        rehearse_file(world, tmp_path / "whole.gosb")


def test_an_appliance_that_does_not_start_fails_with_its_last_words(
    world: World, backup_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(servers, "write_config", lambda *of: of[1].write_text('{"server": {"prot": 1}}'))
    with pytest.raises(BackupInvalid, match=r"ended before it was ready: .*unknown setting 'server.prot'"):
        rehearse_file(world, backup_file)
    assert leftovers(world) == []


def test_too_little_space_is_found_before_contents_are_unpacked(
    world: World, backup_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trials, "SPARE_BYTES", 1 << 60)
    with pytest.raises(StorageFull, match="must stay"):
        rehearse_file(world, backup_file)
    assert leftovers(world) == []


def test_a_damaged_backup_fails_the_rehearsal(world: World, backup_file: Path, tmp_path: Path) -> None:
    (tmp_path / "cut.gosb").write_bytes(backup_file.read_bytes()[:-50])
    with pytest.raises(BackupInvalid):
        rehearse_file(world, tmp_path / "cut.gosb")


# -- killed


def processes_of(folder: Path) -> list[int]:
    """The processes whose command line names the folder."""
    result = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if str(folder).encode() in path.read_bytes():
                result.append(int(path.parent.name))
        except OSError:  # it has ended
            continue
    return [each for each in result if each != os.getpid()]


def test_a_killed_rehearsal_leaves_no_process_and_the_next_deletes_its_files(
    world: World, backup_file: Path, tmp_path: Path
) -> None:
    (tmp_path / "phrase").write_text(PASSPHRASE)
    command = command_of(
        ["--data", str(world.config.data), "backup", "rehearse", str(backup_file), "--passphrase-file", str(tmp_path / "phrase")]
    )  # fmt: skip
    rehearsals = world.config.data / "rehearsals"
    with subprocess.Popen(command, env=clean_environment(world.config)) as process:
        wait_until(lambda: bool(list(rehearsals.glob("*/serve.log")) and len(processes_of(rehearsals)) > 0), seconds=120)
        os.kill(process.pid, signal.SIGKILL)
    wait_until(lambda: processes_of(rehearsals) == [], seconds=60)
    assert len(leftovers(world)) == 1
    rehearse_file(world, backup_file)
    assert leftovers(world) == []
