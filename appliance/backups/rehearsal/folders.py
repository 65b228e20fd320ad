"""The temporary folders of rehearsals, in the data folder."""

import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from appliance.backups.locked_folders import is_abandoned, locked_folder
from appliance.core.config import Config

FOLDER, _PREFIX = "rehearsals", ".gos-rehearsal-"


@contextmanager
def temporary_folder(config: Config) -> Iterator[Path]:
    """A folder for one rehearsal, deleted at the end."""
    parent = config.data / FOLDER
    parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    delete_leftovers(config)
    with locked_folder(parent / f"{_PREFIX}{secrets.token_hex(6)}") as folder:
        yield folder


def delete_leftovers(config: Config) -> None:
    """Delete what rehearsals have left whose process was killed."""
    for path in (config.data / FOLDER).glob(f"{_PREFIX}*"):
        if is_abandoned(path):
            shutil.rmtree(path, ignore_errors=True)
