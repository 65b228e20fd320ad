"""Copies the files of a data folder that belong to the installation, if it moves to another data folder."""

import os
import shutil
from pathlib import Path

from appliance.backups.creation import OPEN_FILES, SECRET_FILES, TEMPLATES, files_of
from appliance.backups.parts import sync_folder
from appliance.core.errors import Conflict
from appliance.core.sentences import Sentence

_NAMES = (*(name for name in SECRET_FILES if name != "config.yaml"), *OPEN_FILES, TEMPLATES)


def copy_files(origin: Path, target: Path) -> int:
    """Copies the key file, certificates, connectors, languages and templates; returns their number.

    Conflict if the target has another file of one of these names.
    """
    if origin.resolve() == target.resolve():
        return 0
    target.mkdir(parents=True, exist_ok=True, mode=0o700)
    count = 0
    for path in files_of(origin, _NAMES):
        _copy_file(path, target / path.relative_to(origin))
        count += 1
    return count


def _copy_file(path: Path, copy: Path) -> None:
    """Copies a file under a temporary name first, so that the copy is whole or absent."""
    if copy.exists():
        if copy.read_bytes() != path.read_bytes():
            raise Conflict(Sentence("%(copy)s exists and differs from %(path)s; move it aside first", copy=copy, path=path))
        return
    copy.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    part = copy.with_name(f".{copy.name}.part")
    shutil.copy2(path, part)
    with part.open("rb") as file:
        os.fsync(file.fileno())
    part.rename(copy)
    sync_folder(copy.parent)
