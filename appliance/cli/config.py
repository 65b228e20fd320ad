"""`gos config check`, `gos config example` and `gos migrate`."""

import argparse
from typing import Any

from appliance.core import config as settings

from .output import opened_store


def add_commands(commands: Any) -> None:
    parser = commands.add_parser("config", help="check the configuration, or print every setting")
    parser.add_argument("what", choices=["check", "example"])
    parser.set_defaults(run=run_config)
    commands.add_parser("migrate", help="bring the database to this release's schema").set_defaults(run=run_migrate)


def run_config(args: argparse.Namespace) -> int:
    if args.what == "example":
        print(settings.example(), end="")
        return 0
    config = args.load()
    print(f"good: data in {config.data}, listening on {config.server.host}:{config.server.port}, base host {config.domains.base}")
    return 0


def run_migrate(args: argparse.Namespace) -> int:
    with opened_store(args.load()):
        print("the database has this release's schema")
    return 0
