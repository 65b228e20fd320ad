"""Backups from before, during and after a rotation of the master key are restored with the keys of their time."""

import base64
from pathlib import Path

import pytest

from appliance.backups.problems import BackupInvalid
from appliance.blobs import installation_id, read_installation
from appliance.core.crypto import Sealer, key_id, read_key_file
from appliance.master_key import RETIRE_MS, retire_keys
from appliance.tenants import service
from tests.backups.conftest import CANARY, World, make_world, restore
from tests.master_key.world import configure, pass_time, reseal, rotate


def read_canary(world: World) -> str:
    """The secret and the installation of an appliance that is opened."""
    with world.opened() as sealer:
        assert service.unseal_secret(service.system_scope("hooli"), sealer, "erp") == CANARY
        return installation_id(sealer)


def rotate_and_retire(world: World, sealer: Sealer, monkeypatch: pytest.MonkeyPatch) -> None:
    rotate(world.config, sealer, monkeypatch)
    reseal(sealer)
    pass_time(monkeypatch, RETIRE_MS)
    retire_keys(world.config, sealer)


def test_backups_of_every_stage_are_restored(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with world.opened() as sealer:
        world.fill()
        names, installation = [], installation_id(sealer)
        names.append(world.backup(tmp_path / "before.gosb").path)
        rotate(world.config, sealer, monkeypatch)
        names.append(world.backup(tmp_path / "during.gosb").path)
        reseal(sealer)
        pass_time(monkeypatch, RETIRE_MS)
        retire_keys(world.config, sealer)
        names.append(world.backup(tmp_path / "after.gosb").path)
    for name in names:
        target = make_world(tmp_path / f"of-{name.stem}")
        restore(name, target)
        assert (read_canary(target), read_installation(target.config)) == (installation, installation)


def test_a_backup_that_is_not_encrypted_needs_the_keys_of_its_time(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old_file, new_file = tmp_path / "old-key", tmp_path / "new-key"
    with world.opened() as sealer:
        world.fill()
        old_file.write_bytes((world.config.data / "key").read_bytes())
        before = world.backup(tmp_path / "before.gosb", None).path
        rotate_and_retire(world, sealer, monkeypatch)
        new_file.write_bytes((world.config.data / "key").read_bytes())
        after = world.backup(tmp_path / "after.gosb", None).path
    target = make_world(tmp_path / "target")
    new, old = (key_id(read_key_file(path)[0]) for path in (new_file, old_file))
    with pytest.raises(BackupInvalid, match=f"needs the master key {new}, but the key file has {old}; give a key file of that"):
        restore(after, target, key_file=old_file)
    with pytest.raises(BackupInvalid, match=f"needs the master key {old}"):
        restore(before, target, key_file=new_file)
    assert not target.config.data.exists()
    restore(after, target, key_file=new_file)
    assert read_canary(target).startswith("ins_")
    restore(before, target, key_file=old_file, replace=True)
    assert read_canary(target).startswith("ins_")


def test_a_key_from_elsewhere_is_not_in_the_backup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key = base64.b64encode(b"e" * 32)
    monkeypatch.setenv("GOS_MASTER_KEY", key.decode())
    world, target = (World(configure(tmp_path / name, master_key__source="environment")) for name in ("data", "target"))
    with world.opened() as sealer:
        service.create_tenant("hooli", "Hooli")
        service.set_secret(service.system_scope("hooli"), sealer, "erp", CANARY)
        backup = world.backup(tmp_path / "whole.gosb").path
    assert not (world.config.data / "key").exists()
    monkeypatch.setenv("GOS_MASTER_KEY", base64.b64encode(b"w" * 32).decode())
    with pytest.raises(BackupInvalid, match="needs the master key"):
        restore(backup, target)
    monkeypatch.setenv("GOS_MASTER_KEY", key.decode())
    restore(backup, target)
    assert read_canary(target) == read_installation(target.config)
