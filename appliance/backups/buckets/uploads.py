"""Makes a backup in a bucket on the command line."""

from dataclasses import replace
from pathlib import Path

from appliance.backups.backup_folder import folder_of, temporary_folder
from appliance.backups.creation import Backup, make_backup
from appliance.backups.envelope import check_passphrase, refuse_unencrypted
from appliance.backups.verification import verify_backup
from appliance.blobs import Places
from appliance.core.config import Config

from .addresses import parse_object
from .folders import open_folder


def make_in_bucket(config: Config, places: Places, address: str, passphrase: str | None) -> Backup:
    """Write a backup of the open database as the object of an address, verified here, uploaded, and read back.

    Raises AlreadyExists, BackupInvalid without a passphrase, StorageFull, or Overloaded when the bucket fails.
    """
    refuse_unencrypted(passphrase)
    check_passphrase(passphrase or "")
    folder_address, name = parse_object(address)
    folder = open_folder(config, folder_address)
    folder.probe()
    folder.refuse_existing(name)
    folder_of(config).mkdir(parents=True, exist_ok=True, mode=0o700)
    with temporary_folder(config) as room:
        draft = room / name
        backup = make_backup(config, places, draft, passphrase)
        verify_backup(draft, passphrase, room)
        folder.store(draft, name)
    return replace(backup, path=Path(name))
