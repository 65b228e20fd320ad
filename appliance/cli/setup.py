"""`gos init`: the first run of a data folder: configuration, tenant `demo`, starter solution, first key and user."""

import argparse
import json
import os
import secrets
from pathlib import Path
from typing import Any

from appliance.core import clock
from appliance.core.config import Config
from appliance.core.crypto import Sealer
from appliance.solutions.starter import starter_input
from appliance.tenants import keys, people, service
from appliance.tenants.scopes import SCOPES

from .output import opened_store

TENANT, USER = "demo", "admin"
FIRST_KEY_MS = 24 * 3_600_000
SECTIONS = """# Written by the first run. Every setting: config.example.yaml; `gos config check` says whether this file is good.
# For trying out; `gos doctor` points out what to change in production.
demo:
  order_system: true
console:
  administrators: [admin]
egress:
  allow: ["localhost:{port}", "127.0.0.1:{port}"]
"""


def add_commands(commands: Any) -> None:
    commands.add_parser("init", help="prepare a data folder once: tenant demo with the starter solution").set_defaults(run=run_init)


def run_init(args: argparse.Namespace) -> int:
    config: Config = args.load()
    if not (config.data / "key").exists() and args.config is None and not (config.data / "config.yaml").exists():
        config.data.mkdir(parents=True, exist_ok=True, mode=0o700)
        (config.data / "config.yaml").write_text(SECTIONS.format(port=config.server.port), "utf8")
        config = args.load()
    first_run = config.data / "first-run.json"
    with opened_store(config, create=True) as sealer:
        if not any(tenant.id == TENANT for tenant in service.list_tenants()):
            write_private(first_run, make_demo(config, sealer))
    if first_run.exists():
        print(welcome(config, json.loads(first_run.read_text("utf8"))))
    return 0


def make_demo(config: Config, sealer: Sealer) -> dict[str, str]:
    """The demo tenant with the starter, an owner and a key that expires after 24 hours; answers what first-run.json holds."""
    from appliance.app.composition import apply_starter

    service.create_tenant(TENANT, "Demo")
    scope = service.system_scope(TENANT)
    apply_starter(config, sealer, scope)
    password = secrets.token_urlsafe(15)
    people.create_user(USER, password)
    people.add_member(scope, USER, "owner")
    _, key = keys.issue_key(scope, sealer, keys.KeySpec("first run", list(SCOPES), "first"), lifetime_ms=FIRST_KEY_MS)
    return {
        "base_url": config.tenant_url(TENANT), "connect_url": f"{config.scheme}://{_connect_host(config)}:{config.server.port}",
        "tenant": TENANT, "console_user": USER, "console_password": password, "api_key": key,
        "created_at": clock.rfc3339(clock.now_ms()),
    }  # fmt: skip


def _connect_host(config: Config) -> str:
    """An address that every client can connect to, where *.localhost is not resolved."""
    host = config.server.host
    if host in ("0.0.0.0", "::", "localhost"):  # noqa: S104  read, not bound
        return "127.0.0.1"
    return f"[{host}]" if ":" in host else host


def write_private(path: Path, content: dict[str, str]) -> None:
    """JSON that only the owner may read."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        json.dump(content, file, indent=2)
        file.write("\n")


def welcome(config: Config, first: dict[str, str]) -> str:
    """What to do next, with a line that can be pasted."""
    return (
        f"\nConsole   {first['base_url']}/console/  as {first['console_user']}, password in {config.data / 'first-run.json'}\n"
        f"API       {first['base_url']}/api-docs/\n"
        f"Try it    {curl_line(config, starter_input(), first)}\n"
    )


def curl_line(config: Config, sample: Path, first: dict[str, str]) -> str:
    """Executes the starter's process on its sample input."""
    trust = f"--cacert {config.data / 'tls' / 'ca.pem'} " if config.tls_mode == "internal" else ""
    return (
        f"curl -sS {trust}-H 'X-API-Key: {first['api_key']}' -H 'Content-Type: application/json' --data-binary @{sample} "
        f"'{first['base_url']}/api/v1/processes/order-intake/execute?wait=30'"
    )
