"""`gos person`: what is stored about a person; its export, and its erasure."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from appliance.cli.output import add_json, confirm, opened_store, print_result, print_rows, read_store
from appliance.core.errors import AlreadyExists
from appliance.core.sentences import Sentence
from appliance.tenants import accounts, service

if TYPE_CHECKING:
    from appliance.core.config import Config
    from appliance.personal_data import Count, Subject

_WHO = "login, id or e-mail address"


def add_commands(commands: Any) -> None:
    person = commands.add_parser("person", help="show, export or erase what is stored about a person, in all tenants")
    what = person.add_subparsers(dest="what", required=True)
    show = what.add_parser("show", help="list the kinds of data about a person, and what an erasure would do to each")
    show.add_argument("login", help=_WHO)
    export = what.add_parser("export", help="write a ZIP with a copy of it")
    export.add_argument("login", help=_WHO)
    export.add_argument("file", type=Path)
    erase = what.add_parser("erase", help="delete the account and all that concerns only the person; replace the login elsewhere")
    erase.add_argument("login", help=_WHO)
    erase.add_argument("--yes", action="store_true", help="do not ask for confirmation")
    erase.add_argument(
        accounts.LEAVE_FLAG, dest="leave", action="store_true", help="even if they are the last owner of a tenant",
    )
    for one, run in ((show, run_show), (export, run_export), (erase, run_erase)):
        one.add_argument("--tenant", help="only what somebody left there as a visitor of WebApps and shares")
        add_json(one)
        one.set_defaults(run=run)


def run_show(args: argparse.Namespace) -> int:
    from appliance.personal_data import count_rows

    config = args.load()
    with read_store(config):
        rows = _to_rows(count_rows(_find(args), args.tenant), config)
    print_rows(args, rows if args.json else [{name: row[name] for name in row if name != "reason"} for row in rows])
    return 0


def run_export(args: argparse.Namespace) -> int:
    from appliance.personal_data import export_to

    config = args.load()
    with opened_store(config):
        subject = _find(args)
        try:
            file = args.file.open("xb")
        except FileExistsError as error:
            raise AlreadyExists(Sentence("%(file)s exists already; choose another name", file=str(args.file))) from error
        with file:
            args.file.chmod(0o600)
            export = export_to(file, subject, "system", config, tenant_id=args.tenant)
    print_result(args, f"{args.file} has {export.rows} rows about {subject.login}", file=str(args.file), rows=export.rows)
    return 0


def run_erase(args: argparse.Namespace) -> int:
    from appliance.personal_data import Erasure, count_rows, erase

    config = args.load()
    with opened_store(config):
        subject = _find(args)
        _print_plan(subject, count_rows(subject, args.tenant), config)
        if not args.yes and not confirm(f"Erase {subject.login} for good? Type it again: ", subject.login):
            print("gos: nothing was erased; type the login, or use --yes", file=sys.stderr)
            return 1
        erased = erase(subject, "system", tenant_id=args.tenant, may_leave_ownerless=args.leave)
    numbers = {each.value: erased.count(each) for each in Erasure}
    print_result(
        args, f"{subject.login} is erased, and is called {erased.pseudonym} from now on", pseudonym=erased.pseudonym, **numbers,
    )
    return 0


def _find(args: argparse.Namespace) -> "Subject":
    from appliance.personal_data import find_subject, find_visitor

    if args.tenant:
        service.get_tenant(args.tenant)
        return find_visitor(args.login)
    return find_subject(args.login)


def _to_rows(counts: "Sequence[Count]", config: "Config") -> list[dict[str, Any]]:
    from appliance.personal_data import OUTCOMES, describe_retention

    return [
        {
            "kind": each.kind.id, "rows": each.rows, "erasure": OUTCOMES[each.kind.erasure],
            "kept": describe_retention(each.kind, config), "reason": each.kind.reason,
        }
        for each in counts
    ]  # fmt: skip


def _print_plan(subject: "Subject", counts: "Sequence[Count]", config: "Config") -> None:
    """Say on standard error what the erasure does, so that standard output has its result only."""
    for row in _to_rows(counts, config):
        print(f"{row['erasure']}: {row['rows']} of {row['kind']}. {row['reason']}".rstrip(), file=sys.stderr)
    if not counts:
        print(f"nothing is stored about {subject.login}", file=sys.stderr)
