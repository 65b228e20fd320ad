"""The `s3://bucket/prefix` addresses of backups, and the settings with which their bucket is opened."""

from appliance.core.config import Config
from appliance.core.config.sections import Blobs as BucketSettings
from appliance.core.errors import ValidationFailed
from appliance.core.sentences import Sentence

SCHEME = "s3://"


def is_bucket(place: str) -> bool:
    """Whether a place of backups is a bucket, not a folder."""
    return place.startswith(SCHEME)


def settings_of(config: Config, address: str) -> BucketSettings:
    """The settings of the bucket of an address, with the server and the keys of the section `backup`."""
    backup = config.backup
    bucket, _, prefix = address.removeprefix(SCHEME).partition("/")
    if not bucket:
        raise ValidationFailed(
            Sentence("%(address)s names no bucket; write s3://bucket/prefix", address=repr(address)), pointer="/file"
        )
    return BucketSettings(
        store="s3", bucket=bucket, prefix=prefix.strip("/"), endpoint=backup.endpoint, ca_file=backup.ca_file,
        region=backup.region, key_id=backup.key_id, secret_key=backup.secret_key, path_style=backup.path_style,
    )  # fmt: skip


def parse_object(address: str) -> tuple[str, str]:
    """The address of the folder, and the name in it, of one object; ValidationFailed when it names none."""
    folder, _, name = address.removeprefix(SCHEME).rpartition("/")
    if not folder or not name:
        raise ValidationFailed(
            Sentence("%(address)s names no file in a bucket; write s3://bucket/prefix/name.gosb", address=repr(address)),
            pointer="/file",
        )
    return f"{SCHEME}{folder}", name
