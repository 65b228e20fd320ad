"""`gos config check`, `gos config example` and `gos migrate`."""

import argparse
from typing import Any

from appliance.connectors.egress import Egress
from appliance.core.config.example import example
from appliance.core.config.sign_in import read_client_secret
from appliance.tenants.directories import DirectoryClient
from appliance.webapps.domains import build_domains

from .output import add_json, opened_store, print_result


def add_commands(commands: Any) -> None:
    parser = commands.add_parser("config", help="check the configuration, or print every setting")
    parser.add_argument("what", choices=["check", "example"])
    add_json(parser)
    parser.set_defaults(run=run_config)
    migrate = commands.add_parser("migrate", help="migrate the database to this release's schema")
    add_json(migrate)
    migrate.set_defaults(run=run_migrate)


def run_config(args: argparse.Namespace) -> int:
    if args.what == "example":
        print(example(), end="")
        return 0
    config = args.load()
    build_domains(config, Egress())  # validates addresses and name servers
    for provider in config.sign_in.providers:
        read_client_secret(provider)
    for directory in config.sign_in.directories:
        DirectoryClient(directory, Egress())  # reads its password and CA
    address = f"{config.server.host}:{config.server.port}"
    sentence = f"valid: data in {config.data}, listening on {address}, base host {config.domains.base}"
    print_result(args, sentence, good=True, data=str(config.data), address=address, base=config.domains.base)
    return 0


def run_migrate(args: argparse.Namespace) -> int:
    with opened_store(args.load(), create=True):
        print_result(args, "the database has this release's schema", migrated=True)
    return 0
