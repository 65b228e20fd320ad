"""`gos upgrade`: bring the data of another release to this one, or back."""

import argparse
import sys
from dataclasses import asdict
from typing import Any

from appliance.cli.output import add_json, print_result
from appliance.core.config import Config


def add_commands(commands: Any) -> None:
    parser = commands.add_parser("upgrade", help="bring the data of an earlier release to this one, once it works on a copy")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--rehearse", action="store_true", help="only try it on a copy, also while the appliance runs")
    what.add_argument("--roll-back", action="store_true", help="put the database of before the upgrade back")
    what.add_argument("--finish", action="store_true", help="delete the database of before the upgrade")
    parser.add_argument("--lose-changes", action="store_true", help="with --roll-back: lose what was written since the upgrade")
    parser.add_argument(
        "--despite-problems", action="store_true",
        help="go on although connectors cannot be used, or contents or audit trails are damaged",
    )  # fmt: skip
    parser.add_argument(
        "--rehearse-in-file", action="store_true",
        help="with PostgreSQL: try it on an SQLite copy only, without a schema for a copy on the server",
    )  # fmt: skip
    add_json(parser)
    parser.set_defaults(run=run_upgrade)


def run_upgrade(args: argparse.Namespace) -> int:
    from appliance.app.parts import make_places
    from appliance.upgrade import UpgradeOptions, rehearse, upgrade

    config: Config = args.load()
    if args.finish:
        return _finish(args, config)
    if args.roll_back:
        return _roll_back(args, config)
    options = UpgradeOptions(make_places, _report, despite_problems=args.despite_problems, in_file=args.rehearse_in_file)
    result = (rehearse if args.rehearse else upgrade)(config, options)
    if args.json:
        print_result(args, "", **asdict(result))
    return 0


def _report(step: str, text: str) -> None:
    """Print a step to standard error, so that --json can be read by a program."""
    print(f"{step:12}{text}", file=sys.stderr, flush=True)


def _roll_back(args: argparse.Namespace, config: Config) -> int:
    from appliance.upgrade import roll_back

    journal = roll_back(config, _report, lose_changes=args.lose_changes)
    if args.json:
        print_result(args, "", state=journal.state, migration=journal.from_number)
    return 0


def _finish(args: argparse.Namespace, config: Config) -> int:
    from appliance.upgrade import finish

    is_deleted = finish(config, _report)
    sentence = "the database of before the upgrade was deleted" if is_deleted else "there is no database of before an upgrade"
    print_result(args, sentence, deleted=is_deleted)
    return 0
