"""The journal of the last upgrade, a file in the data folder, and the lock that one upgrade holds.

The database itself says which schema it has, so the journal decides nothing about that: it says what a process that was killed
was about to do, whether there is a copy of the former database, and whether this release has used the new one.
"""

import dataclasses
import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from appliance.core import clock
from appliance.core.database.presence import is_locked
from appliance.core.errors import ConfigInvalid, Conflict
from appliance.core.sentences import Sentence

FOLDER, COPY = "upgrade", "before.db"
_FILE, _LOCK = "journal.json", "lock"

PREPARING, SWAPPING, DONE, FAILED = "preparing", "swapping", "done", "failed"
ROLLING_BACK, ROLLED_BACK = "rolling_back", "rolled_back"
UNFINISHED = (PREPARING, SWAPPING, ROLLING_BACK)


@dataclass(frozen=True)
class Journal:
    """The last upgrade: its state, the migrations before and after, its steps, and the time it ended (epoch ms).

    `copy_sha256` is the hash of the copy of the former database, empty without one.  `used_at` is when this release first opened
    the new database to write.
    """

    state: str
    from_number: int
    to_number: int
    program: str
    started_at: int
    steps: tuple[dict[str, Any], ...] = ()
    copy_sha256: str = ""
    copied_at: int = 0
    ended_at: int = 0
    used_at: int = 0
    problem: str = ""

    def with_step(self, step: str, text: str) -> "Journal":
        """The journal with a further step."""
        return dataclasses.replace(self, steps=(*self.steps, {"step": step, "at": clock.rfc3339(clock.now_ms()), "text": text}))


def folder_of(data: Path) -> Path:
    """The folder of upgrades in a data folder."""
    return data / FOLDER


def copy_of(data: Path) -> Path:
    """The path of the copy of the former database."""
    return folder_of(data) / COPY


def read_journal(data: Path) -> Journal | None:
    """The journal of the last upgrade; None if there was none.  ConfigInvalid if the file is damaged."""
    path = folder_of(data) / _FILE
    try:
        document = json.loads(path.read_bytes())
        return Journal(**{**document, "steps": tuple(document["steps"])})
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError) as error:
        raise ConfigInvalid(Sentence(
            "the journal of the last upgrade, %(path)s, cannot be read; it decides nothing about the data: delete it", path=path
        )) from error


def save_journal(data: Path, journal: Journal) -> None:
    """Write the journal; atomically, and synced to disk."""
    path = folder_of(data) / _FILE
    draft = path.with_name(f"{_FILE}.new")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        json.dump(dataclasses.asdict(journal), file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def upgrade_lock(data: Path) -> Iterator[None]:
    """Held by the one upgrade of a data folder; the kernel releases it when the process dies.  Conflict."""
    folder_of(data).mkdir(mode=0o700, exist_ok=True)
    descriptor = os.open(folder_of(data) / _LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise Conflict("another `gos upgrade` works on this data folder; wait until it ends") from error
        yield
    finally:
        os.close(descriptor)


def refuse_in_progress(data: Path) -> None:
    """Conflict while an upgrade works on this data folder."""
    path = folder_of(data) / _LOCK
    if path.exists() and is_locked(path):
        raise Conflict("`gos upgrade` works on this data folder; start the appliance when it is done")


def note_use(data: Path) -> None:
    """Record that this release is about to open the database to write, after which a roll back loses what was written."""
    if not (folder_of(data) / _FILE).exists():
        return
    journal = read_journal(data)
    if journal is not None and journal.state in (SWAPPING, DONE, ROLLING_BACK) and not journal.used_at:
        save_journal(data, dataclasses.replace(journal, used_at=clock.now_ms()))
