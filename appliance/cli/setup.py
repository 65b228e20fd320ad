"""`gos init`: set up a data folder on its first run, with configuration, tenant `demo`, starter solution, first key and user."""

import argparse
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from shlex import quote
from typing import Any

from appliance.core import clock
from appliance.core.config import Config
from appliance.core.crypto import Sealer, has_keys
from appliance.core.database import db
from appliance.solutions import starter_input
from appliance.tenants import SCOPES, people, service
from appliance.tenants.keys import keys
from appliance.tenants.sign_in import temporary_passwords

from .output import opened_store

TENANT, USER, FIRST_RUN = "demo", "admin", "first-run.json"
FIRST_KEY_MS = 24 * 3_600_000
SECTIONS = """# Written by the first run. config.example.yaml lists all settings; `gos config check` checks this file.
# For evaluation; `gos doctor` reports what to change in production.
demo:
  order_system: true
console:
  administrators: [admin]
egress:
  allow: ["localhost:{port}", "127.0.0.1:{port}"]
"""


def add_commands(commands: Any) -> None:
    init = commands.add_parser("init", help="set up a data folder once: tenant demo with the starter solution")
    init.add_argument("--password-stdin", action="store_true", help=f"read an own password of {USER}, instead of a temporary one")
    init.set_defaults(run=run_init)


def run_init(args: argparse.Namespace) -> int:
    config = _configured(args)
    first_run = config.data / FIRST_RUN
    with opened_store(config, create=True) as sealer:
        if not service.has_any_account():
            set_up(config, sealer, first_run, sys.stdin.read().strip() if args.password_stdin else None)
        is_there = any(tenant.id == TENANT for tenant in service.list_tenants())
        expires_at = temporary_passwords.find_expiry(USER)
    if is_there and first_run.exists():
        print(welcome(config, first_run, expires_at))
    return 0


def _configured(args: argparse.Namespace) -> Config:
    """The configuration; a new data folder without one gets a config.yaml for evaluation."""
    config: Config = args.load()
    own = config.data / "config.yaml"
    if (config.data.is_dir() and has_keys(config)) or args.config is not None or own.exists():
        return config
    config.data.mkdir(parents=True, exist_ok=True, mode=0o700)
    draft = own.with_name("config.yaml.new")
    draft.write_text(SECTIONS.format(port=config.server.port), "utf8")
    draft.replace(own)
    written: Config = args.load()
    return written


def set_up(config: Config, sealer: Sealer, first_run: Path, password: str | None = None) -> None:
    """Create the tenant `demo` with the starter, an owner and a key that expires after 24 hours, and write them to a file.

    Without an own `password` the owner gets a temporary one, which is written there and replaced at the first sign-in.
    This is one transaction that writes the file last: an interrupted run leaves no account behind, and the next run starts over
    and overwrites a file whose transaction did not commit.
    """
    from appliance.app.composition import apply_starter

    if password is not None:
        person, secret = people.prepare_user(USER, password), {}
    else:
        temporary = temporary_passwords.make_temporary_password(config)
        until = clock.rfc3339(temporary.expires_at)
        person = people.prepare_user(USER, temporary.text, expires_at=temporary.expires_at)
        secret = {"console_password": temporary.text, "console_password_expires_at": until}
    scope = service.system_scope(TENANT)

    def write() -> None:
        if service.has_any_account():  # a concurrent run was faster
            return
        if not any(tenant.id == TENANT for tenant in service.list_tenants()):
            service.create_tenant(TENANT, "Demo")
        apply_starter(config, sealer, scope)
        people.insert_user(person)
        people.add_member(scope, USER, "owner")
        limits = config.limits
        spec = keys.KeySpec(
            "first run", list(SCOPES), keys.FIRST, rate_requests=limits.rate_requests, rate_window_s=limits.rate_window_s
        )
        _, api_key = keys.issue_key(scope, sealer, spec, lifetime_ms=FIRST_KEY_MS)
        write_private(first_run, {
            "base_url": config.tenant_url(TENANT),
            "connect_url": f"{config.scheme}://{_connect_host(config)}:{config.server.port}",
            "tenant": TENANT, "console_user": USER, **secret, "api_key": api_key,
            "created_at": clock.rfc3339(clock.now_ms()),
        })  # fmt: skip

    db.write(write)


def _connect_host(config: Config) -> str:
    """An address to connect to that works even where *.localhost is not resolved."""
    host = config.server.host
    if host in ("0.0.0.0", "::", "localhost"):  # noqa: S104  read, not bound
        return "127.0.0.1"
    return f"[{host}]" if ":" in host else host


def write_private(path: Path, content: dict[str, str]) -> None:
    """Write JSON, a member per line, to a file that only its owner can read; atomically and synced to disk."""
    draft = path.with_name(f"{path.name}.new")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        json.dump(content, file, indent=2)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)


def welcome(config: Config, first_run: Path, expires_at: int | None) -> str:
    """The next steps, with a command to paste.  They may end up in logs, so they contain neither the password nor the key.

    `expires_at` is that of the first user's password, None if it is not temporary.
    """
    try:
        first = json.loads(first_run.read_text("utf8"))
        base, user, since = first["base_url"], first["console_user"], clock.parse_rfc3339(first["created_at"])
        access = _describe_password(first, first_run, expires_at)
    except (ValueError, KeyError, TypeError):
        return f"{first_run} cannot be read; delete it, and set a password with `gos user password LOGIN`"
    try_it = curl_line(config, starter_input(), base, first_run)
    if since + FIRST_KEY_MS < clock.now_ms():
        try_it = f"the key in {first_run} has expired; gos key add --tenant {TENANT} --name mine"
    return (
        f"\nConsole   {base}/console/  as {user}, {access}\n"
        f"API       {base}/api-docs/  with the key in the same file\n"
        f"Try it    {try_it}\n"
    )


def _describe_password(first: Mapping[str, str], first_run: Path, expires_at: int | None) -> str:
    """Which password the first user has, without saying it.  ValueError."""
    until, text = first.get("console_password_expires_at", ""), first.get("console_password")
    if expires_at is None and (text is None or until):
        return "with your own password"
    if expires_at is not None and (not until or clock.parse_rfc3339(until) != expires_at):
        return "with the temporary password that was set since"
    if until and clock.parse_rfc3339(until) < clock.now_ms():
        return f"whose temporary password has ended: gos user password --generate {first['console_user']}"
    return f"password in {first_run}; the first sign-in asks for your own" if until else f"password in {first_run}"


def curl_line(config: Config, sample: Path, base: str, first_run: Path) -> str:
    """A curl command that executes the starter's process on its sample input; the shell reads the key from the file."""
    trust = f"--cacert {quote(str(config.data / 'tls' / 'ca.pem'))} " if config.tls_mode == "internal" else ""
    key = f"""$(sed -n 's/.*"api_key": "\\([^"]*\\)".*/\\1/p' {quote(str(first_run))})"""
    return (
        f"""curl -sS {trust}-H "X-API-Key: {key}" -H 'Content-Type: application/json' --data-binary @{quote(str(sample))} """
        f"'{base}/api/v1/processes/order-intake/execute?wait=30'"
    )
