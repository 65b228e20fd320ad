"""A start with a wrong key, or without one that a value needs, is refused before anything is written."""

import base64
import sqlite3
from pathlib import Path

import pytest

from appliance.core.config import Config
from appliance.core.crypto import key_id, load_keys
from appliance.core.errors import ConfigInvalid, Conflict
from appliance.master_key import RETIRE_MS, list_keys, retire_keys, rotate_key
from appliance.master_key.columns import SEALED_COLUMNS
from tests.master_key.world import add_if_shared, configure, fill, opened, pass_time, read_values, reseal, rotate

COLUMNS = {column.name for column in SEALED_COLUMNS}


def test_the_wrong_key_is_refused_before_anything_is_written(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(config) as sealer:
        fill(sealer)
    right = (config.data / "key").read_bytes()
    (config.data / "key").write_bytes(base64.b64encode(b"w" * 32))
    before = (config.data / "gos.db").read_bytes() if not config.storage.database else b""
    with pytest.raises(ConfigInvalid, match=rf"needs the master key {sealer.current}, but the key file has {key_id(b'w' * 32)}"):
        open_once(config)
    (config.data / "key").unlink()
    with pytest.raises(ConfigInvalid, match=r"the key file .*key is missing; restore it"):
        open_once(config)
    assert not (config.data / "key").exists()
    if before:
        assert (config.data / "gos.db").read_bytes() == before
    (config.data / "key").write_bytes(right)
    open_once(config)


def open_once(config: Config) -> None:
    with opened(config):
        """It opens."""


def test_the_wrong_key_of_an_earlier_release_is_refused_before_its_schema_changes(tmp_path: Path) -> None:
    config = configure(tmp_path / "data")
    with opened(config) as sealer:
        fill(sealer)
    with sqlite3.connect(config.data / "gos.db") as file:
        file.execute("DROP TABLE master_key")
        file.execute("DELETE FROM migration WHERE name = 'master_keys'")
    right = (config.data / "key").read_bytes()
    (config.data / "key").write_bytes(base64.b64encode(b"w" * 32))
    with pytest.raises(ConfigInvalid, match=r"which opens nothing in this database.*Nothing was changed"):
        open_once(config)
    with sqlite3.connect(config.data / "gos.db") as file:
        assert file.execute("SELECT count(*) FROM sqlite_master WHERE name = 'master_key'").fetchall() == [(0,)]
    (config.data / "key").write_bytes(right)
    open_once(config)


def test_two_processes_that_start_with_different_keys_do_not_both_run(config: Config) -> None:
    """The second one finds the key of the first in the database."""
    with opened(config):
        assert len(list_keys()) == 1
    (config.data / "key").write_bytes(base64.b64encode(b"2" * 32))
    with pytest.raises(ConfigInvalid, match="needs the master key"):
        open_once(config)


def test_an_earlier_key_may_be_missing_once_all_values_are_sealed_again(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(config) as sealer:
        fill(sealer)
        old = str(sealer.current)
        add_if_shared(config)
        rotate(config, sealer, monkeypatch)
    newest = load_keys(config)[1]
    both = (config.data / "key").read_bytes()
    (config.data / "key").write_bytes(base64.b64encode(newest))
    with pytest.raises(ConfigInvalid, match=f"needs the master key {old}"):
        open_once(config)
    (config.data / "key").write_bytes(both)
    with opened(config) as sealer:
        reseal(sealer)
    (config.data / "key").write_bytes(base64.b64encode(newest))
    with opened(config) as sealer:
        assert set(read_values(sealer)) == COLUMNS
        with pytest.raises(Conflict, match=f"lacks the earlier master key {old}, which has not been retired"):
            rotate_key(config)
        pass_time(monkeypatch, RETIRE_MS)
        assert retire_keys(config, sealer) == [old]
