"""Prints results, as tables for people or as JSON with --json, and opens the store for commands."""

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from appliance import migrations
from appliance.app.inspection import inspected_store, refuse_empty
from appliance.core.config import Config
from appliance.core.crypto import Sealer
from appliance.core.database import db
from appliance.core.errors import ApplianceError


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add the flag --json."""
    parser.add_argument("--json", action="store_true", help="print JSON")


def print_result(args: argparse.Namespace, sentence: str, **members: Any) -> None:
    """Print what was done: a sentence, or with --json an object of `members`."""
    print(json.dumps(members, ensure_ascii=False, indent=2) if args.json else sentence)


def confirm(question: str, expected: str) -> bool:
    """Whether the person at the terminal answers the question with what is expected."""
    print(question, end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip() == expected


def print_error(error: ApplianceError) -> None:
    """Print a coded error to standard error, with a line for each detail that its message does not contain."""
    print(f"gos: {error.message}", file=sys.stderr)
    for detail in error.details:
        if detail.message not in error.message:
            place = detail.pointer or "/"
            names_place = detail.message.startswith(place.lstrip("/")) and place != "/"
            print(f"  {detail.message}" if names_place else f"  {place}: {detail.message}", file=sys.stderr, flush=True)


def print_rows(args: argparse.Namespace, rows: Sequence[Mapping[str, Any]]) -> None:
    """Print rows: aligned columns, or a JSON array."""
    if getattr(args, "json", False):
        print(json.dumps(list(rows), ensure_ascii=False, indent=2))
        return
    if not rows:
        print("none")
        return
    names = list(rows[0])
    table = [names, *[["" if row[name] is None else str(row[name]) for name in names] for row in rows]]
    widths = [max(len(line[i]) for line in table) for i in range(len(names))]
    for line in table:
        print("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip())


@contextmanager
def opened_store(config: Config, *, create: bool = False) -> Iterator[Sealer]:
    """Open the data folder's database for a command, migrated to this release's schema; also while the appliance runs.

    ConfigInvalid when the folder has no data yet, unless the command may create it (`create`).
    """
    from appliance.app.store import open_store

    if not create:
        refuse_empty(config)
    sealer = open_store(config)
    try:
        yield sealer
    finally:
        db.close_database()


@contextmanager
def opened_tenant(config: Config, tenant_id: str) -> Iterator[Sealer]:
    """Open the database for a command that writes into a tenant.  Beside a reset or deletion of it nothing is written: Conflict,
    NotFound.

    Commands that only end access, and those on what a reset keeps for whoever runs the appliance, such as quotas, use
    `opened_store`: an operator needs them during a reset, too.
    """
    from appliance.tenants import service

    with opened_store(config) as sealer, service.writing_into(tenant_id):
        yield sealer


@contextmanager
def read_store(config: Config) -> Iterator[Sealer]:
    """Open the database for a command that only reads, because an older release may still use it.  ConfigInvalid for another
    schema."""
    with inspected_store(config):
        migrations.refuse_other()
        from appliance.master_key import read_sealer

        yield read_sealer(config)
