"""Rotates the master key: adds one, makes it current in all processes, and retires earlier ones that nothing needs."""

from dataclasses import dataclass

from appliance.blobs import note_installation
from appliance.core import clock
from appliance.core.config import Config
from appliance.core.crypto import (
    KEY_FILE,
    Sealer,
    add_to_key_file,
    key_id,
    load_keys,
    make_key,
    open_digest_key,
    remove_from_key_file,
)
from appliance.core.database import db
from appliance.core.errors import ConfigInvalid, Conflict, InvalidRequest
from appliance.core.sentences import Sentence
from appliance.monitor import audit
from appliance.tenants import record_for_appliance
from appliance.tenants import service as tenants

from .opening import SOURCES, describe_keys
from .records import KeyRecord, find_current, insert_key, list_keys
from .resealing import start_again
from .status import get_status

PICK_UP_MS = 10_000
"""How long after a rotation the new key becomes current: until then, all processes have read it."""
RETIRE_MS = 60_000
"""How long an earlier key stays at least: writes that were sealed with it have ended by then."""


@dataclass(frozen=True)
class Rotation:
    """The new key, and when it becomes current (epoch ms)."""

    id: str
    current_from: int


def add_key(config: Config) -> str:
    """Add a new key to the key file, not used before `rotate_key`; returns its id.  ConfigInvalid for other sources."""
    if config.master_key.source != "file":
        raise ConfigInvalid(Sentence(
            "the master keys come from %(source)s, so add the new one there, on a line of its own, such as head -c 32 /dev/urandom "
            "| base64 prints; restart every process, then type gos master-key rotate",
            source=SOURCES[config.master_key.source],
        ))  # fmt: skip
    new = _unused_keys(load_keys(config))
    if new:
        raise Conflict(Sentence("the key file has the new key %(keys)s already; use it with gos master-key rotate",
                                keys=describe_keys(new)))
    key = make_key()
    add_to_key_file(config.data / KEY_FILE, key)
    return key_id(key)


def rotate_key(config: Config, key: str | None = None, *, actor: str = "system") -> Rotation:
    """Make the new key of the source current (or that with the id `key`), in `PICK_UP_MS`, and have all values sealed with it.

    Without a new one, a key file on SQLite gets one.  Conflict, InvalidRequest, ConfigInvalid.
    """
    keys = load_keys(config)
    present = set(map(key_id, keys))
    if lacking := [each.id for each in list_keys() if each.retired_at is None and each.id not in present]:
        raise Conflict(Sentence(
            "%(source)s lacks the earlier master key %(lacking)s, which has not been retired: type gos master-key retire first",
            source=SOURCES[config.master_key.source], lacking=", ".join(lacking),
        ))  # fmt: skip
    new = [each for each in _unused_keys(keys) if key in (None, key_id(each))]
    if not new and config.master_key.source == "file" and key is None and not db.is_shared():
        add_key(config)
        keys = load_keys(config)
        new = _unused_keys(keys)
    if len(new) != 1:
        raise _refusal(config, new, key)
    return db.write(lambda: _rotate(keys, new[0], actor))


def retire_keys(config: Config, sealer: Sealer, *, actor: str = "system") -> list[str]:
    """End all earlier keys, and remove them from the key file; returns their ids.

    Conflict while a value needs one of them, which is then sealed with the current key soon.
    """
    status = get_status(sealer)
    current = next(each for each in status.keys if each.id == status.current)
    _refuse_recent(status.keys, current)
    if status.waiting:
        db.write(lambda: start_again(status.current))
        columns = ", ".join(f"{column}: {count}" for (column, _), count in sorted(status.earlier.items()))
        raise Conflict(Sentence(
            "earlier master keys are needed by %(count)s values (%(columns)s), which are sealed again while gos serve or gos "
            "worker runs; try again when gos master-key status shows none",
            count=status.waiting, columns=columns,
        ))  # fmt: skip
    note_installation(config, sealer)
    retired = db.write(lambda: _retire(current, actor))
    if config.master_key.source == "file":
        ended = {each.id for each in list_keys() if each.retired_at is not None}
        remove_from_key_file(config.data / KEY_FILE, {key for key in load_keys(config) if key_id(key) in ended})
    return retired


def _unused_keys(keys: tuple[bytes, ...]) -> list[bytes]:
    """The keys that the database does not know yet."""
    known = {each.id for each in list_keys()}
    return [key for key in keys if key_id(key) not in known]


def _rotate(keys: tuple[bytes, ...], new: bytes, actor: str) -> Rotation:
    """Inside a write: note the new key, unless another rotation has begun meanwhile."""
    now, records = clock.now_ms(), list_keys()
    if any(each.current_from > now for each in records):
        raise Conflict("a rotation has begun a few seconds ago; try again when its key is current (gos master-key status)")
    current = find_current(records, now)
    if current is None or any(each.id == key_id(new) for each in records):
        raise Conflict("another rotation was faster; see gos master-key status")
    key = next(each for each in keys if key_id(each) == current.id)
    rotation = Rotation(key_id(new), now + PICK_UP_MS)
    insert_key(new, records[-1].number + 1, open_digest_key(key, current.digests or b""), rotation.current_from)
    _record("master_key.rotate", rotation.id, {"from": current.id}, actor)
    return rotation


def _retire(current: KeyRecord, actor: str) -> list[str]:
    """Inside a write: end the keys before the current one, and forget the key of digests that was sealed with them."""
    records = [each for each in list_keys() if each.retired_at is None and each.number < current.number]
    for each in records:
        db.execute("UPDATE master_key SET retired_at = ?, digests = NULL WHERE id = ?", (clock.now_ms(), each.id))
        _record("master_key.retire", each.id, {"current": current.id}, actor)
    return [each.id for each in records]


def _record(action: str, subject: str, fields: dict[str, str], actor: str) -> None:
    """Inside a write: an entry in the trail of every tenant, because the key is that of all, and in that of the appliance."""
    record_for_appliance(action, subject, fields, actor=actor)
    for tenant in tenants.list_tenants():
        audit.record(tenants.system_scope(tenant.id), action, subject, fields)


def _refuse_recent(records: list[KeyRecord], current: KeyRecord) -> None:
    now = clock.now_ms()
    if any(each.current_from > now for each in records) or current.current_from > now - RETIRE_MS:
        raise Conflict("the master key was rotated less than a minute ago; retire the earlier one later")


def _refusal(config: Config, new: list[bytes], key: str | None) -> Exception:
    if key is not None:
        return InvalidRequest(Sentence(
            "%(source)s has no new master key %(key)s", source=SOURCES[config.master_key.source], key=key
        ))
    if new:
        return Conflict(Sentence(
            "%(source)s has several new master keys (%(keys)s); name one: gos master-key rotate --key ID",
            source=SOURCES[config.master_key.source], keys=describe_keys(new),
        ))  # fmt: skip
    if config.master_key.source == "file":
        return Conflict(
            "the key file has no new key: add one with gos master-key add, copy the file to every machine of the appliance, then "
            "rotate"
        )
    return Conflict(Sentence(
        "%(source)s has no new master key: add one there, on a line of its own, restart every process, then rotate",
        source=SOURCES[config.master_key.source],
    ))
