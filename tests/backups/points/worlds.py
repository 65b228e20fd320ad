"""An appliance whose points are shipped, and what a moment of it looked like."""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from appliance.app.parts import make_places
from appliance.backups.points import PointRequest, PointShipper
from appliance.backups.restoring import RestoreResult, restore_backup
from appliance.core import clock
from appliance.core.config.sections import Blobs as BucketSettings
from tests.backups.conftest import PASSPHRASE, World, make_world
from tests.processes.world import wait_until


def point_world(folder: Path, place: str, passphrase: str = PASSPHRASE, **settings: Any) -> World:
    world = make_world(folder)
    backup = replace(world.config.backup, points_to=place, passphrase=passphrase, **settings)
    return World(replace(world.config, backup=backup))


def bucket_point_world(folder: Path, bucket: BucketSettings, **settings: Any) -> World:
    """An appliance with its points below a prefix of its own."""
    return point_world(
        folder, f"s3://{bucket.bucket}/points-{secrets.token_hex(6)}", endpoint=bucket.endpoint, region=bucket.region,
        key_id=bucket.key_id, secret_key=bucket.secret_key, **settings,
    )  # fmt: skip


@contextmanager
def shipping(world: World) -> Iterator[PointShipper]:
    """Ship, inside `opened`, from when the first base is complete."""
    shipper, before = PointShipper(world.config, world.places), clock.now_ms()
    shipper.start()
    try:
        wait_until(lambda: shipper.status.base_at >= before, 60)
        yield shipper
    finally:
        shipper.stop()


def wait_for_shipment(shipper: PointShipper) -> int:
    """Wait until everything until now is shipped; a moment since, at which nothing else has happened."""
    before = clock.now_ms()
    wait_until(lambda: shipper.status.point_at > before, 60)
    return clock.now_ms()


def restore_point(source: World, target: World, moment: int | None, **options: Any) -> RestoreResult:
    place = source.config.backup.points_to
    options.setdefault("passphrase", PASSPHRASE)
    request = PointRequest(Path(place), config=source.config, place=place, moment=moment, **options)
    return restore_backup(lambda _: target.config, make_places, request)
