"""`gos doctor`: check an installation and report problems with the next step."""

import argparse
from typing import Any

from appliance.app.findings.checks import checks
from appliance.core.config import Config

from .output import add_json, print_rows


def add_commands(commands: Any) -> None:
    parser = commands.add_parser("doctor", help="check this installation")
    add_json(parser)
    parser.set_defaults(run=run_doctor)


def run_doctor(args: argparse.Namespace) -> int:
    config: Config = args.load()
    findings = []
    for level, text in checks(config):
        findings.append({"level": level, "text": text})
        if not args.json:
            print(f"{level:5} {text}", flush=True)
    if args.json:
        print_rows(args, findings)
    return int(any(finding["level"] == "FAIL" for finding in findings))
