"""`gos audit`: verify and export audit trails, and the keys that sign them."""

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from appliance.core import clock
from appliance.core.errors import NotFound, ValidationFailed
from appliance.core.scope import APPLIANCE
from appliance.core.sentences import Sentence
from appliance.monitor import ChainStatus, audit, verify_trails
from appliance.monitor.forwarding import acknowledge_rejections, list_rejections
from appliance.monitor.signed_trails import (
    AuditKeys,
    FileStatus,
    list_audit_keys,
    public_keys_file,
    read_public_keys,
    sign_export,
    verify_file,
)
from appliance.tenants import appliance_scope, service

from .output import add_json, opened_store, print_rows, read_store


def add_commands(commands: Any) -> None:
    trail = commands.add_parser("audit", help="verify or export audit trails, or show the keys that sign them")
    what = trail.add_subparsers(dest="what", required=True)
    _add_verify(what)
    export = what.add_parser("export", help="print a trail as NDJSON, oldest entry first, and its signature")
    owner = export.add_mutually_exclusive_group(required=True)
    owner.add_argument("--tenant", help="the trail of this tenant")
    owner.add_argument("--appliance", action="store_true", help="the trail of the appliance itself")
    export.add_argument("--since", help="only entries from this time on, such as 2026-01-31T00:00:00Z")
    export.add_argument("--until", help="only entries before this time")
    export.set_defaults(run=run_export)
    key = what.add_parser("key", help="print the public keys that sign exports and streams as PEM, the current one first")
    which = key.add_mutually_exclusive_group()
    which.add_argument("fingerprint", nargs="?", help="only the key with this fingerprint")
    which.add_argument("--rotate", action="store_true", help="make another key current first; the earlier ones stay public")
    add_json(key)
    key.set_defaults(run=run_key)
    rejections = what.add_parser(
        "rejections", help="list the records of trails that a collector has refused for good and nobody has acknowledged"
    )
    rejections.add_argument("--acknowledge", action="store_true", help="acknowledge what is listed")
    add_json(rejections)
    rejections.set_defaults(run=run_rejections)


def _add_verify(what: Any) -> None:
    verify = what.add_parser(
        "verify", help="recompute the hashes of the trails of the appliance and every tenant; exits with 1 if one is broken"
    )
    only = verify.add_mutually_exclusive_group()
    only.add_argument("--tenant", help="only this tenant's")
    only.add_argument("--appliance", action="store_true", help="only the appliance's own")
    only.add_argument("--file", type=Path, help="those and the signatures of an exported or received file instead")
    trust = verify.add_mutually_exclusive_group()
    trust.add_argument(
        "--key", type=Path, metavar="PEM", help="with --file: the public keys to trust, instead of those of this appliance"
    )
    trust.add_argument("--unsigned", action="store_true", help="with --file: check only that its entries follow each other")
    add_json(verify)
    verify.set_defaults(run=run_verify)


def run_verify(args: argparse.Namespace) -> int:
    if args.file is not None:
        return _verify_file(args)
    if args.key is not None or args.unsigned:
        raise ValidationFailed("--key and --unsigned are about a file; name it with --file")
    with read_store(args.load()):
        if args.tenant:
            service.get_tenant(args.tenant)
        statuses = verify_trails(APPLIANCE if args.appliance else args.tenant)
    print_rows(args, [{"tenant": tenant_id, **_row(status)} for tenant_id, status in statuses])
    return 0 if all(status.intact for _, status in statuses) else 1


def _verify_file(args: argparse.Namespace) -> int:
    """Print the state of a file: `intact`, `broken`, or `unsigned` if a signature for its last entries is missing."""
    if args.unsigned:
        status = _read(args.file, lambda file: audit.verify_exported(line.decode() for line in file))
        print_rows(args, [{"file": str(args.file), **_row(status)}])
        return 0 if status.intact else 1
    keys = _keys_to_trust(args)
    result: FileStatus = _read(args.file, lambda file: verify_file(file, keys))
    row = {"file": str(args.file), **_row(result.chain), "signed_by": result.key}
    if result.chain.intact and not result.is_signed:
        reason = f"no signature covers the last {result.unsigned} entries" if result.unsigned else "the file is empty"
        row |= {"state": "unsigned", "reason": reason}
    row["key_of"] = (str(args.key) if args.key else "this appliance") if result.key else None
    print_rows(args, [row])
    return 0 if result.is_signed else 1


def _keys_to_trust(args: argparse.Namespace) -> Mapping[str, Ed25519PublicKey]:
    if args.key is not None:
        return read_public_keys(_read(args.key, lambda file: file.read()))
    with read_store(args.load()):
        keys = public_keys_file()
    return read_public_keys(keys.encode()) if keys else {}


def _read(path: Path, use: Any) -> Any:
    try:
        with path.open("rb") as file:
            return use(file)
    except (OSError, UnicodeDecodeError) as error:
        raise NotFound(Sentence("cannot read %(file)s: %(reason)s", file=str(path), reason=str(error))) from error


def _row(status: ChainStatus) -> dict[str, Any]:
    return {
        "state": "intact" if status.intact else "broken", "entries": status.entries, "first": status.first_seq,
        "last": status.last_seq, "broken_at": status.broken_seq, "reason": status.reason,
    }  # fmt: skip


def run_export(args: argparse.Namespace) -> int:
    since, until = (clock.parse_rfc3339(text) if text else None for text in (args.since, args.until))
    with read_store(args.load()) as sealer:
        scope = appliance_scope() if args.appliance else service.system_scope(service.get_tenant(args.tenant).id)
        lines = audit.iter_exported(scope, since, until)
        sys.stdout.writelines(sign_export(AuditKeys(sealer).current(), scope.tenant_id, lines))
    return 0


def run_rejections(args: argparse.Namespace) -> int:
    config = args.load()
    with opened_store(config) if args.acknowledge else read_store(config):
        rejections = list_rejections()
        for each in rejections if args.acknowledge else ():
            acknowledge_rejections(each.tenant_id, each.destination, each.total, scope=appliance_scope())
    rows = [
        {
            "trail": each.tenant_id, "destination": f"audit.{each.destination}", "records": each.count, "first": each.first_seq,
            "last": each.last_seq, "refused_at": clock.rfc3339(each.at), "reason": each.reason, "export": each.export_command,
        }
        for each in rejections
    ]  # fmt: skip
    print_rows(args, rows)
    return 0


def run_key(args: argparse.Namespace) -> int:
    if args.rotate:
        with opened_store(args.load()) as sealer:
            AuditKeys(sealer).rotate(appliance_scope())
            keys, text = list_audit_keys(), public_keys_file()
    else:
        with read_store(args.load()) as sealer:
            AuditKeys(sealer).current()
            keys, text = list_audit_keys(), public_keys_file()
    if args.fingerprint:
        keys = [key for key in keys if key.fingerprint == args.fingerprint]
        if not keys:
            raise NotFound(Sentence("there is no key %(key)s here; `gos audit key` lists all", key=repr(args.fingerprint[:80])))
        text = keys[0].pem
    if args.json:
        members = [
            {"fingerprint": key.fingerprint, "public_key": key.pem, "made_at": clock.rfc3339(key.made_at),
             "retired_at": clock.optional_rfc3339(key.retired_at)}
            for key in keys
        ]  # fmt: skip
        text = json.dumps(members, indent=2) + "\n"
    sys.stdout.write(text)
    return 0
