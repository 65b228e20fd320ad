"""`gos` on a data folder: its output and exit codes, and no tracebacks."""

import gc
import io
import json
import os
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from appliance import __version__, migrations
from appliance.cli import main
from appliance.core import clock
from appliance.core.config.example import example
from appliance.core.crypto import Sealer, load_or_make_key
from appliance.core.database import db
from appliance.core.scope import TenantScope
from appliance.tenants import people
from appliance.webapps.access import Visitor, Visits, parse_access
from appliance.webapps.models import WebAppRow

Gos = Callable[..., tuple[int, str, str]]


@pytest.fixture
def gos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Gos:
    """Runs a command on a data folder of its own with `stdin`; answers exit code, output and errors."""
    monkeypatch.setenv("GOS_DATA", str(tmp_path / "data"))

    def run(*argv: str, stdin: str = "") -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
        try:
            code = main(list(argv))
        except SystemExit as end:
            code = int(end.code or 0)
        return code, *capsys.readouterr()

    return run


@pytest.fixture
def acme(gos: Gos) -> str:
    assert gos("tenant", "add", "acme", "--name", "Acme")[0] == 0
    return "acme"


def data(answer: tuple[int, str, str]) -> Any:
    assert answer[0] == 0, answer[2]
    return json.loads(answer[1])


def test_new_keys_have_the_rate_of_the_settings(gos: Gos, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOS_LIMITS_RATE_REQUESTS", "50")
    monkeypatch.setenv("GOS_LIMITS_RATE_WINDOW_S", "10")
    assert gos("init")[0] == 0
    assert gos("key", "add", "--tenant", "demo", "--name", "mine")[0] == 0
    db.open_database(f"sqlite:///{tmp_path / 'data' / 'gos.db'}")
    try:
        rows = db.rows("SELECT name, rate_requests, rate_window_s FROM api_key ORDER BY name")
        assert rows == [("first run", 50, 10), ("mine", 50, 10)]
    finally:
        db.close_database()


@pytest.mark.parametrize(
    "argv",
    [
        [], ["nothing"], ["key"], ["key", "add"], ["key", "add", "--tenant", "acme"], ["tenant", "add"], ["serve", "--port", "x"],
        ["key", "add", "--tenant", "a", "--name", "n", "--scope", "no.such"], ["user", "add", "x", "--role", "king"], ["--nope"],
        ["config", "what"], ["key", "add", "--tenant", "a", "--name", "n", "--days", "x"],
    ],
)  # fmt: skip
def test_wrong_usage_is_one_sentence_and_code_two(gos: Gos, argv: list[str]) -> None:
    code, out, errors = gos(*argv)
    assert (code, out) == (2, "")
    assert len(errors.splitlines()) == 1
    assert errors.startswith("gos")
    assert "--help" in errors


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["key", "add", "--tenant", "nobody", "--name", "n"], "there is no tenant 'nobody'"),
        (["key", "list", "--tenant", "nobody"], "there is no tenant 'nobody'"),
        (["key", "revoke", "key_x", "--tenant", "acme"], "there is no API key 'key_x' in this tenant"),
        (["key", "add", "--tenant", "acme", "--name", "n", "--days", "731"], "1 to 730 days"),
        (["key", "add", "--tenant", "acme", "--name", "n", "--allow", "here"], "not an address or network"),
        (["tenant", "add", "acme"], "already"),
        (["tenant", "add", "No Name"], "lower-case letters"),
        (["tenant", "delete", "nobody", "--yes"], "there is no tenant 'nobody'"),
        (["user", "add", "ann@example.com", "--tenant", "nobody"], "there is no tenant 'nobody'"),
        (["user", "password", "nobody@example.com"], "15 to 1000 characters"),
        (["secret", "set", "a-b", "--tenant", "acme"], "letters, digits and underscores"),
        (["secret", "delete", "none", "--tenant", "acme"], "there is no secret 'none' in this tenant"),
        (["secret", "list", "--tenant", "nobody"], "there is no tenant 'nobody'"),
        (["--config", "/none/config.yaml", "config", "check"], "cannot be read"),
    ],
)
def test_a_refusal_is_a_sentence_and_code_one(gos: Gos, acme: str, argv: list[str], words: str) -> None:
    code, out, errors = gos(*argv)
    assert (code, out) == (1, "")
    assert errors.startswith("gos: ")
    assert words in errors
    assert "Traceback" not in errors


def test_a_refused_user_is_not_half_created(gos: Gos, acme: str) -> None:
    assert gos("user", "add", "ann@example.com", "--tenant", "nobody")[0] == 1
    assert gos("user", "add", "ann@example.com", "--tenant", "acme", "--role", "owner")[0] == 0


def test_quiet_prints_only_the_key(gos: Gos, acme: str) -> None:
    code, out, errors = gos("key", "add", "--tenant", acme, "--name", "n", "--quiet")
    assert (code, errors) == (0, "")
    assert out.startswith("gos_live_")
    assert len(out.split()) == 1


def test_a_key_is_added_rotated_and_revoked(gos: Gos, acme: str) -> None:
    add = (
        "key",
        "add",
        "--tenant",
        acme,
        "--name",
        "ci",
        "--scope",
        "logs.read",
        "--scope",
        "keys.read",
        "--environment",
        "ci",
        "--days",
        "3",
    )
    (key,) = data(gos(*add, "--json"))
    assert key["key"].startswith("gos_ci_")
    (rotated,) = data(gos("key", "rotate", key["id"], "--tenant", acme, "--overlap", "60", "--json"))
    assert rotated["key"] != key["key"]
    assert data(gos("key", "revoke", key["id"], "--tenant", acme, "--json"))["revoked_at"]
    listed = {row["id"]: row for row in data(gos("key", "list", "--tenant", acme, "--json"))}
    assert set(listed) == {key["id"], rotated["id"]}
    assert listed[key["id"]]["revoked_at"]
    assert listed[rotated["id"]]["scopes"] == 2
    assert key["key"] not in gos("key", "list", "--tenant", acme)[1]
    assert gos("key", "rotate", key["id"], "--tenant", acme)[0] == 1


def test_a_key_is_limited_to_some_resources(gos: Gos, acme: str, tmp_path: Path) -> None:
    more = ("--process", "orders", "--process", "returns", "--integration", "erp")
    assert gos("key", "add", "--tenant", acme, "--name", "ci", *more)[0] == 0
    db.open_database(f"sqlite:///{tmp_path / 'data' / 'gos.db'}")
    try:
        ((limits,),) = db.rows("SELECT limits FROM api_key")
    finally:
        db.close_database()
    assert json.loads(limits) == {"processes": ["orders", "returns"], "integrations": ["erp"]}


def test_a_key_is_renamed(gos: Gos, acme: str) -> None:
    (key,) = data(gos("key", "add", "--tenant", acme, "--name", "ci", "--json"))
    renamed = data(gos("key", "rename", key["id"], "nightly import", "--tenant", acme, "--json"))
    assert renamed == {"id": key["id"], "name": "nightly import"}
    assert {row["name"] for row in data(gos("key", "list", "--tenant", acme, "--json"))} == {"nightly import"}
    code, _out, errors = gos("key", "rename", key["id"], "", "--tenant", acme)
    assert (code, "name must have 1 to 200 printable characters" in errors) == (1, True)


def test_tenants_are_listed_and_deleted_after_a_confirmation(gos: Gos, acme: str) -> None:
    added = data(gos("tenant", "add", "globex", "--json"))
    assert added == {"id": "globex", "name": "globex", "kind": "standard", "expires_at": None}
    assert [row["id"] for row in data(gos("tenant", "list", "--json"))] == ["acme", "globex"]
    assert gos("tenant", "list")[1].splitlines()[0].split() == ["id", "name", "kind", "created_at", "expires_at"]
    for answer in ("", "no\n", "acm\n"):
        assert gos("tenant", "delete", "acme", stdin=answer)[0] == 1
    assert gos("tenant", "delete", "acme", stdin="acme\n")[0] == 0
    assert gos("tenant", "delete", "globex", "--yes")[0] == 0
    assert gos("tenant", "list")[1] == "none\n"


def test_the_second_factors_of_a_user_are_removed(gos: Gos, acme: str, tmp_path: Path) -> None:
    assert gos("user", "add", "ann@example.com", "--tenant", acme, "--role", "owner")[0] == 0
    (ann,) = data(gos("user", "list", "--json"))
    row = (ann["id"], ann["id"], "totp", "Phone", b"sealed", 0, 0)
    sql = "INSERT INTO second_factor (id, user_id, kind, name, sealed, counter, created_at) VALUES (?, ?, ?, ?, ?, ?, ?)"
    with closing(sqlite3.connect(tmp_path / "data" / "gos.db")) as database:
        database.execute(sql, row)
        database.commit()
    for count in (1, 0):
        assert data(gos("user", "reset-factors", "ann@example.com", "--json")) == {"login": "ann@example.com", "removed": count}
    code, _, error = gos("user", "reset-factors", "nobody@example.com")
    assert (code, "there is no user 'nobody@example.com'" in error) == (1, True)


def test_users_are_listed_disabled_enabled_and_deleted(gos: Gos, acme: str) -> None:
    for login, role in (("ann@example.com", "owner"), ("bob@example.com", "viewer")):
        assert gos("user", "add", login, "--tenant", acme, "--role", role)[0] == 0
    code, _, error = gos("user", "disable", "ann@example.com")
    assert code == 1
    assert "ann@example.com is the only owner of acme; make somebody else owner first, or use --leave-tenants-without" in error
    assert data(gos("user", "disable", "bob@example.com", "--json")) == {"login": "bob@example.com", "state": "disabled"}
    ann, bob = data(gos("user", "list", "--json"))
    assert (ann["state"], ann["disabled_at"], ann["tenants"]) == ("active", None, [{"id": acme, "role": "owner"}])
    assert (bob["login"], bob["state"], bob["disabled_at"] is not None) == ("bob@example.com", "disabled", True)
    assert "bob@example.com  disabled  acme (viewer)" in gos("user", "list")[1]
    assert data(gos("user", "enable", "bob@example.com", "--json")) == {"login": "bob@example.com", "state": "active"}
    for answer in ("\n", "no\n"):
        assert gos("user", "delete", "bob@example.com", stdin=answer)[0] == 1
    assert gos("user", "delete", "bob@example.com", stdin="bob@example.com\n")[0] == 0
    leave = gos("user", "delete", "ann@example.com", "--yes", "--leave-tenants-without-owner", "--json")
    assert data(leave) == {"deleted": "ann@example.com"}
    assert gos("user", "list")[1] == "none\n"
    assert gos("user", "enable", "ann@example.com")[0] == 1


def test_users_and_secrets(gos: Gos, acme: str) -> None:
    user = data(gos("user", "add", "ann@example.com", "--tenant", acme, "--role", "owner", "--json"))
    assert len(user["password"]) >= 15
    code, out, _ = gos("user", "add", "bob@example.com", "--password-stdin", "--lasting", stdin="a long enough password\n")
    assert (code, out) == (0, "user bob@example.com added\n")
    code, out, _ = gos("user", "add", "cyd@example.com", "--password-stdin", stdin="a long enough password\n")
    assert (code, "the password is temporary: the first sign-in, until " in out, "a long" in out) == (0, True, False)
    assert gos("user", "password", "bob@example.com", stdin="another long password\n")[0] == 0
    assert gos("user", "password", "bob@example.com", stdin="short\n")[0] == 1
    assert gos("secret", "set", "token", "--tenant", acme, stdin="very secret\n")[0] == 0
    assert [row["name"] for row in data(gos("secret", "list", "--tenant", acme, "--json"))] == ["token"]
    places = ("--for-process", "nightly", "--for-integration", "erp@erp.example.com")
    bound = data(gos("secret", "set", "token", "--tenant", acme, *places, "--json", stdin="another\n"))
    assert bound["destinations"] == ["the integration erp (erp.example.com)", "the process nightly"]
    assert gos("secret", "set", "token", "--tenant", acme, "--for-integration", "none", stdin="x")[0] != 0
    assert gos("secret", "delete", "token", "--tenant", acme)[0] == 0


def test_the_configuration_is_checked(gos: Gos, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert gos("config", "example")[1] == example()
    assert gos("config", "check")[1].startswith("valid: data in ")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "config.yaml").write_text("server: {prot: 1}\n")
    code, _, errors = gos("config", "check")
    assert (code, "'server.port'" in errors) == (1, True)
    (tmp_path / "data" / "config.yaml").unlink()
    monkeypatch.setenv("GOS_SEVER_PORT", "1")
    code, _, errors = gos("config", "check")
    assert (code, "GOS_SEVER_PORT" in errors) == (0, True), "a warning"


def test_checks_answer_in_json(gos: Gos, acme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert data(gos("config", "check", "--json"))["good"] is True
    assert data(gos("migrate", "--json")) == {"migrated": True}
    monkeypatch.setenv("GOS_WEBAPPS_ADDRESSES", "full")
    findings = json.loads(gos("doctor", "--json")[1])
    assert {finding["level"] for finding in findings} <= {"ok", "note", "FAIL"}
    assert any("webapps.addresses" in finding["text"] for finding in findings)


def test_a_port_in_use_is_reported_before_anything_starts(gos: Gos, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = str(listener.getsockname()[1])
        code, out, errors = gos("serve", "--host", "127.0.0.1", "--port", port)
    assert (code, out) == (1, "")
    assert f"port {port} of 127.0.0.1 is in use" in errors
    assert gc.isenabled()
    assert not (tmp_path / "data" / "gos.db").exists()


def test_migrating_again_changes_nothing(gos: Gos) -> None:
    assert [gos("migrate")[0] for _ in range(2)] == [0, 0]


@pytest.mark.parametrize(
    "argv",
    [
        ["tenant", "list"], ["key", "list", "--tenant", "acme"], ["secret", "list", "--tenant", "acme"], ["domain", "list"],
        ["tenant", "export", "acme", "acme.gost"],
    ],
)  # fmt: skip
def test_read_only_commands_never_migrate(gos: Gos, tmp_path: Path, argv: list[str]) -> None:
    url, newest = f"sqlite:///{tmp_path / 'data' / 'gos.db'}", migrations.last_number()
    (tmp_path / "data").mkdir()
    load_or_make_key(tmp_path / "data" / "key")
    db.open_database(url)
    migrations.migrate(newest - 1)
    db.close_database()
    code, out, errors = gos(*argv)
    assert (code, out, len(errors.splitlines())) == (1, "", 1)
    assert "lacks 1 migration of this release" in errors
    assert "`gos migrate`" in errors
    db.open_database(url)
    assert db.rows("SELECT max(number) FROM migration") == [(newest - 1,)]
    db.close_database()


def test_a_data_path_that_is_a_file_is_reported(gos: Gos, tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file")
    code, _, errors = gos("tenant", "list")
    assert (code, len(errors.splitlines())) == (1, 1)
    assert str(tmp_path / "data") in errors


def test_a_read_only_command_creates_no_data_folder(gos: Gos, tmp_path: Path) -> None:
    code, _, errors = gos("tenant", "list")
    assert (code, "start with `gos init`" in errors, (tmp_path / "data").exists()) == (1, True, False)


def test_a_file_that_is_not_a_database_is_reported(gos: Gos, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "gos.db").write_bytes(b"not a database" * 1000)
    code, _, errors = gos("migrate")
    assert (code, len(errors.splitlines())) == (1, 1)
    assert "the database cannot be used" in errors


def test_a_damaged_key_file_is_reported(gos: Gos, acme: str, tmp_path: Path) -> None:
    (tmp_path / "data" / "key").write_text("damaged")
    code, _, errors = gos("tenant", "list")
    assert (code, "restore it from the backup" in errors) == (1, True)


def test_a_bug_is_reported_without_a_traceback(gos: Gos, acme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from appliance.tenants import service

    def broken() -> None:
        raise ZeroDivisionError("the secret of the bug")

    monkeypatch.setattr(service, "list_tenants", broken)
    code, _, errors = gos("tenant", "list")
    assert (code, len(errors.splitlines())) == (1, 1)
    assert "this is a bug (ZeroDivisionError)" in errors
    report = Path(errors.split()[-1])
    assert "the secret of the bug" in report.read_text()
    report.unlink()


def test_the_command_is_a_program(tmp_path: Path) -> None:
    def run(*argv: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "appliance", "--data", str(tmp_path / "data"), *argv]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    assert run("--version").stdout == f"gos {__version__}\n"
    assert run("tenant", "add", "acme").returncode == 0
    assert run("tenant", "add", "acme").returncode == 1
    assert run("nothing").returncode == 2
    assert (tmp_path / "data").stat().st_mode & 0o777 == 0o700


def test_a_new_password_ends_the_visits_of_its_member(gos: Gos, acme: str) -> None:
    assert gos("user", "add", "ann@example.com", "--tenant", acme, "--role", "owner")[0] == 0
    now = clock.now_ms()
    db.open_database(f"sqlite:///{os.environ['GOS_DATA']}/gos.db")
    scope = TenantScope(acme, "key:acme")
    row = {"name": "Shop", "description": "", "last_version": 0, "created_at": now, "updated_at": now}
    db.write(lambda: scope.insert(WebAppRow, id="shop", **row))
    for who in (people.find_user("ann@example.com").id, "usr_other"):
        Visits(Sealer(b"k" * 32)).open_visit(scope, "shop", parse_access("members"), Visitor("member", who, ""))
    db.close_database()
    assert gos("user", "password", "ann@example.com", stdin="another long enough password\n")[0] == 0
    db.open_database(f"sqlite:///{os.environ['GOS_DATA']}/gos.db")
    assert db.rows("SELECT subject FROM webapp_visit") == [("usr_other",)]
    db.close_database()
