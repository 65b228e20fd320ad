"""`gos domain`."""

import argparse
from typing import Any

from appliance.core import clock
from appliance.tenants import service

from .output import add_json, opened_store, read_store, say, show


def add_commands(commands: Any) -> None:
    domain = commands.add_parser("domain", help="see, approve or release custom domains of WebApps")
    what = domain.add_subparsers(dest="what", required=True)
    listing = what.add_parser("list", help="every domain with its state")
    listing.add_argument("--tenant", help="of this tenant only")
    approve = what.add_parser("approve", help="take a tenant's word for a domain it has claimed")
    approve.add_argument("host")
    approve.add_argument("--tenant", required=True)
    release = what.add_parser("release", help="take a host name from the tenant that holds it")
    release.add_argument("host")
    release.add_argument("--lift", action="store_true", help="let others claim it at once, not only after 30 days")
    for parser, run in ((listing, run_list), (approve, run_approve), (release, run_release)):
        add_json(parser)
        parser.set_defaults(run=run)


def run_list(args: argparse.Namespace) -> int:
    from appliance.webapps.domains import list_every_domain

    with read_store(args.load()):
        if args.tenant:
            service.get_tenant(args.tenant)
        found = list_every_domain(args.tenant)
    show(args, [
        {
            "host": each.domain.host, "tenant": each.tenant, "webapp": each.domain.app, "state": each.domain.state,
            "method": each.domain.method, "failing_since": clock.optional_rfc3339(each.domain.failing_since),
            "next_check": clock.optional_rfc3339(each.domain.next_check_at), "error": each.domain.error,
        }
        for each in found
    ])  # fmt: skip
    return 0


def run_approve(args: argparse.Namespace) -> int:
    from appliance.connectors.egress import Egress
    from appliance.webapps.domains import of_config

    config = args.load()
    with opened_store(config):
        service.get_tenant(args.tenant)
        domain = of_config(config, Egress()).approve_domain(service.system_scope(args.tenant), args.host)
    say(args, f"{domain.host} is {args.tenant}'s now ({domain.state})", host=domain.host, tenant=args.tenant, state=domain.state)
    return 0


def run_release(args: argparse.Namespace) -> int:
    from appliance.webapps.domains import release_name

    with opened_store(args.load()):
        done = release_name(args.host, lift=args.lift)
    say(args, "\n".join(done), done=done)
    return 0
