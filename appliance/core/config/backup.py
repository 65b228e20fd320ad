"""The section `backup`: where backups go, how often they are made, and how often their restore is rehearsed."""

import re
from dataclasses import dataclass
from pathlib import Path

from appliance.core.errors import ConfigInvalid
from appliance.core.sentences import Sentence

from .durations import check_duration
from .sections import Blobs, setting


@dataclass(frozen=True)
class Backup:
    """Scheduled backups of the whole appliance."""

    to: str = setting(
        "",
        "Folder for the backups, preferably on another disk or machine, or s3://bucket/prefix for an S3-compatible bucket; "
        "empty: no scheduled backups.",
    )
    every: str = setting("24h", "Interval between backups, such as 6h or 24h.")
    keep: int = setting(7, "Number of complete backups to keep; older ones are deleted.")
    passphrase: str = setting(
        "",
        "Passphrase that encrypts backups; without it, the key file is not included. Prefer the variable "
        "GOS_BACKUP_PASSPHRASE, and store the passphrase outside this appliance.",
        secret=True,
    )
    rehearse_every: str = setting(
        "",
        "Interval of rehearsals, such as 7d: the newest backup is restored beside the data, started, asked and deleted; "
        "empty: never.",
    )
    points_to: str = setting(
        "",
        "Folder on another disk or machine, or s3://bucket/prefix, to which every change is shipped within seconds, so that the "
        "appliance can be restored to any second; SQLite only; empty: off.",
    )
    points_for: str = setting("7d", "How far back it can be restored from there.")
    endpoint: str = setting(
        "", "URL of the server of an s3:// address, such as https://s3.example.com; empty: Amazon S3 in the region."
    )
    ca_file: str = setting("", "PEM file with the CA of the endpoint's certificate, in addition to the CAs that the system trusts.")
    region: str = setting("us-east-1", "Region of the bucket.")
    key_id: str = setting("", "Access key ID; empty: AWS_ACCESS_KEY_ID from the environment, or the role of the machine.")
    secret_key: str = setting("", "Secret access key; prefer the variable GOS_BACKUP_SECRET_KEY.", secret=True)
    path_style: bool = setting(True, "true: the bucket is in the path of the URL (most servers). false: in the host name.")


def check_backup(section: Backup, blobs: Blobs) -> None:
    """Check the settings of backups; ConfigInvalid."""
    if section.to:
        _check_place(section, blobs)
    if section.points_to:
        _check_points(section, blobs)
    # The server also without `backup.to`: `gos restore s3://…` uses these settings.
    if section.endpoint and not re.fullmatch(r"https?://[^\s/@?#]+/?", section.endpoint):
        raise ConfigInvalid("backup.endpoint must be the address of the server, such as https://s3.example.com")
    if section.ca_file and not section.endpoint.startswith("https://"):
        raise ConfigInvalid("backup.ca_file needs a backup.endpoint that starts with https://")
    if bool(section.key_id) != bool(section.secret_key):
        raise ConfigInvalid("backup.key_id and backup.secret_key must be set together")
    if section.rehearse_every and check_duration("backup.rehearse_every", section.rehearse_every) < 3_600_000:
        raise ConfigInvalid("backup.rehearse_every must be at least one hour, such as 7d")


def _check_points(section: Backup, blobs: Blobs) -> None:
    if check_duration("backup.points_for", section.points_for) < 3_600_000:
        raise ConfigInvalid("backup.points_for must be at least one hour, such as 7d")
    _check_address("backup.points_to", section.points_to, section, blobs)


def _check_place(section: Backup, blobs: Blobs) -> None:
    if check_duration("backup.every", section.every) < 60_000 or section.keep < 1:
        raise ConfigInvalid("backup.every must be at least one minute, and backup.keep at least 1")
    _check_address("backup.to", section.to, section, blobs)


def _check_address(name: str, place: str, section: Backup, blobs: Blobs) -> None:
    if place.startswith("s3://"):
        _check_bucket(name, place, section, blobs)
    elif not Path(place).is_absolute():
        raise ConfigInvalid(Sentence(
            "%(name)s must be the absolute path of a folder, or s3://bucket/prefix, not %(to)s", name=name, to=repr(place)
        ))


def _check_bucket(name: str, place: str, section: Backup, blobs: Blobs) -> None:
    match = re.fullmatch(r"s3://([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])((?:/[^/?#\s]+)*)/?", place)
    if match is None:
        raise ConfigInvalid(Sentence("%(name)s must be written as s3://bucket/prefix, not %(to)s", name=name, to=repr(place)))
    prefix, of_contents = f"{match[2]}/", f"/{blobs.prefix.strip('/')}/".replace("//", "/")
    if (blobs.store, blobs.bucket, blobs.endpoint) == ("s3", match[1], section.endpoint) and prefix.startswith(of_contents):
        raise ConfigInvalid(Sentence(
            "%(name)s is inside the bucket and prefix of blobs, where the appliance deletes what is not a content; use a bucket "
            "or a prefix of its own", name=name,
        ))  # fmt: skip
