"""Lists the backups of any folder or bucket, whosever they are, and downloads one from a bucket."""

import hashlib
import os
import secrets
from pathlib import Path

from appliance.backups.backup_folder import BackupFile, moment_of_name
from appliance.backups.buckets import is_bucket, open_folder
from appliance.backups.buckets.addresses import parse_object
from appliance.backups.parts import PIECE, is_sealed, name_file
from appliance.backups.problems import BackupInvalid, full_disks
from appliance.core.config import Config
from appliance.core.errors import AlreadyExists, NotFound
from appliance.core.sentences import Sentence

_END = ".gosb"


def list_place(config: Config, place: str) -> list[BackupFile]:
    """The backups of a folder or bucket, the newest first; `made_at` is 0 when the name does not tell it.

    Raises Overloaded when the bucket cannot be reached, OSError for a folder that cannot be read.
    """
    if is_bucket(place):
        files = [BackupFile(each.name, moment_of_name(each.name), each.size, is_sealed=True)
                 for each in open_folder(config, place).list() if each.name.endswith(_END)]  # fmt: skip
    else:
        paths = [path for path in Path(place).iterdir() if path.suffix == _END and path.is_file()]
        files = [BackupFile(path.name, moment_of_name(path.name), path.stat().st_size, _is_sealed(path)) for path in paths]
    return sorted(files, key=lambda each: (each.made_at, each.name), reverse=True)


def _is_sealed(path: Path) -> bool:
    try:
        return is_sealed(path)
    except BackupInvalid:
        return False


def download_backup(config: Config, address: str, target: Path) -> tuple[int, str]:
    """Download the backup of an address to a new file; returns its size and sha256, which its checksum in the bucket confirms.

    The file appears complete or not at all.  Raises AlreadyExists, NotFound, BackupInvalid, StorageFull, or Overloaded.
    """
    folder_address, name = parse_object(address)
    folder = open_folder(config, folder_address)
    source = folder.find(name)
    if source is None:
        raise NotFound(Sentence("there is no backup %(address)s; list them with `gos backup list`", address=address))
    if target.exists():
        raise AlreadyExists(
            Sentence("%(path)s exists already and is not overwritten; name another file, or move it away", path=target)
        )
    draft = target.with_name(f".{target.name}.{secrets.token_hex(6)}.partial")
    digest = hashlib.sha256()
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with full_disks(), os.fdopen(descriptor, "wb") as file, source.open() as remote:
            while piece := remote.read(PIECE):
                digest.update(piece)
                file.write(piece)
            file.flush()
            os.fsync(file.fileno())
        if digest.hexdigest() != folder.read_checksum(name):
            raise BackupInvalid(Sentence("%(address)s is not what its checksum says; use another backup", address=address))
        name_file(draft, target)
    finally:
        draft.unlink(missing_ok=True)
    return source.size, digest.hexdigest()
