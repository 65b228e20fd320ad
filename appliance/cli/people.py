"""`gos user`: add users and set passwords."""

import argparse
import secrets
import sys
from typing import Any

from appliance.tenants import ROLES, people, service

from .output import add_json, opened_store, print_result


def add_commands(commands: Any) -> None:
    user = commands.add_parser("user", help="add a user, or set a password")
    what = user.add_subparsers(dest="what", required=True)
    add = what.add_parser("add", help="add a user; the password is generated and printed, or read with --password-stdin")
    add.add_argument("login")
    add.add_argument("--tenant")
    add.add_argument("--role", choices=ROLES, default="viewer")
    add.add_argument("--password-stdin", action="store_true")
    add_json(add)
    add.set_defaults(run=run_add)
    password = what.add_parser("password", help="set a password from standard input; the user's sessions end")
    password.add_argument("login")
    add_json(password)
    password.set_defaults(run=run_password)


def run_add(args: argparse.Namespace) -> int:
    generated = None if args.password_stdin else secrets.token_urlsafe(15)
    with opened_store(args.load()):
        if args.tenant:
            service.get_tenant(args.tenant)
        people.create_user(args.login, generated or sys.stdin.read().strip())
        if args.tenant:
            people.add_member(service.system_scope(args.tenant), args.login, args.role)
    members = {"login": args.login} | ({"password": generated} if generated else {})
    print_result(args, f"user {args.login} added" + (f"; password: {generated}" if generated else ""), **members)
    return 0


def run_password(args: argparse.Namespace) -> int:
    with opened_store(args.load()):
        people.set_password(args.login, sys.stdin.read().strip())
    print_result(args, f"password of {args.login} set", login=args.login)
    return 0
