"""`gos audit`: verify and export audit trails."""

import argparse
import sys
from pathlib import Path
from typing import Any

from appliance.core import clock
from appliance.core.errors import NotFound
from appliance.core.scope import APPLIANCE
from appliance.core.sentences import Sentence
from appliance.monitor import ChainStatus, audit, verify_trails
from appliance.tenants import appliance_scope, service

from .output import add_json, print_rows, read_store


def add_commands(commands: Any) -> None:
    trail = commands.add_parser("audit", help="verify or export audit trails")
    what = trail.add_subparsers(dest="what", required=True)
    verify = what.add_parser(
        "verify", help="recompute the hashes of the trails of the appliance and every tenant; exits with 1 if one is broken"
    )
    only = verify.add_mutually_exclusive_group()
    only.add_argument("--tenant", help="only this tenant's")
    only.add_argument("--appliance", action="store_true", help="only the appliance's own")
    verify.add_argument("--file", type=Path, help="those of an exported file instead, without the appliance's data")
    add_json(verify)
    verify.set_defaults(run=run_verify)
    export = what.add_parser("export", help="print a trail as NDJSON, oldest entry first")
    owner = export.add_mutually_exclusive_group(required=True)
    owner.add_argument("--tenant", help="the trail of this tenant")
    owner.add_argument("--appliance", action="store_true", help="the trail of the appliance itself")
    export.add_argument("--since", help="only entries from this time on, such as 2026-01-31T00:00:00Z")
    export.add_argument("--until", help="only entries before this time")
    export.set_defaults(run=run_export)


def run_verify(args: argparse.Namespace) -> int:
    if args.file is not None:
        statuses = [(str(args.file), _verify_file(args.file))]
    else:
        with read_store(args.load()):
            if args.tenant:
                service.get_tenant(args.tenant)
            statuses = verify_trails(APPLIANCE if args.appliance else args.tenant)
    print_rows(args, [_row("file" if args.file else "tenant", *each) for each in statuses])
    return 0 if all(status.intact for _, status in statuses) else 1


def _verify_file(file: Path) -> ChainStatus:
    try:
        with file.open(encoding="utf-8") as lines:
            return audit.verify_exported(lines)
    except (OSError, UnicodeDecodeError) as error:
        raise NotFound(Sentence("cannot read %(file)s: %(reason)s", file=str(file), reason=str(error))) from error


def _row(kind: str, name: str, status: ChainStatus) -> dict[str, Any]:
    return {
        kind: name, "state": "intact" if status.intact else "broken", "entries": status.entries, "first": status.first_seq,
        "last": status.last_seq, "broken_at": status.broken_seq, "reason": status.reason,
    }  # fmt: skip


def run_export(args: argparse.Namespace) -> int:
    since, until = (clock.parse_rfc3339(text) if text else None for text in (args.since, args.until))
    with read_store(args.load()):
        scope = appliance_scope() if args.appliance else service.system_scope(service.get_tenant(args.tenant).id)
        sys.stdout.writelines(audit.iter_exported(scope, since, until))
    return 0
