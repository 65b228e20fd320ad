"""Beside a reset or deletion of a tenant no command writes into it, and everything works that an operator needs meanwhile."""

import argparse
import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from appliance import cli
from appliance.app.store import open_store
from appliance.blobs import Blobs, LocalPlaces
from appliance.cli import make_parser
from appliance.connectors.egress import Egress
from appliance.core import clock
from appliance.core.config import load_config
from appliance.core.crypto import Sealer
from appliance.core.database import db
from appliance.core.database.write_guards import GuardedRequest, guarding
from appliance.core.database.writers import Job, Writers
from appliance.core.scope import TenantScope
from appliance.tenants import AccountSpec, people, service, service_accounts
from appliance.tenants.keys import KeySpec, issue_key
from appliance.webapps import NewApp, WebApps
from appliance.webapps.domains import NewDomain, build_domains
from appliance.webapps.files import Limits
from tests.backups.test_transfer import tenant_rows

KEY, DAY_MS = "KEY", 86_400_000
REFUSED: dict[str, list[str]] = {
    "key add": ["--tenant", "acme", "--name", "late"],
    "key rotate": ["--tenant", "acme", KEY],
    "key rename": ["--tenant", "acme", KEY, "late"],
    "key make-agent": ["--tenant", "acme", KEY],
    "secret set": ["--tenant", "acme", "late", "--for-process", "orders"],
    "secret delete": ["--tenant", "acme", "erp"],
    "service-account add": [
        "--tenant", "acme", "late", "--title", "Late", "--responsible", "ada@acme.test", "--scope", "logs.read",
    ],
    "service-account change": ["--tenant", "acme", "robot", "--title", "Late"],
    "service-account enable": ["--tenant", "acme", "robot"],
    "domain approve": ["--tenant", "acme", "shop.example.com"],
    "user add": ["late@acme.test", "--tenant", "acme"],
    "tenant delete": ["acme", "--yes"],
}  # fmt: skip
"""What writes into a tenant, with the rest of the line."""
NEEDED: dict[str, list[str]] = {
    "key list": ["--tenant", "acme"], "key revoke": ["--tenant", "acme", KEY], "secret list": ["--tenant", "acme"],
    "service-account list": ["--tenant", "acme"], "service-account disable": ["--tenant", "acme", "robot"],
    "service-account delete": ["--tenant", "acme", "robot", "--yes"], "domain list": [], "tenant list": [],
    "tenant quota": ["acme", "storage=1GB"], "tenant sandbox": ["acme", "--days", "3"], "user list": [],
    "user password": ["ada@acme.test", "--generate"], "user disable": ["bob@acme.test"], "user enable": ["bob@acme.test"],
    "user reset-factors": ["ada@acme.test"], "user delete": ["bob@acme.test", "--yes"], "person show": ["ada@acme.test"],
    "person erase": ["bob@acme.test", "--yes"],
}  # fmt: skip
"""What only looks or ends access, or writes what a reset keeps for whoever runs the appliance."""
ELSEWHERE = {
    "tenant add": "its tenant does not exist yet", "tenant create": "the same", "tenant import": "the same",
    "tenant export": "tests/solutions/test_reset_steps.py", "tenant reset": "the same; it is a job, of which one runs at a time",
    "domain release": "a reset has released the tenant's names when it begins",
    "person export": "writes nothing but a file and the trail",
}  # fmt: skip


@dataclass
class Machine:
    """A data folder with the tenant acme, which has a key, a secret, a service account and two owners."""

    folder: Path
    key: str

    def run(self, line: str, rest: list[str]) -> int:
        words = [*line.split(), *(self.key if word == KEY else word for word in rest)]
        return cli.main(["--data", str(self.folder), *words])

    @contextmanager
    def opened(self) -> Iterator[Sealer]:
        sealer = open_store(load_config(environment={}, flags={"storage.data": str(self.folder)}))
        try:
            yield sealer
        finally:
            db.close_database()

    def rows(self) -> tuple[dict[str, Any], list[Any]]:
        """All rows of the tenant, and the logins."""
        with self.opened():
            return tenant_rows("acme"), db.rows("SELECT login FROM person ORDER BY login")


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    monkeypatch.setattr(sys, "stdin", io.StringIO("a value"))
    machine = Machine(tmp_path, "")
    with machine.opened() as sealer:
        service.create_tenant("acme", "Acme", kind="sandbox", expires_at=clock.now_ms() + DAY_MS)
        scope = service.system_scope("acme")
        for login in ("ada@acme.test", "bob@acme.test"):
            people.create_user(login, "a password of their own")
            people.add_member(scope, login, "owner")
        machine.key = issue_key(scope, sealer, KeySpec("first", ["logs.read"]))[0].id
        service.set_secret(scope, sealer, "erp", "a value")
        service_accounts.create_account(scope, AccountSpec("robot", "Robot", ["logs.read"], responsible="ada@acme.test"))
        claim_domain(tmp_path, scope)
    return machine


def claim_domain(folder: Path, scope: TenantScope) -> None:
    """Give the tenant an app, and a claim of a domain for it."""
    apps = WebApps(Blobs(LocalPlaces(folder / "blobs"), ["webapp_file"]), Limits(10, 1 << 20, 1 << 20))
    apps.create_app(scope, NewApp("shop"))
    config = load_config(environment={}, flags={"storage.data": str(folder)})
    build_domains(config, Egress()).claim_domain(scope, "shop", NewDomain("shop.example.com"))


def begin_reset() -> None:
    db.write(lambda: service.begin_reset(service.system_scope("acme"), force=True))


def check_refused(machine: Machine, capsys: pytest.CaptureFixture[str], line: str, rest: list[str]) -> None:
    assert machine.run(line, rest) == 1
    printed = capsys.readouterr()
    assert "the tenant 'acme' is being reset; try again when that is done" in printed.err, printed


@pytest.mark.parametrize("line", REFUSED)
def test_a_command_writes_nothing_into_a_tenant_that_is_being_reset(
    machine: Machine, capsys: pytest.CaptureFixture[str], line: str
) -> None:
    with machine.opened():
        begin_reset()
    before = machine.rows()
    check_refused(machine, capsys, line, REFUSED[line])
    assert machine.rows() == before


@pytest.mark.writes_once(reason="the reset begins once")
@pytest.mark.parametrize("line", REFUSED)
def test_a_reset_that_begins_after_a_command_has_looked_refuses_its_write(
    machine: Machine, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    submit, begins, after = Writers.submit, iter([True]), []

    def begin_first(self: Writers, job: Job) -> None:
        if next(begins, False):
            with guarding(GuardedRequest()):  # by another process, not by the command
                begin_reset()
            after.append(tenant_rows("acme"))
        submit(self, job)

    with monkeypatch.context() as patch:
        patch.setattr(Writers, "submit", begin_first)
        check_refused(machine, capsys, line, REFUSED[line])
    assert after == [machine.rows()[0]]


@pytest.mark.parametrize("line", NEEDED)
def test_what_an_operator_needs_works_during_a_reset(machine: Machine, capsys: pytest.CaptureFixture[str], line: str) -> None:
    with machine.opened():
        begin_reset()
    assert machine.run(line, NEEDED[line]) == 0, capsys.readouterr().err


def test_every_command_on_a_tenant_is_among_these() -> None:
    listed = {*REFUSED, *NEEDED, *ELSEWHERE}
    nouns = {line.split()[0] for line in listed}
    assert {line for noun in nouns for line in _leaves(make_parser([noun]), noun)} == listed


def _leaves(parser: argparse.ArgumentParser, noun: str) -> Iterator[str]:
    """The commands below a noun."""
    (commands,) = (each for each in parser._actions if isinstance(each, argparse._SubParsersAction))
    (verbs,) = (each for each in commands.choices[noun]._actions if isinstance(each, argparse._SubParsersAction))
    yield from (f"{noun} {verb}" for verb in verbs.choices)
