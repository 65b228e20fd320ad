"""`gos user`: accounts of people; `gos scim`: tokens of identity providers that add and remove them."""

import argparse
import sys
from dataclasses import dataclass
from functools import partial
from typing import Any

from appliance.core import clock
from appliance.core.config import Config
from appliance.core.config.sign_in import IdentityProvider
from appliance.core.database import db
from appliance.core.errors import NotFound, ValidationFailed
from appliance.core.sentences import Sentence
from appliance.tenants import ROLES, Person, accounts, people, service
from appliance.tenants.provisioning import ProviderToken
from appliance.tenants.second_factors import factors
from appliance.tenants.sign_in import temporary_passwords

from .output import add_json, confirm, opened_store, opened_tenant, print_result, print_rows, read_store

LASTING = "the next sign-in does not ask for an own password: for your own account, and for those that programs sign in with"


def add_commands(commands: Any) -> None:
    user = commands.add_parser("user", help="add, list, disable, enable or delete users, set a password, or reset second factors")
    what = user.add_subparsers(dest="what", required=True)
    add = what.add_parser("add", help="add a user; a temporary password is printed, or read with --password-stdin")
    add.add_argument("login")
    add.add_argument("--tenant")
    add.add_argument("--role", choices=ROLES, default="viewer")
    add.add_argument("--password-stdin", action="store_true", help="read a temporary password from standard input")
    add.add_argument("--lasting", action="store_true", help=f"{LASTING}; with --password-stdin")
    add_json(add)
    add.set_defaults(run=run_add)
    listing = what.add_parser("list", help="list the users with their state and tenants")
    add_json(listing)
    listing.set_defaults(run=run_list)
    for name, help_text, run in (
        ("password", "set a temporary password from standard input, or print one; the user's sessions end", run_password),
        ("disable", "end a user's sessions; nothing of the account works, API keys included, until it is enabled", run_disable),
        ("enable", "let a disabled user sign in again; their API keys work again", run_enable),
        ("reset-factors", "remove a user's passkeys, apps and recovery codes, and end their sessions", run_reset_factors),
        ("delete", "delete a user; their API keys end, and what they did keeps their name", run_delete),
    ):
        one = what.add_parser(name, help=help_text)
        one.add_argument("login")
        if run is run_password:
            how = one.add_mutually_exclusive_group()
            how.add_argument("--generate", action="store_true", help="print a password, instead of reading one")
            how.add_argument("--lasting", action="store_true", help=LASTING)
        if run in (run_disable, run_delete):
            last = "even if they are the last owner of a tenant"
            one.add_argument(accounts.LEAVE_FLAG, dest="leave", action="store_true", help=last)
        if run is run_delete:
            one.add_argument("--yes", action="store_true", help="do not ask for confirmation")
        add_json(one)
        one.set_defaults(run=run)
    _add_scim(commands)


def run_add(args: argparse.Namespace) -> int:
    if args.lasting and not args.password_stdin:
        raise ValidationFailed("--lasting is for a password that you choose: add --password-stdin; a printed one is temporary")
    config = args.load()
    password = _choose_password(args, config, is_printed=not args.password_stdin)
    with opened_tenant(config, args.tenant) if args.tenant else opened_store(config):
        person = people.prepare_user(args.login, password.text, expires_at=password.expires_at)
        db.write(partial(_insert_user, args, person))
    _print_password(args, f"user {args.login} added", password)
    return 0


def _insert_user(args: argparse.Namespace, person: Person) -> None:
    people.insert_user(person)
    if args.tenant:
        people.add_member(service.system_scope(args.tenant), person.login, args.role)


@dataclass(frozen=True)
class _Password:
    """The password to set, and until when it can be replaced if it is temporary; the text is printed if the operator lacks it."""

    text: str
    expires_at: int | None
    is_printed: bool


def _choose_password(args: argparse.Namespace, config: Config, *, is_printed: bool) -> _Password:
    """A new password to print, or that from standard input, which is temporary as well unless the operator wants it to last."""
    if is_printed:
        temporary = temporary_passwords.make_temporary_password(config)
        return _Password(temporary.text, temporary.expires_at, is_printed=True)
    until = None if args.lasting else temporary_passwords.temporary_until(config)
    return _Password(sys.stdin.read().strip(), until, is_printed=False)


def _print_password(args: argparse.Namespace, result: str, password: _Password) -> None:
    """Print the result, until when a temporary password can be replaced, and the password if the appliance has made it up."""
    if password.expires_at is None:
        print_result(args, result, login=args.login)
        return
    until, printed = clock.rfc3339(password.expires_at), {"password": password.text} if password.is_printed else {}
    text = f"; password: {password.text}  (" if password.is_printed else "  (the password is "
    sentence = f"{result}{text}temporary: the first sign-in, until {until}, asks for an own one)"
    print_result(args, sentence, login=args.login, **printed, password_expires_at=until)


def run_list(args: argparse.Namespace) -> int:
    with read_store(args.load()):
        rows = accounts.list_accounts()
    if args.json:
        print_rows(args, [
            {
                "id": row.user_id, "login": row.login, "state": row.state, "created_at": clock.rfc3339(row.created_at),
                "disabled_at": clock.optional_rfc3339(row.disabled_at),
                "password_expires_at": clock.optional_rfc3339(row.password_expires_at),
                "tenants": [{"id": tenant, "role": role} for tenant, role in row.roles],
            }
            for row in rows
        ])  # fmt: skip
    else:
        print_rows(args, [
            {"login": row.login, "state": row.state, "tenants": ", ".join(f"{tenant} ({role})" for tenant, role in row.roles)}
            for row in rows
        ])  # fmt: skip
    return 0


def run_password(args: argparse.Namespace) -> int:
    config = args.load()
    password = _choose_password(args, config, is_printed=args.generate)
    with opened_store(config):
        people.set_password(args.login, password.text, expires_at=password.expires_at)
    _print_password(args, f"password of {args.login} set", password)
    return 0


def run_disable(args: argparse.Namespace) -> int:
    with opened_store(args.load()):
        accounts.disable_account(args.login, may_leave_ownerless=args.leave)
    print_result(args, f"user {args.login} is disabled; `gos user enable` undoes it", login=args.login, state="disabled")
    return 0


def run_enable(args: argparse.Namespace) -> int:
    with opened_store(args.load()):
        accounts.enable_account(args.login)
    print_result(args, f"user {args.login} is enabled", login=args.login, state="active")
    return 0


def run_reset_factors(args: argparse.Namespace) -> int:
    with opened_store(args.load()):
        count = factors.reset_factors(args.login)
    result = f"{count} second factors of {args.login} removed; their sessions have ended"
    print_result(args, result, login=args.login, removed=count)
    return 0


def run_delete(args: argparse.Namespace) -> int:
    if not args.yes and not confirm(f"Delete the user {args.login} for good? Type the login: ", args.login):
        print("gos: nothing was deleted; type the login, or use --yes", file=sys.stderr)
        return 1
    with opened_store(args.load()):
        accounts.delete_account(args.login, may_leave_ownerless=args.leave)
    print_result(args, f"user {args.login} deleted", deleted=args.login)
    return 0


def _add_scim(commands: Any) -> None:
    scim = commands.add_parser("scim", help="tokens of identity providers that add and remove people themselves")
    what = scim.add_subparsers(dest="what", required=True)
    token = what.add_parser("token", help="create a token of a provider; it is printed now and never again")
    token.add_argument("provider", help="an id of sign_in.providers")
    token.add_argument("--days", type=int, help="how many days it works; without this, until it is revoked")
    token.add_argument("--quiet", action="store_true", help="print only the token")
    add_json(token)
    token.set_defaults(run=run_scim_token)
    listing = what.add_parser("list", help="list the tokens with their last use")
    add_json(listing)
    listing.set_defaults(run=run_scim_list)
    rotate = what.add_parser("rotate", help="replace a token by a new one, which lasts as long; it is printed now and never again")
    rotate.add_argument("id")
    rotate.add_argument("--overlap", type=int, default=0, help="seconds that the old token stays valid")
    rotate.add_argument("--quiet", action="store_true", help="print only the token")
    add_json(rotate)
    rotate.set_defaults(run=run_scim_rotate)
    revoke = what.add_parser("revoke", help="end a token at once")
    revoke.add_argument("id")
    add_json(revoke)
    revoke.set_defaults(run=run_scim_revoke)


def run_scim_token(args: argparse.Namespace) -> int:
    from appliance.tenants.provisioning import create_token, require_scim

    config = args.load()
    provider = _find_provider(config, args.provider)
    if provider is None:
        raise NotFound(Sentence("there is no identity provider %(provider_id)s", provider_id=repr(args.provider[:40])))
    require_scim(provider)
    with opened_store(config) as sealer:
        token, text = create_token(sealer, provider, days=args.days)
    _print_token(args, config, token, text)
    return 0


def _print_token(args: argparse.Namespace, config: Config, token: ProviderToken, text: str) -> None:
    """Print a new token, which is shown only now."""
    if args.quiet:
        print(text)
    else:
        end = clock.optional_rfc3339(token.expires_at)
        print_rows(args, [{"id": token.id, "url": f"{config.base_url}/scim/v2", "token": text, "expires_at": end}])


def run_scim_rotate(args: argparse.Namespace) -> int:
    from appliance.tenants.provisioning import rotate_token

    config = args.load()
    with opened_store(config) as sealer:
        token, text = rotate_token(sealer, args.id, lambda provider_id: _find_provider(config, provider_id), args.overlap)
    _print_token(args, config, token, text)
    return 0


def run_scim_list(args: argparse.Namespace) -> int:
    from appliance.tenants.provisioning import list_tokens

    with read_store(args.load()):
        rows = list_tokens()
    print_rows(args, [
        {
            "id": row.id, "provider": row.provider, "ends": f"…{row.last4}", "created_at": clock.rfc3339(row.created_at),
            "last_used_at": clock.optional_rfc3339(row.last_used_at), "revoked_at": clock.optional_rfc3339(row.revoked_at),
            "expires_at": clock.optional_rfc3339(row.expires_at),
        }
        for row in rows
    ])  # fmt: skip
    return 0


def run_scim_revoke(args: argparse.Namespace) -> int:
    from appliance.tenants.provisioning import revoke_token

    config = args.load()
    with opened_store(config):
        row = revoke_token(args.id, lambda provider_id: _find_provider(config, provider_id))
    print_result(args, f"SCIM token {row.id} revoked", id=row.id, revoked_at=clock.optional_rfc3339(row.revoked_at))
    return 0


def _find_provider(config: Config, provider_id: str) -> IdentityProvider | None:
    return next((each for each in config.sign_in.providers if each.id == provider_id), None)
