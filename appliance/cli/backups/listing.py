"""`gos backup list` and `gos backup download`."""

import argparse
import sys
from dataclasses import asdict
from pathlib import Path

from appliance.backups import BackupFile, BackupSource, place_of
from appliance.backups.buckets import is_bucket
from appliance.backups.extraction import BackupOverview, describe_backup, download_backup, list_place
from appliance.cli.backup import passphrase_of
from appliance.cli.output import print_result, print_rows
from appliance.core import clock
from appliance.core.config import Config
from appliance.core.errors import InvalidRequest

from .sources import open_source


def run_list(args: argparse.Namespace) -> int:
    """List the backups of a place, or describe one backup."""
    config: Config = args.load()
    place = args.file or place_of(config)
    if place.endswith(".gosb") or (not is_bucket(place) and Path(place).is_file()):
        return _describe(args, open_source(config, place), passphrase_of(args, config))
    if not is_bucket(place) and not Path(place).is_dir():
        raise InvalidRequest(f"there is no backup and no folder {place}; name another, or set backup.to")
    print_rows(args, [_to_row(place, each) for each in list_place(config, place)])
    return 0


def _to_row(place: str, each: BackupFile) -> dict[str, object]:
    return {
        "file": f"{place.rstrip('/')}/{each.name}", "made_at": clock.rfc3339(each.made_at) if each.made_at else None,
        "bytes": each.size, "encrypted": "yes" if each.is_sealed else "no",
    }  # fmt: skip


def _describe(args: argparse.Namespace, source: BackupSource, passphrase: str | None) -> int:
    overview = describe_backup(source, passphrase)
    if args.json:
        tenants = [
            {"id": each.id, "name": each.name, "kind": each.kind, "contents": each.contents, "bytes": each.bytes,
             "counts": {one.kind: one.count for one in each.counts}}
            for each in overview.tenants
        ]  # fmt: skip
        print_result(args, "", **asdict(overview) | {"tenants": tenants})
    else:
        _print(source, overview)
    if overview.damage is not None:
        print(f"gos: the backup is damaged: {overview.damage}. What it has before can be taken out by tenant", file=sys.stderr)
    return 1 if overview.damage is not None else 0


def _print(source: BackupSource, overview: BackupOverview) -> None:
    origin = f"made {overview.made_at} by version {overview.version}" if overview.made_at else "of an unknown moment"
    sealed = "encrypted" if overview.is_sealed else "not encrypted"
    print(f"{source}: {origin}, schema {overview.schema}, {sealed}, {overview.rows} rows, {len(overview.tenants)} tenants")
    for each in overview.tenants:
        counts = ", ".join(f"{one.count} {one.kind}" for one in each.counts) or "nothing"
        print(f"  {each.id} ({each.name}): {counts}; {each.contents} contents of {each.bytes} bytes")


def run_download(args: argparse.Namespace) -> int:
    """Download a backup from a bucket to a new file."""
    config: Config = args.load()
    if not is_bucket(args.address):
        raise InvalidRequest("gos backup download needs the address of a backup in a bucket, such as s3://bucket/prefix/name.gosb")
    target = args.file.absolute()
    size, digest = download_backup(config, args.address, target)
    print_result(args, f"{target}: {size} bytes, sha256 {digest}", path=str(target), bytes=size, sha256=digest)
    return 0
