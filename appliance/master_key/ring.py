"""The keys that this process uses: follows rotations in the database, and reads the source again when it needs another key."""

import logging
import threading

from appliance.blobs import note_installation
from appliance.core import clock
from appliance.core.config import Config
from appliance.core.crypto import Sealer, key_id, load_keys
from appliance.core.database import db

from .records import find_current, list_keys, list_needed

log = logging.getLogger(__name__)
FIND_SECONDS, LOAD_SECONDS = 1.0, 5.0


class KeyRing:
    """Keeps the sealer of this process at the keys that the database names."""

    def __init__(self, config: Config, sealer: Sealer) -> None:
        self._config, self._sealer = config, sealer
        self._lock = threading.Lock()
        self._looked_at = self._loaded_at = -LOAD_SECONDS
        self._reported: list[str] = []
        sealer.find_key = self._find

    def refresh(self) -> None:
        """Use the keys that the database names now; the source is read when one is missing.  ConfigInvalid."""
        with self._lock:
            self._refresh()

    def next_due(self) -> int | None:
        """When the next key becomes current (epoch ms); a time in the past while a key is missing, None if all is in order."""
        now, records = clock.now_ms(), list_keys()
        if any(each.id not in self._sealer.key_ids for each in list_needed(records, now)):
            return 0
        return min((each.current_from for each in records if each.current_from > now), default=None)

    def _find(self, key: str) -> None:
        """Look for the key of a value that the sealer could not open.  Anyone may send such a value, so the database is asked once
        a second, and a command is left to `refresh`."""
        now = clock.monotonic()
        if self._config.master_key.source == "command" or now - self._looked_at < FIND_SECONDS:
            return
        self._looked_at = now
        if db.rows("SELECT 1 FROM master_key WHERE id = ? AND retired_at IS NULL", (key,)):
            self.refresh()

    def _refresh(self) -> None:
        records, now = list_keys(), clock.now_ms()
        new: tuple[bytes, ...] = ()
        needed, present = {each.id for each in list_needed(records, now)}, self._sealer.key_ids
        if not needed <= present:
            new = self._load()
            present |= set(map(key_id, new))
        usable = [each for each in records if each.retired_at is None and each.id in present]
        current = find_current(usable, now)
        ids, name = {each.id for each in usable}, None if current is None else current.id
        if (ids, name) != (self._sealer.key_ids, self._sealer.current):
            self._sealer.use_keys(ids, name, new)
            note_installation(self._config, self._sealer)
            log.info("master keys have changed", extra={"fields": {"current": name, "earlier": sorted(ids - {name})}})
        self._report(sorted(needed - present))

    def _load(self) -> tuple[bytes, ...]:
        """The keys of the source, which is read at most every few seconds."""
        if clock.monotonic() - self._loaded_at < LOAD_SECONDS:
            return ()
        self._loaded_at = clock.monotonic()
        return load_keys(self._config)

    def _report(self, missing: list[str]) -> None:
        """Log keys that are missing, once."""
        if missing and missing != self._reported:
            log.error(
                "this process lacks the master key %s and cannot open what others seal with it: add it to the source of its keys, "
                "and restart it", ", ".join(missing),
            )  # fmt: skip
        self._reported = missing
