"""`gos master-key`: show, add, rotate or retire the keys that encrypt the secrets."""

import argparse
from typing import Any

from appliance.cli.output import add_json, opened_store, print_result, print_rows, read_store
from appliance.core import clock
from appliance.master_key import KeyRecord, MasterKeyStatus, add_key, get_status, retire_keys, rotate_key


def add_commands(commands: Any) -> None:
    key = commands.add_parser("master-key", help="show, add, rotate or retire the keys that encrypt the secrets")
    what = key.add_subparsers(dest="what", required=True)
    status = what.add_parser("status", help="the keys, and how many values are still sealed with earlier ones")
    add = what.add_parser("add", help="add a new key to the key file, to copy it to other machines before the rotation")
    rotate = what.add_parser("rotate", help="make a new key current; all values are sealed with it in the background")
    rotate.add_argument("--key", metavar="ID", help="the new key, if the source has several")
    retire = what.add_parser("retire", help="end earlier keys; refused while a value needs one")
    for parser, run in ((status, run_status), (add, run_add), (rotate, run_rotate), (retire, run_retire)):
        add_json(parser)
        parser.set_defaults(run=run)


def run_status(args: argparse.Namespace) -> int:
    config = args.load()
    with read_store(config) as sealer:
        status = get_status(sealer)
    keys = [_key_view(status, each) for each in status.keys]
    values = [{"column": column, "key": key, "values": count} for (column, key), count in sorted(status.earlier.items())]
    values += [{"column": column, "key": "none", "values": count} for column, count in sorted(status.unreadable.items())]
    if args.json:
        print_result(args, "", keys=keys, values=values)
        return 0
    print_rows(args, keys)
    print()
    if values:
        print_rows(args, values)
    else:
        print("all values are sealed with the current key")
    return 0


def _key_view(status: MasterKeyStatus, key: KeyRecord) -> dict[str, Any]:
    state = "current" if key.id == status.current else "next" if key.current_from > clock.now_ms() else "earlier"
    return {
        "id": key.id, "state": "retired" if key.retired_at else state, "since": clock.rfc3339(key.current_from or key.made_at),
        "retired_at": clock.optional_rfc3339(key.retired_at), "values": sum(status.needing(key.id).values()),
        "sealed_again": key.resealed, "done_at": clock.optional_rfc3339(key.resealed_at),
    }  # fmt: skip


def run_add(args: argparse.Namespace) -> int:
    config = args.load()
    with opened_store(config):
        key = add_key(config)
    print_result(
        args, f"the master key {key} is in {config.data / 'key'} and not used yet: copy the file to every machine of the "
        "appliance, then type gos master-key rotate", id=key,
    )  # fmt: skip
    return 0


def run_rotate(args: argparse.Namespace) -> int:
    config = args.load()
    with opened_store(config):
        rotation = rotate_key(config, args.key)
    at = clock.rfc3339(rotation.current_from)
    print_result(
        args, f"the master key {rotation.id} is current from {at}; then all values are sealed with it, while gos serve or gos "
        "worker runs: see gos master-key status. Make a backup now, and retire the earlier key when nothing needs it",
        id=rotation.id, current_from=at,
    )  # fmt: skip
    return 0


def run_retire(args: argparse.Namespace) -> int:
    config = args.load()
    with opened_store(config) as sealer:
        keys = retire_keys(config, sealer)
    names = ", ".join(keys)
    text = f"retired: {names}; nothing is sealed with it any more" if keys else "there is no earlier master key"
    if keys and config.master_key.source != "file":
        text += "; remove it from its source"
    print_result(args, text, retired=keys)
    return 0
