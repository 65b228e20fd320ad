"""`gos restore FILE --tenant` and `--document`: take one tenant or document out of a backup, without an appliance."""

import argparse
import sys

from appliance.backups import BackupSource
from appliance.backups.extraction import DocumentRequest, extract_document, extract_tenant
from appliance.cli.output import print_result
from appliance.core.errors import InvalidRequest


def extract(args: argparse.Namespace, source: BackupSource, passphrase: str | None) -> int:
    """Take out what the arguments name; 1 if some of it is damaged in the backup."""
    if not args.to or not (args.tenant or args.document):
        raise InvalidRequest("--to PATH needs --tenant ID or --document ID, and each of them needs --to PATH")
    if args.replace or args.verify or args.key:
        raise InvalidRequest("--replace, --verify and --key are about a whole appliance; leave them out with --to")
    if args.all_revisions and not args.document:
        raise InvalidRequest("--all-revisions needs --document ID")
    return _extract_document(args, source, passphrase) if args.document else _extract_tenant(args, source, passphrase)


def _extract_tenant(args: argparse.Namespace, source: BackupSource, passphrase: str | None) -> int:
    target = args.to.absolute()
    manifest = extract_tenant(source, passphrase, args.tenant, target)
    rows, contents = sum(manifest["tables"].values()), manifest["contents"]
    sealed = ", encrypted with the passphrase of the backup" if manifest["encrypted"] else ""
    counted = f"{rows} rows and {contents['count']} contents of {args.tenant} of {manifest['made_at']}"
    summary = f"{target}: {counted}, without secrets{sealed}. Next: gos tenant import {args.to} --as NAME"
    print_result(args, summary, path=str(target), **manifest)
    for place in contents["damaged"]:
        print(f"gos: the content {place} is damaged or missing in the backup, and is not in the export", file=sys.stderr)
    _print_damage(manifest["damage"])
    return 1 if contents["damaged"] else 0


def _extract_document(args: argparse.Namespace, source: BackupSource, passphrase: str | None) -> int:
    request = DocumentRequest(args.document, args.tenant, args.all_revisions)
    done = extract_document(source, passphrase, request, args.to.absolute())
    numbers = ", ".join(str(each) for each in done.revisions)
    moment = f" of {done.made_at}" if done.made_at else ""
    print_result(
        args, f"{done.path}: revision {numbers} of {done.name} in the tenant {done.tenant_id}{moment}", path=str(done.path),
        tenant=done.tenant_id, name=done.name, revisions=list(done.revisions), damaged=list(done.damaged), made_at=done.made_at,
        damage=done.damage,
    )  # fmt: skip
    for number in done.damaged:
        print(f"gos: the content of revision {number} is damaged or missing in the backup", file=sys.stderr)
    _print_damage(done.damage)
    return 1 if done.damaged else 0


def _print_damage(damage: str | None) -> None:
    if damage is not None:
        print(f"gos: the rest of the backup is damaged: {damage}. Make a new backup, and check the disk or bucket", file=sys.stderr)
