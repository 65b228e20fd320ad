"""A bucket with backups of a test's appliance."""

from dataclasses import replace
from pathlib import Path

import obstore

from appliance.backups.buckets import BucketFolder, open_folder
from appliance.blobs import UnfinishedUploads, open_bucket
from appliance.core.config.sections import Blobs as BucketSettings
from tests.backups.conftest import PASSPHRASE, World, make_world


def bucket_world(folder: Path, bucket: BucketSettings, prefix: str, passphrase: str = PASSPHRASE) -> World:
    """An appliance with hourly backups below a prefix of the bucket, of which two are kept."""
    world = make_world(folder)
    backup = replace(
        world.config.backup, to=f"s3://{bucket.bucket}/{prefix}", every="1h", keep=2, passphrase=passphrase,
        endpoint=bucket.endpoint, region=bucket.region, key_id=bucket.key_id, secret_key=bucket.secret_key,
    )  # fmt: skip
    return World(replace(world.config, backup=backup))


def folder_of_world(world: World) -> BucketFolder:
    return open_folder(world.config)


def names_in(bucket: BucketSettings, prefix: str) -> list[str]:
    """Every object below the prefix, complete or not."""
    store = open_bucket(replace(bucket, prefix=prefix))
    return sorted(each["path"] for each in obstore.list_with_delimiter(store)["objects"])


def unfinished_in(bucket: BucketSettings, prefix: str) -> list[str]:
    """The names of unfinished uploads below the prefix."""
    return sorted(each.name for each in UnfinishedUploads(replace(bucket, prefix=prefix), "the bucket").list())


def leave_unfinished(bucket: BucketSettings, prefix: str, name: str) -> None:
    """Begin an upload that is never completed, as a process does that is killed."""
    writer = obstore.open_writer(open_bucket(replace(bucket, prefix=prefix)), name, buffer_size=5 << 20)
    writer.write(b"half" * (2 << 20))
