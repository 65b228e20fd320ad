"""`gos service-account`: add, list, change, disable, enable or delete service accounts; `gos key add` issues their keys."""

import argparse
import sys
from typing import Any

from appliance.cli.output import add_json, confirm, opened_store, opened_tenant, print_result, print_rows, read_store
from appliance.core.pages import MAX_LIMIT, PageRequest
from appliance.core.scope import TenantScope
from appliance.tenants import SCOPES, AccountChanges, AccountSpec, service, service_accounts


def add_commands(commands: Any) -> None:
    account = commands.add_parser("service-account", help="add, list, change, disable, enable or delete service accounts")
    what = account.add_subparsers(dest="what", required=True)
    add = what.add_parser("add", help="add a service account; `gos key add --service-account NAME` issues its keys")
    change = what.add_parser("change", help="change what a service account may do, its texts, or who is responsible for it")
    for parser in (add, change):
        is_new = parser is add
        parser.add_argument("name", help="its slug, which the audit trail shows as service:NAME")
        parser.add_argument("--title", required=is_new)
        parser.add_argument("--description", default="" if is_new else None)
        parser.add_argument("--responsible", required=is_new, metavar="LOGIN", help="the member who is responsible for it")
        parser.add_argument(
            "--scope", action="append", required=is_new, choices=sorted(SCOPES), metavar="SCOPE", help="may be repeated"
        )
    add.set_defaults(run=run_add)
    change.set_defaults(run=run_change)
    listing = what.add_parser("list", help="list the service accounts")
    listing.set_defaults(run=run_list)
    parsers = [add, change, listing]
    for name, help_text, run in (
        ("disable", "refuse all keys of a service account until it is enabled", run_disable),
        ("enable", "let the keys of a service account work again", run_enable),
        ("delete", "delete a service account; its keys end, and its name stays taken", run_delete),
    ):
        one = what.add_parser(name, help=help_text)
        one.add_argument("name")
        if run is run_delete:
            one.add_argument("--yes", action="store_true", help="do not ask for confirmation")
        one.set_defaults(run=run)
        parsers.append(one)
    for parser in parsers:
        parser.add_argument("--tenant", required=True, help="the tenant that the service account belongs to")
        add_json(parser)


def _scope_of(args: argparse.Namespace) -> TenantScope:
    return service.system_scope(service.get_tenant(args.tenant).id)


def run_add(args: argparse.Namespace) -> int:
    spec = AccountSpec(args.name, args.title, args.scope, description=args.description, responsible=args.responsible)
    with opened_tenant(args.load(), args.tenant):
        account = service_accounts.create_account(_scope_of(args), spec)
    print_result(args, f"service account {account.id} added", id=account.id, scopes=list(account.scopes))
    return 0


def run_list(args: argparse.Namespace) -> int:
    with read_store(args.load()):
        rows = service_accounts.list_accounts(_scope_of(args), PageRequest(limit=MAX_LIMIT)).items
    print_rows(args, [
        {
            "id": each.id, "title": each.title, "state": each.state, "responsible": each.responsible or None,
            "scopes": len(each.scopes),
        }
        for each in rows
    ])  # fmt: skip
    return 0


def run_change(args: argparse.Namespace) -> int:
    changes = AccountChanges(args.title, args.description, args.scope, responsible=args.responsible)
    with opened_tenant(args.load(), args.tenant):
        account = service_accounts.change_account(_scope_of(args), args.name, changes)
    print_result(args, f"service account {account.id} changed", id=account.id, scopes=list(account.scopes))
    return 0


def run_disable(args: argparse.Namespace) -> int:
    return _set_disabled(args, is_disabled=True)


def run_enable(args: argparse.Namespace) -> int:
    return _set_disabled(args, is_disabled=False)


def _set_disabled(args: argparse.Namespace, *, is_disabled: bool) -> int:
    with opened_store(args.load()) if is_disabled else opened_tenant(args.load(), args.tenant):
        account = service_accounts.change_account(_scope_of(args), args.name, AccountChanges(is_disabled=is_disabled))
    print_result(args, f"service account {account.id} is {account.state}", id=account.id, state=account.state)
    return 0


def run_delete(args: argparse.Namespace) -> int:
    if not args.yes and not confirm(f"Delete the service account {args.name} for good? Type its name: ", args.name):
        print("gos: nothing was deleted; type the name, or use --yes", file=sys.stderr)
        return 1
    with opened_store(args.load()):
        service_accounts.delete_account(_scope_of(args), args.name)
    print_result(args, f"service account {args.name} deleted", id=args.name)
    return 0
