"""Encryption at rest: the sealer and its keys (`sealing`), where these come from (`sources`), and what is sealed (`columns`)."""

from .columns import SealedColumn
from .sealing import Sealer, first_digest_key, key_id, name_key, open_digest_key, seal_digest_key
from .sources import (
    KEY_FILE,
    add_to_key_file,
    has_keys,
    load_keys,
    load_or_make_key,
    make_key,
    read_key_file,
    remove_from_key_file,
)

__all__ = [
    "KEY_FILE", "SealedColumn", "Sealer", "add_to_key_file", "first_digest_key", "has_keys", "key_id", "load_keys",
    "load_or_make_key", "make_key", "name_key", "open_digest_key", "read_key_file", "remove_from_key_file", "seal_digest_key",
]  # fmt: skip
