"""Where a backup is: a path, or the `s3://` address of an object in a bucket."""

from pathlib import Path

from appliance.backups import BackupSource
from appliance.backups.buckets import find_object, is_bucket
from appliance.core.config import Config


def open_source(config: Config, text: str) -> BackupSource:
    """The backup of a path or address.  NotFound for an object that does not exist, Overloaded when the bucket fails."""
    return find_object(config, text) if is_bucket(text) else Path(text)
