"""`gos backup` and `gos restore`."""

import argparse
import os
import pwd
import sys
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from appliance.backups import creation, restoring, verification
from appliance.backups.buckets import is_bucket
from appliance.blobs import read_installation
from appliance.core.config import Config, load_config
from appliance.core.database import db
from appliance.core.errors import InvalidRequest

from .output import add_json, print_result


def add_commands(commands: Any) -> None:
    backup = commands.add_parser("backup", help="back up the whole appliance to one file, even while it runs")
    backup.add_argument("file", help="the new file, or s3://bucket/prefix/name.gosb")
    add_passphrase(backup)
    add_json(backup)
    backup.set_defaults(run=run_backup)
    restore = commands.add_parser("restore", help="restore a backup into an empty data folder, or only verify it")
    restore.add_argument("file", help="the backup, or its address s3://bucket/prefix/name.gosb; with --at, backup.points_to")
    restore.add_argument("--at", metavar="MOMENT", help="restore from points: 2026-03-01T09:30:00Z, or latest")
    restore.add_argument("--verify", action="store_true", help="only check that the backup can be restored completely")
    restore.add_argument("--replace", action="store_true", help="move existing data aside first")
    restore.add_argument("--tenant", metavar="ID", help="only take this tenant out, as an export for `gos tenant import`")
    restore.add_argument("--document", metavar="ID", help="only take this document out, of --tenant if several have that id")
    restore.add_argument("--all-revisions", action="store_true", help="all revisions of --document, as a new folder")
    restore.add_argument("--to", type=Path, metavar="PATH", help="the new file for what --tenant or --document takes out")
    restore.add_argument("--key", type=Path, help="the appliance's key file, for a backup that is not encrypted")
    add_passphrase(restore)
    add_json(restore)
    restore.set_defaults(run=run_restore)
    listing = commands.add_parser("backup list", help="list backups, or what is in one: its tenants, counts and moment")
    listing.add_argument("file", nargs="?", default="", help="a backup, a folder, or an s3:// address (default: backup.to)")
    add_passphrase(listing)
    add_json(listing)
    listing.set_defaults(run=_late("listing", "run_list"))
    download = commands.add_parser("backup download", help="download a backup from a bucket, verified by its checksum")
    download.add_argument("address", help="s3://bucket/prefix/name.gosb")
    download.add_argument("file", type=Path, help="the new file")
    add_json(download)
    download.set_defaults(run=_late("listing", "run_download"))
    rehearsal = commands.add_parser("backup rehearse", help="restore a backup beside the data, start it, ask it and delete it")
    rehearsal.add_argument("file", help="the backup, or its address s3://bucket/prefix/name.gosb")
    rehearsal.add_argument("--key", type=Path, help="the appliance's key file, for a backup that is not encrypted")
    add_passphrase(rehearsal)
    add_json(rehearsal)
    rehearsal.set_defaults(run=_late("rehearsing", "run_rehearse"))


def _late(module: str, name: str) -> Callable[[argparse.Namespace], int]:
    """A function of a module that is loaded only when it runs."""
    return lambda args: int(getattr(import_module(f".backups.{module}", __package__), name)(args))


def add_passphrase(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--passphrase-file",
        type=Path,
        metavar="FILE",
        help="the file with the passphrase, or - for standard input (default: GOS_BACKUP_PASSPHRASE)",
    )


def passphrase_of(args: argparse.Namespace, config: Config) -> str | None:
    """The passphrase from the file or the configuration; None if there is none."""
    if args.passphrase_file is None:
        return config.backup.passphrase or None
    text = sys.stdin.read() if str(args.passphrase_file) == "-" else args.passphrase_file.read_text("utf8")
    passphrase = text.strip("\r\n")
    if not passphrase:
        raise InvalidRequest("the passphrase is empty; put it into the first line of the file")
    return passphrase


def run_backup(args: argparse.Namespace) -> int:
    from appliance.app.parts import make_places

    config: Config = args.load()
    creation.refuse_empty(config)
    passphrase = passphrase_of(args, config)
    db.open_database(config.database_url)
    try:
        places = make_places(config, read_installation(config))
        if is_bucket(args.file):
            from appliance.backups.buckets import make_in_bucket

            backup, path = make_in_bucket(config, places, args.file, passphrase), args.file
        else:
            backup = creation.make_backup(config, places, Path(args.file).absolute(), passphrase)
            path = str(backup.path)
    finally:
        db.close_database()
    counted = f"{backup.rows} rows in {len(backup.tables)} tables and {backup.contents} contents"
    summary = f"{path}: {counted}, {backup.size} bytes" + (", encrypted" if backup.encrypted else "")
    print_result(
        args, summary, path=path, bytes=backup.size, encrypted=backup.encrypted, schema=backup.schema, rows=backup.rows,
        tables=backup.tables, contents=backup.contents, damaged=list(backup.damaged), left_out=list(backup.left_out),
    )  # fmt: skip
    if backup.left_out:
        print(
            f"left out because the backup is not encrypted: {', '.join(backup.left_out)}. Without the key file, "
            "sealed secrets cannot be read: keep a copy of it elsewhere, or encrypt the backup with --passphrase-file",
            file=sys.stderr,
        )
    for place in backup.damaged:
        print(f"gos: the content {place} is damaged or missing, and is not in the backup", file=sys.stderr)
    return 1 if backup.damaged else 0


def run_restore(args: argparse.Namespace) -> int:
    from appliance.app.parts import make_places

    from .backups.sources import open_source

    config: Config = args.load()
    passphrase = passphrase_of(args, config)
    if args.at:
        from .backups.points import restore_point

        return restore_point(args, config, passphrase)
    source = open_source(config, args.file)
    if args.tenant or args.document or args.to:
        from .backups.extracting import extract

        return extract(args, source, passphrase)
    if args.verify:
        manifest = verification.verify_backup(source, passphrase)
        rows = sum(manifest["tables"].values())
        origin = f"made {manifest['made_at']} by version {manifest['version']}, schema {manifest['schema']}"
        summary = f"{args.file} is complete: {origin}, {rows} rows, {manifest['contents']['count']} contents"
        print_result(args, summary, whole=True, **manifest)
        return 0

    request = restoring.RestoreRequest(source, passphrase, args.key, args.replace, by=operator_name())
    done = restoring.restore_backup(partial(load_restored, args, config), make_places, request)
    print_result(
        args, describe(done), data=str(done.data), rows=done.rows, contents=done.manifest["contents"]["count"],
        made_at=done.manifest["made_at"], migrated=list(done.migrated),
        aside=str(done.previous_data) if done.previous_data else None, stayed=list(done.copied), missing=list(done.missing),
    )  # fmt: skip
    return 0


def operator_name() -> str:
    """The user of the operating system who runs the command, by name if it has one."""
    number = os.getuid()
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:  # in a container
        return str(number)


def load_restored(args: argparse.Namespace, config: Config, restored_config: Path | None) -> Config:
    """The configuration of the command, else the restored one."""
    if args.config or restored_config is None:
        return config
    return load_config(restored_config, flags={"storage.data": str(config.data)})


def describe(done: restoring.RestoreResult) -> str:
    """Describe what was restored where, and what to do before starting the appliance."""
    counted = f"{done.rows} rows and {done.manifest['contents']['count']} contents of {done.manifest['made_at']}"
    text = f"{counted} were restored to {done.data}" + (
        f"; the previous data is in {done.previous_data}" if done.previous_data else ""
    )
    if done.copied:
        text += f". Of the previous data, {', '.join(done.copied)} stayed, because the backup does not contain it"
    if done.missing:
        missing = ", ".join(done.missing)
        text += f". The backup does not contain the appliance's {missing}: copy it to {done.data}, or set it up again"
    return f"{text}. {'Then start' if done.missing else 'Start'} the appliance; everyone has to sign in again"
