"""Sealed values open with their own key and in their own context only."""

import base64
import hashlib
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from appliance.core.crypto import (
    Sealer,
    first_digest_key,
    key_id,
    load_or_make_key,
    name_key,
    open_digest_key,
    seal_digest_key,
)
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
    with pytest.raises(ConfigInvalid, match="restore the master key"):
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


def test_a_value_names_its_key_and_opens_with_earlier_ones() -> None:
    old, new = Sealer(KEY), Sealer(b"n" * 32, KEY)
    assert (name_key(old.seal(b"x", "a")), name_key(new.seal(b"x", "a"))) == (key_id(KEY), key_id(b"n" * 32))
    assert new.open_with(old.seal(b"x", "a"), "a") == (b"x", key_id(KEY))
    with pytest.raises(ConfigInvalid):
        old.open(new.seal(b"x", "a"), "a")


def test_values_of_the_first_format_open_with_whichever_key_sealed_them() -> None:
    sealed = bytes.fromhex(  # as 0.1 has written it: the key is 32 times k, the context a
        "01000000000000000000000000" + AESGCM(hashlib.sha256(b"gos seal" + KEY).digest()).encrypt(bytes(12), b"old", b"a").hex()
    )
    assert name_key(sealed) is None
    assert Sealer(b"n" * 32, KEY).open_with(sealed, "a") == (b"old", key_id(KEY))
    with pytest.raises(ConfigInvalid):
        Sealer(b"n" * 32).open(sealed, "a")


def test_digests_stay_when_keys_change() -> None:
    digest_key = first_digest_key(KEY)
    assert Sealer(b"n" * 32, digest_key=digest_key).digest(b"gos_x") == Sealer(KEY).digest(b"gos_x")
    assert open_digest_key(KEY, seal_digest_key(KEY, digest_key)) == digest_key
    with pytest.raises(ConfigInvalid):
        open_digest_key(b"n" * 32, seal_digest_key(KEY, digest_key))
