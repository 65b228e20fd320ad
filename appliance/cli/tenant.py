"""`gos tenant` and `gos secret`."""

import argparse
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from appliance.core import clock
from appliance.core.crypto import Sealer
from appliance.core.errors import ValidationFailed
from appliance.core.scope import TenantScope
from appliance.quotas import expiry
from appliance.tenants import quota_settings, service
from appliance.tenants.grants import SecretDestination, place_of_hosts, secret_bindings

from .backup import add_passphrase
from .output import add_json, confirm, opened_store, opened_tenant, print_result, print_rows, read_store
from .tenants.quotas import add_quota_commands


def add_commands(commands: Any) -> None:
    tenant = commands.add_parser("tenant", help="add, list, delete, export, import or reset tenants, and set their quotas")
    what = tenant.add_subparsers(dest="what", required=True)
    add = what.add_parser("add", aliases=["create"], help="add a tenant")
    add.add_argument("id")
    add.add_argument("--name")
    add.add_argument("--sandbox", action="store_true", help="with small quotas; it expires, and is deleted some time later")
    add.add_argument("--days", type=int, metavar="N", help="days until a sandbox expires (default: sandbox_tenants.days)")
    add_json(add)
    add.set_defaults(run=run_add)
    listing = what.add_parser("list", help="list the tenants")
    add_json(listing)
    listing.set_defaults(run=run_list)
    delete = what.add_parser("delete", help="delete a tenant with all its data")
    delete.add_argument("id")
    delete.add_argument("--yes", action="store_true", help="do not ask for confirmation")
    delete.add_argument("--force", action="store_true", help="even if documents are retained or under a legal hold")
    add_json(delete)
    delete.set_defaults(run=run_delete)
    add_quota_commands(what)
    _add_transfer(what)
    secret = commands.add_parser("secret", help="set, list or delete a tenant's secrets")
    parts = secret.add_subparsers(dest="what", required=True)
    for name, help_text, run in (
        ("set", "set a secret; its value is read from standard input", run_set), ("delete", "delete a secret", run_unset),
    ):  # fmt: skip
        one = parts.add_parser(name, help=help_text)
        one.add_argument("name")
        one.add_argument("--tenant", required=True)
        add_json(one)
        one.set_defaults(run=run)
        if run is run_set:
            _add_destinations(one)
    names = parts.add_parser("list", help="list the names of secrets, without values")
    names.add_argument("--tenant", required=True)
    add_json(names)
    names.set_defaults(run=run_secrets)


def _add_destinations(one: Any) -> None:
    one.add_argument(
        "--for-integration", action="append", default=[], metavar="SLUG[@HOSTS]",
        help="bind the secret to this integration, with its current hosts or exactly these; may be repeated",
    )  # fmt: skip
    one.add_argument(
        "--for-process", action="append", default=[], metavar="ID",
        help="let this process's code read the secret (an integration is safer, as no code sees the value); may be repeated",
    )  # fmt: skip


def _add_transfer(tenant: Any) -> None:
    export = tenant.add_parser("export", help="export a tenant to one file, without its secrets")
    export.add_argument("id")
    export.add_argument("file", type=Path)
    export.set_defaults(run=_transfer("run_export"))
    arrive = tenant.add_parser("import", help="create a tenant from an export")
    arrive.add_argument("file", type=Path)
    arrive.add_argument("--as", dest="name", metavar="NAME", help="the id of the new tenant (default: the exported one)")
    arrive.add_argument("--active", action="store_true", help="let triggers fire at once; otherwise processes are paused")
    arrive.add_argument(
        "--quota", action="append", default=[], metavar="NAME=AMOUNT",
        help="a quota of the tenant's own, such as storage=20GB, if the export has more than the default allows; may be repeated",
    )  # fmt: skip
    arrive.set_defaults(run=_transfer("run_import"))
    for parser in (export, arrive):
        add_passphrase(parser)
        add_json(parser)
    reset = tenant.add_parser("reset", help="delete a tenant's data, except people, keys and secrets, and apply a solution")
    reset.add_argument("id")
    reset.add_argument("--to", type=Path, required=True, metavar="DIR", help="the solution folder")
    reset.add_argument("--yes", action="store_true", help="do not ask for confirmation")
    reset.add_argument("--force", action="store_true", help="even if documents are retained or under a legal hold")
    add_json(reset)
    reset.set_defaults(run=_transfer("run_reset"))


def _transfer(name: str) -> Callable[[argparse.Namespace], int]:
    """A function of the `transfer` module, which imports half the appliance and is therefore loaded only when it runs."""
    return lambda args: int(getattr(import_module(".transfer", __package__), name)(args))


def run_add(args: argparse.Namespace) -> int:
    config = args.load()
    if args.days is not None and not args.sandbox:
        raise ValidationFailed("--days is for tenants that expire; add --sandbox", pointer="/days")
    days = config.sandbox_tenants.days if args.days is None else args.days
    expires_at = quota_settings.expiry_in(days) if args.sandbox else None
    with opened_store(config, create=True):
        row = service.create_tenant(
            args.id, args.name or args.id, kind="standard" if expires_at is None else "sandbox", expires_at=expires_at
        )
    expiry_text = "" if expires_at is None else f" as a sandbox that expires at {clock.rfc3339(expires_at)}"
    print_result(
        args, f"tenant {row.id} added{expiry_text}; next: gos key add --tenant {row.id} --name first",
        id=row.id, name=row.name, kind=row.kind, expires_at=clock.optional_rfc3339(expires_at),
    )  # fmt: skip
    return 0


def run_list(args: argparse.Namespace) -> int:
    with read_store(args.load()):
        rows = [(row, expiry.find_expiry(row.id)) for row in service.list_tenants()]
    print_rows(args, [
        {
            "id": row.id, "name": row.name, "kind": row.kind, "created_at": clock.rfc3339(row.created_at),
            "expires_at": clock.optional_rfc3339(expires_at),
        }
        for row, expires_at in rows
    ])  # fmt: skip
    return 0


def run_delete(args: argparse.Namespace) -> int:
    if not args.yes and not confirm(f"Delete tenant {args.id} with all its data? Type its id: ", args.id):
        print("gos: nothing was deleted; type the tenant's id, or use --yes", file=sys.stderr)
        return 1
    with opened_store(args.load()):
        service.delete_tenant(args.id, force=args.force)
    print_result(args, f"tenant {args.id} deleted", deleted=args.id)
    return 0


def run_set(args: argparse.Namespace) -> int:
    value = sys.stdin.read().removesuffix("\n")
    with opened_tenant(args.load(), args.tenant) as sealer:
        scope = service.system_scope(args.tenant)
        places = _places(args, scope, sealer)
        service.set_secret(scope, sealer, args.name, value)
        for place in places:
            secret_bindings.bind(scope, args.name, place)
        destinations = [str(each.destination) for each in secret_bindings.list_bindings(scope, args.name)]
    sentence = f"secret {args.name} set; bound to {', '.join(destinations) or 'no destination yet'}"
    print_result(args, sentence, name=args.name, destinations=destinations)
    return 0


def _places(args: argparse.Namespace, scope: TenantScope, sealer: Sealer) -> list[SecretDestination]:
    """The destinations to bind the secret to; NotFound for an integration that neither exists nor has its hosts given."""
    places = [SecretDestination("process", each) for each in args.for_process]
    for target in args.for_integration:
        slug, _, hosts = target.partition("@")
        if hosts:
            places.append(place_of_hosts("integration", slug, hosts))
        else:
            make_integrations = import_module("appliance.app.parts").make_integrations
            places.append(make_integrations(args.load(), sealer).destination(scope, slug))
    return places


def run_unset(args: argparse.Namespace) -> int:
    with opened_tenant(args.load(), args.tenant):
        service.delete_secret(service.system_scope(args.tenant), args.name)
    print_result(args, f"secret {args.name} deleted", deleted=args.name)
    return 0


def run_secrets(args: argparse.Namespace) -> int:
    with read_store(args.load()):
        service.get_tenant(args.tenant)
        names = service.list_secrets(service.system_scope(args.tenant))
    print_rows(args, [{"name": s.name, "updated_at": clock.rfc3339(s.updated_at)} for s in names])
    return 0
