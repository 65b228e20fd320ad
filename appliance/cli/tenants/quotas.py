"""`gos tenant quota` and `gos tenant sandbox`."""

import argparse
from collections.abc import Iterable
from typing import Any

from appliance.cli.output import add_json, opened_store, print_result, print_rows, read_store
from appliance.core import clock
from appliance.core.errors import ValidationFailed
from appliance.quotas import QuotaState, format_amount, limits
from appliance.tenants import quota_settings, service


def add_quota_commands(what: Any) -> None:
    """Register the commands below `gos tenant`."""
    quota = what.add_parser("quota", help="show the quotas of a tenant, or set them")
    quota.add_argument("id")
    quota.add_argument(
        "amounts", nargs="*", metavar="NAME=AMOUNT",
        help="such as storage=10GB or executions_per_day=5000; none: no limit, default: that of the configuration",
    )  # fmt: skip
    quota.set_defaults(run=run_quota)
    sandbox = what.add_parser("sandbox", help="extend a sandbox tenant that expires, or keep it for good")
    sandbox.add_argument("id")
    choice = sandbox.add_mutually_exclusive_group(required=True)
    choice.add_argument("--days", type=int, metavar="N", help="let it expire in N days from now")
    choice.add_argument("--keep", action="store_true", help="make it a standard tenant, which does not expire")
    sandbox.set_defaults(run=run_sandbox)
    for parser in (quota, sandbox):
        add_json(parser)


def run_quota(args: argparse.Namespace) -> int:
    from appliance.app.quotas import make_usage
    from appliance.datapool import measure_tenant

    config, scope = args.load(), service.system_scope(args.id)
    amounts = parse_pairs(args.amounts)
    limits.configure(config)
    if amounts:
        with opened_store(config):
            quota_settings.change_quotas(scope, amounts)
    with read_store(config):
        service.get_tenant(args.id)
        measure_tenant(scope)
        states = make_usage().list_states(scope)
    print_rows(args, [_to_row(state) for state in states])
    return 0


def parse_pairs(texts: Iterable[str]) -> dict[str, str]:
    """The amount by quota, from `NAME=AMOUNT`.  ValidationFailed."""
    amounts = {}
    for text in texts:
        name, separator, amount = text.partition("=")
        if not separator or not amount:
            raise ValidationFailed("write each quota as NAME=AMOUNT, such as storage=10GB", pointer="/amounts")
        amounts[name] = amount
    return amounts


def _to_row(state: QuotaState) -> dict[str, Any]:
    percent = state.percent
    return {
        "quota": state.kind.name, "used": format_amount(state.kind, state.used), "limit": format_amount(state.kind, state.limit),
        "percent": None if percent is None else round(percent, 1), "set": "for this tenant" if state.is_own else "default",
        "resets_at": clock.optional_rfc3339(state.resets_at),
    }  # fmt: skip


def run_sandbox(args: argparse.Namespace) -> int:
    scope = service.system_scope(args.id)
    with opened_store(args.load()):
        if args.keep:
            quota_settings.keep_sandbox(scope)
        else:
            expires_at = quota_settings.extend_sandbox(scope, args.days)
    if args.keep:
        print_result(args, f"tenant {args.id} is kept and does not expire", id=args.id, expires_at=None)
    else:
        text = clock.rfc3339(expires_at)
        print_result(args, f"tenant {args.id} expires at {text}", id=args.id, expires_at=text)
    return 0
