"""Opens the sealer with the keys of the configured source, once these are known to be those of the open database."""

from collections.abc import Sequence

from appliance import migrations
from appliance.core import clock
from appliance.core.config import Config
from appliance.core.crypto import Sealer, first_digest_key, key_id, load_keys, open_digest_key
from appliance.core.database import db
from appliance.core.errors import ConfigInvalid
from appliance.core.sentences import Sentence
from appliance.tenants import service as tenants

from .records import KeyRecord, find_current, has_table, insert_key, list_keys, list_needed

SOURCES = {
    "file": Sentence("the key file"), "environment": Sentence("the variable GOS_MASTER_KEY"),
    "credential": Sentence("the credential"), "command": Sentence("the output of master_key.command"),
}  # fmt: skip
_SAMPLE = 3


def open_sealer(config: Config) -> Sealer:
    """Bring the open database to this release's schema, and return its sealer; the first start makes a key file.

    ConfigInvalid when the keys are not those of the database, before anything is written.
    """
    migrations.refuse_unsupported()
    is_begun = migrations.is_begun()
    is_empty = not is_begun or _is_empty()
    keys = load_keys(config, create=is_empty)
    if is_begun:
        check_keys(config, keys)
    migrations.migrate()
    records = list_keys()
    if not records:
        records = db.write(lambda: _adopt(keys, has_values=not is_empty))
        _refuse_missing(config, keys, records)  # another process with another key may have been first
    return _build_sealer(keys, records)


def read_sealer(config: Config) -> Sealer:
    """The sealer for a command that only reads; the open database has this release's schema.  ConfigInvalid."""
    keys = load_keys(config)
    check_keys(config, keys)
    records = list_keys()
    return _build_sealer(keys, records) if records else Sealer(*keys)


def _is_empty() -> bool:
    """Whether the open database, which has a schema, has nothing for which a key was needed."""
    return not (has_table() and list_keys()) and not tenants.has_any_tenant() and not tenants.has_any_account()


def check_keys(config: Config, keys: Sequence[bytes]) -> None:
    """ConfigInvalid unless these keys open what the open database has sealed."""
    records = list_keys() if has_table() else []
    if records:
        _refuse_missing(config, keys, records)
    else:
        _refuse_foreign(config, keys)


def describe_keys(keys: Sequence[bytes]) -> str:
    """The ids of keys, for messages."""
    return ", ".join(map(key_id, keys))


def _refuse_missing(config: Config, keys: Sequence[bytes], records: Sequence[KeyRecord]) -> None:
    present = set(map(key_id, keys))
    missing = [each.id for each in list_needed(records, clock.now_ms()) if each.id not in present]
    if missing:
        raise ConfigInvalid(Sentence(
            "this database needs the master key %(missing)s, but %(source)s has %(present)s; restore the missing key from a "
            "backup, or correct master_key.source. Nothing was changed",
            missing=", ".join(missing), source=SOURCES[config.master_key.source], present=describe_keys(keys),
        ))  # fmt: skip


def _refuse_foreign(config: Config, keys: Sequence[bytes]) -> None:
    """Before the database knows ids of keys: try a few of its values."""
    from .columns import SEALED_COLUMNS  # loads every domain, and only databases of earlier releases need it
    from .values import find_opening_key, list_rows

    sealer, tables, has_values = Sealer(*keys), set(db.database.get_tables()), False
    for column in SEALED_COLUMNS:
        if column.table in tables and column.encoding == "bytes":
            for row in list_rows(column, key_id(keys[0]), most=_SAMPLE):
                has_values = True
                if find_opening_key(sealer, row) is not None:
                    return
    if has_values:
        raise ConfigInvalid(Sentence(
            "%(source)s has the master key %(present)s, which opens nothing in this database; restore the key that belongs to it "
            "from a backup, or correct master_key.source. Nothing was changed",
            source=SOURCES[config.master_key.source], present=describe_keys(keys),
        ))  # fmt: skip


def _adopt(keys: Sequence[bytes], *, has_values: bool) -> list[KeyRecord]:
    """Inside a write: note the first key, unless another process has.  Values of earlier releases do not name it yet."""
    if not (records := list_keys()):
        now = clock.now_ms()
        insert_key(keys[0], 1, first_digest_key(keys[0]), 0, resealed_at=None if has_values else now)
        records = list_keys()
    return records


def _build_sealer(keys: Sequence[bytes], records: Sequence[KeyRecord]) -> Sealer:
    by_id = {key_id(key): key for key in keys}
    current = find_current(records, clock.now_ms())
    if current is None:
        raise ConfigInvalid("the table master_key has no current key; restore a backup")
    usable = [each.id for each in records if each.retired_at is None and each.id in by_id]
    digest_key = open_digest_key(by_id[current.id], current.digests or b"")
    sealer = Sealer(*(by_id[each] for each in usable), digest_key=digest_key)
    sealer.use_keys(usable, current.id)
    return sealer
