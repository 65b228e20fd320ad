"""`gos key`: issue, list, rename, rotate or revoke API keys, of a tenant or of the appliance itself."""

import argparse
from contextlib import AbstractContextManager
from typing import Any

from appliance.core import clock
from appliance.core.config import Config
from appliance.core.crypto import Sealer
from appliance.core.pages import MAX_LIMIT, PageRequest
from appliance.core.scope import TenantScope
from appliance.tenants import APPLIANCE_SCOPES, SCOPES, appliance_scope, service, service_accounts
from appliance.tenants.keys import KeyChanges, changes, continuing_keys, keys, resource_limits

from .output import add_json, opened_store, opened_tenant, print_result, print_rows, read_store


def add_commands(commands: Any) -> None:
    key = commands.add_parser("key", help="issue, list, rename, rotate or revoke API keys")
    what = key.add_subparsers(dest="what", required=True)
    add = what.add_parser("add", help="issue a key; its text is printed once")
    add.add_argument("--name", required=True)
    add.add_argument(
        "--scope", action="append", choices=sorted({**SCOPES, **APPLIANCE_SCOPES}), metavar="SCOPE",
        help="may be repeated; default: every scope of a tenant's keys, of the appliance's, or of the service account",
    )  # fmt: skip
    add.add_argument("--environment", default="live")
    add.add_argument(
        "--kind", choices=keys.KINDS, default="service", help="agent: for an agent or assistant, whose writes need an approval"
    )
    add.add_argument("--days", type=int, default=365)
    add.add_argument("--allow", action="append", default=[], help="an address or network that may use the key; may be repeated")
    add.add_argument("--daily", type=int, metavar="REQUESTS", help="how many requests the key may make on a day in UTC")
    for plural, kind in resource_limits.KINDS.items():
        add.add_argument(
            f"--{kind}", action="append", default=[], metavar="NAME", dest=plural,
            help=f"limit the key to this {kind}, and to others named so; it reaches no process, collection or integration else",
        )
    add.add_argument("--service-account", metavar="NAME", help="the service account of the tenant that the key belongs to")
    add.add_argument("--quiet", action="store_true", help="print only the key")
    listing = what.add_parser("list", help="list the keys, without their texts")
    rotate = what.add_parser("rotate", help="issue a new key with the same grants")
    rotate.add_argument("id")
    rotate.add_argument("--overlap", type=int, default=0, help="seconds that the old key stays valid")
    rotate.add_argument("--quiet", action="store_true", help="print only the key")
    revoke = what.add_parser("revoke", help="end a key at once")
    revoke.add_argument("id")
    agent = what.add_parser("make-agent", help="turn a key into an agent key; this cannot be undone")
    agent.add_argument("id")
    rename = what.add_parser("rename", help="give a key another name")
    rename.add_argument("id")
    rename.add_argument("name")
    runs = (
        (agent, run_make_agent), (add, run_add), (listing, run_list), (rename, run_rename), (rotate, run_rotate),
        (revoke, run_revoke),
    )  # fmt: skip
    for parser, run in runs:
        owner = parser.add_mutually_exclusive_group(required=True)
        owner.add_argument("--tenant", help="the tenant that the key belongs to")
        if parser is not agent:
            owner.add_argument("--appliance", action="store_true", help="a key of the appliance itself, for /api/v1/appliance/")
        add_json(parser)
        parser.set_defaults(run=run)


def _scope_of(args: argparse.Namespace) -> TenantScope:
    """The scope of whoever the key belongs to.  NotFound for an unknown tenant."""
    return appliance_scope() if getattr(args, "appliance", False) else service.system_scope(service.get_tenant(args.tenant).id)


def _opened_owner(args: argparse.Namespace, config: Config) -> AbstractContextManager[Sealer]:
    """The database, for a command that writes a key of a tenant or of the appliance."""
    return opened_store(config) if getattr(args, "appliance", False) else opened_tenant(config, args.tenant)


def _print_key(args: argparse.Namespace, row: Any, text: str) -> None:
    if args.quiet:
        print(text)
        return
    print_rows(args, [{"id": row.id, "key": text, "expires_at": clock.rfc3339(row.expires_at)}])


def run_add(args: argparse.Namespace) -> int:
    config = args.load()
    with _opened_owner(args, config) as sealer:
        scope = _scope_of(args)
        spec = keys.KeySpec(
            name=args.name, scopes=args.scope or _default_scopes(scope, args.service_account), environment=args.environment,
            expires_in_days=args.days,
            rate_requests=config.limits.rate_requests, rate_window_s=config.limits.rate_window_s, allowed_ips=args.allow,
            kind=args.kind, limits=_limits(args), daily_requests=args.daily,
        )  # fmt: skip
        if args.service_account:
            row, text = service_accounts.issue_key(scope, sealer, args.service_account, spec)
        else:
            row, text = keys.issue_key(scope, sealer, spec)
    _print_key(args, row, text)
    return 0


def _default_scopes(scope: TenantScope, account_id: str | None) -> list[str]:
    return sorted(service_accounts.get_account(scope, account_id).scopes if account_id else scope.scopes)


def _limits(args: argparse.Namespace) -> dict[str, list[str]] | None:
    limits = {plural: getattr(args, plural) for plural in resource_limits.KINDS}
    return limits if any(limits.values()) else None


def run_list(args: argparse.Namespace) -> int:
    with read_store(args.load()):
        rows = keys.list_keys(_scope_of(args), PageRequest(limit=MAX_LIMIT)).items
    print_rows(args, [
        {
            "id": r.id, "name": r.name, "kind": r.kind, "ends": f"{r.prefix}…{r.last4}", "scopes": len(r.scopes),
            "expires_at": clock.rfc3339(r.expires_at),
            "last_used_at": clock.optional_rfc3339(r.last_used_at), "revoked_at": clock.optional_rfc3339(r.revoked_at),
        }
        for r in rows
    ])  # fmt: skip
    return 0


def run_rotate(args: argparse.Namespace) -> int:
    with _opened_owner(args, args.load()) as sealer:
        row, text = keys.rotate_key(_scope_of(args), sealer, args.id, args.overlap)
    _print_key(args, row, text)
    return 0


def run_revoke(args: argparse.Namespace) -> int:
    with opened_store(args.load()):
        scope = _scope_of(args)
        row = keys.revoke_key(scope, args.id)
        continuing = [each.id for each in continuing_keys.list_continuing(scope, [row]).get(row.id, [])]
    result = f"key {row.id} revoked"
    if continuing:
        result += f"; keys that it issued, or that keys below it issued, go on working: {', '.join(continuing)}"
    print_result(args, result, id=row.id, revoked_at=clock.optional_rfc3339(row.revoked_at), continuing=continuing)
    return 0


def run_rename(args: argparse.Namespace) -> int:
    with _opened_owner(args, args.load()):
        row = changes.change_key(_scope_of(args), args.id, KeyChanges(name=args.name))
    print_result(args, f"key {row.id} is named {row.name}", id=row.id, name=row.name)
    return 0


def run_make_agent(args: argparse.Namespace) -> int:
    with _opened_owner(args, args.load()):
        row = keys.convert_to_agent_key(_scope_of(args), args.id)
    print_result(args, f"key {row.id} is an agent key", id=row.id, kind=row.kind)
    return 0
