"""Sealed values open with their own key and in their own context only."""

import base64
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from appliance.core.crypto import Sealer, load_or_make_key
from appliance.core.errors import ConfigInvalid

KEY = b"k" * 32


@pytest.mark.parametrize("value", [b"", b"secret", bytes(range(256)) * 100])
def test_a_value_opens_in_its_context(value: bytes) -> None:
    sealed = Sealer(KEY).seal(value, "acme/secret/token")
    assert Sealer(KEY).open(sealed, "acme/secret/token") == value
    assert not value or value not in sealed


def test_two_sealings_differ() -> None:
    assert Sealer(KEY).seal(b"x", "a") != Sealer(KEY).seal(b"x", "a")


@pytest.mark.parametrize("context", ["globex/secret/token", "acme/secret/other", ""])
def test_a_value_does_not_open_elsewhere(context: str) -> None:
    sealed = Sealer(KEY).seal(b"secret", "acme/secret/token")
    with pytest.raises(ConfigInvalid, match="restore the key file"):
        Sealer(KEY).open(sealed, context)


def test_a_value_does_not_open_with_another_key() -> None:
    sealed = Sealer(KEY).seal(b"secret", "a")
    with pytest.raises(ConfigInvalid):
        Sealer(b"K" * 32).open(sealed, "a")


def test_any_changed_bit_is_noticed() -> None:
    sealed = Sealer(KEY).seal(b"secret", "a")
    for index in range(len(sealed)):
        changed = bytearray(sealed)
        changed[index] ^= 1
        with pytest.raises(ConfigInvalid):
            Sealer(KEY).open(bytes(changed), "a")
    for cut in range(len(sealed)):
        with pytest.raises(ConfigInvalid):
            Sealer(KEY).open(sealed[:cut], "a")


def test_digests_depend_on_the_key_and_the_value() -> None:
    digest = Sealer(KEY).digest(b"gos_x")
    assert digest == Sealer(KEY).digest(b"gos_x")
    assert len({digest, Sealer(KEY).digest(b"gos_y"), Sealer(b"K" * 32).digest(b"gos_x")}) == 3


def test_a_key_file_is_created_once_and_for_its_owner_only(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        key = load_or_make_key(tmp_path / "key")
    finally:
        os.umask(before)
    assert len(key) == 32
    assert (tmp_path / "key").stat().st_mode & 0o777 == 0o600
    assert load_or_make_key(tmp_path / "key") == key
    assert load_or_make_key(tmp_path / "other") != key


@pytest.mark.parametrize("content", [b"", b"short", base64.b64encode(b"x" * 31), b"\xff" * 40])
def test_a_damaged_key_file_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "key").write_bytes(content)
    with pytest.raises(ConfigInvalid, match="restore it from the backup"):
        load_or_make_key(tmp_path / "key")


def test_processes_that_start_together_agree_on_the_key(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as threads:
        keys = list(threads.map(lambda _: load_or_make_key(tmp_path / "key"), range(8)))
    assert len(set(keys)) == 1
