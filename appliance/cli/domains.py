"""`gos domain`: list, approve or release the custom domains of WebApps."""

import argparse
from typing import Any

from appliance.core import clock
from appliance.tenants import service

from .output import add_json, opened_store, opened_tenant, print_result, print_rows, read_store


def add_commands(commands: Any) -> None:
    domain = commands.add_parser("domain", help="list, approve or release custom domains of WebApps")
    what = domain.add_subparsers(dest="what", required=True)
    listing = what.add_parser("list", help="list the domains with their states")
    listing.add_argument("--tenant", help="only the domains of this tenant")
    approve = what.add_parser("approve", help="accept a domain that a tenant has claimed, without proof")
    approve.add_argument("host")
    approve.add_argument("--tenant", required=True)
    release = what.add_parser("release", help="release a host name from the tenant that has it")
    release.add_argument("host")
    release.add_argument("--lift", action="store_true", help="let other tenants claim it at once, not only after 30 days")
    for parser, run in ((listing, run_list), (approve, run_approve), (release, run_release)):
        add_json(parser)
        parser.set_defaults(run=run)


def run_list(args: argparse.Namespace) -> int:
    from appliance.webapps.domains import list_every_domain

    with read_store(args.load()):
        if args.tenant:
            service.get_tenant(args.tenant)
        domains = list_every_domain(args.tenant)
    print_rows(args, [
        {
            "host": each.domain.host, "tenant": each.tenant, "webapp": each.domain.app, "state": each.domain.state,
            "method": each.domain.method, "failing_since": clock.optional_rfc3339(each.domain.failing_since),
            "next_check": clock.optional_rfc3339(each.domain.next_check_at), "error": each.domain.error,
        }
        for each in domains
    ])  # fmt: skip
    return 0


def run_approve(args: argparse.Namespace) -> int:
    from appliance.connectors.egress import Egress
    from appliance.webapps.domains import build_domains

    config = args.load()
    with opened_tenant(config, args.tenant):
        domain = build_domains(config, Egress()).approve_domain(service.system_scope(args.tenant), args.host)
    sentence = f"{domain.host} now belongs to {args.tenant} ({domain.state})"
    print_result(args, sentence, host=domain.host, tenant=args.tenant, state=domain.state)
    return 0


def run_release(args: argparse.Namespace) -> int:
    from appliance.webapps.domains import release_name

    with opened_store(args.load()):
        done = release_name(args.host, lift=args.lift)
    print_result(args, "\n".join(done), done=done)
    return 0
