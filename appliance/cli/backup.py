"""`gos backup` and `gos restore`."""

import argparse
import sys
from pathlib import Path
from typing import Any

from appliance.backups import checking, making, restoring
from appliance.blobs import installation_id
from appliance.core.config import Config, load_config
from appliance.core.crypto import Sealer, load_or_make_key
from appliance.core.database import db
from appliance.core.errors import InvalidRequest

from .output import add_json, say


def add_commands(commands: Any) -> None:
    backup = commands.add_parser("backup", help="write the whole appliance to one file, while it runs or not")
    backup.add_argument("file", type=Path)
    add_passphrase(backup)
    add_json(backup)
    backup.set_defaults(run=run_backup)
    restore = commands.add_parser("restore", help="bring a backup back into an empty data folder, or only check it")
    restore.add_argument("file", type=Path)
    restore.add_argument("--verify", action="store_true", help="only check that all of it could be restored")
    restore.add_argument("--replace", action="store_true", help="move the data that is there aside first")
    restore.add_argument("--key", type=Path, help="the key file of the appliance, for a backup that is not encrypted")
    add_passphrase(restore)
    add_json(restore)
    restore.set_defaults(run=run_restore)


def add_passphrase(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--passphrase-file",
        type=Path,
        metavar="FILE",
        help="file with the passphrase, - for standard input (default: GOS_BACKUP_PASSPHRASE)",
    )


def passphrase_of(args: argparse.Namespace, config: Config) -> str | None:
    """The passphrase of the file or of the configuration; None for none."""
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
    making.refuse_empty(config)
    passphrase = passphrase_of(args, config)
    sealer = Sealer(load_or_make_key(config.data / making.KEY))
    db.open_database(config.database_url)
    try:
        made = making.make_backup(config, make_places(config, installation_id(sealer)), args.file.absolute(), passphrase)
    finally:
        db.close_database()
    told = f"{made.path}: {made.rows} rows in {len(made.tables)} tables and {made.contents} contents, {made.size} bytes"
    told += ", encrypted" if made.encrypted else ""
    say(
        args, told, path=str(made.path), bytes=made.size, encrypted=made.encrypted, schema=made.schema, rows=made.rows,
        tables=made.tables, contents=made.contents, damaged=list(made.damaged), left_out=list(made.left_out),
    )  # fmt: skip
    if made.left_out:
        print(
            f"left out because the file is not encrypted: {', '.join(made.left_out)}. Without the key file nothing that is sealed "
            "opens again: keep a copy of it apart, or give --passphrase-file",
            file=sys.stderr,
        )
    for place in made.damaged:
        print(f"gos: the content {place} is damaged or lost and is not in the backup", file=sys.stderr)
    return 1 if made.damaged else 0


def run_restore(args: argparse.Namespace) -> int:
    from appliance.app.parts import make_places

    config: Config = args.load()
    passphrase = passphrase_of(args, config)
    if args.verify:
        manifest = checking.verify_backup(args.file, passphrase)
        rows = sum(manifest["tables"].values())
        told = f"{args.file} is whole: made {manifest['made_at']} by version {manifest['version']}, schema {manifest['schema']}"
        say(args, f"{told}, {rows} rows, {manifest['contents']['count']} contents", whole=True, **manifest)
        return 0

    def load(kept: Path | None) -> Config:
        if args.config or kept is None:
            return config
        return load_config(kept, flags={"storage.data": str(config.data)})

    request = restoring.RestoreRequest(args.file, passphrase, args.key, args.replace)
    done = restoring.restore_backup(load, make_places, request)
    say(
        args, _told(done), data=str(done.data), rows=done.rows, contents=done.manifest["contents"]["count"],
        made_at=done.manifest["made_at"], migrated=list(done.migrated), aside=str(done.aside) if done.aside else None,
        stayed=list(done.stayed), missing=list(done.missing),
    )  # fmt: skip
    return 0


def _told(done: restoring.Restored) -> str:
    """What lies where now, and what to do before the appliance is started."""
    counted = f"{done.rows} rows and {done.manifest['contents']['count']} contents of {done.manifest['made_at']}"
    told = f"{counted} are in {done.data}" + (f"; what was there is in {done.aside}" if done.aside else "")
    if done.stayed:
        told += f". Of that {', '.join(done.stayed)} stayed, because the backup does not hold them"
    if done.missing:
        told += f". The backup does not hold that appliance's {', '.join(done.missing)}: put it into {done.data}, or set up anew"
    return f"{told}. {'Then start' if done.missing else 'Start'} the appliance; people sign in anew"
