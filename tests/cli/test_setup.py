"""`gos init`, which runs at every start: it sets up a data folder once and completely, and prints no secret."""

import io
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

from appliance.cli import main, setup
from appliance.core import clock
from appliance.tenants import people
from tests.store.opening import migrated

Init = Callable[..., tuple[int, str, str]]
DAY = 24 * 3_600_000


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data folder with a name that a shell would take apart, and this release's schema."""
    folder = tmp_path / "the data"
    with migrated(f"sqlite:///{folder / 'gos.db'}"):
        pass
    return folder


@pytest.fixture
def gos(data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Init:
    monkeypatch.setenv("GOS_DATA", str(data))

    def run(*argv: str, stdin: str = "") -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
        return main(list(argv)), *capsys.readouterr()

    return run


def read_first_run(data: Path) -> dict[str, str]:
    first_run: dict[str, str] = json.loads((data / "first-run.json").read_text("utf8"))
    return first_run


def is_complete(gos: Init, data: Path) -> bool:
    """Whether the credentials in the file exist."""
    first = read_first_run(data)
    keys = json.loads(gos("key", "list", "--tenant", "demo", "--json")[1])
    return [key["name"] for key in keys] == ["first run"] and first["api_key"].startswith("gos_first_")


def test_a_first_run_prints_where_the_credentials_are_but_not_their_values(gos: Init, data: Path) -> None:
    code, out, errors = gos("init")
    assert (code, errors) == (0, "")
    first = read_first_run(data)
    assert (data / "first-run.json").stat().st_mode & 0o777 == 0o600
    assert is_complete(gos, data)
    assert first["api_key"] not in out
    assert first["console_password"] not in out
    line = re.search(r"Try it +(curl .*)", out)
    assert line is not None
    script = f"curl() {{ printf '%s\\n' \"$@\"; }}; {line[1]}"
    typed = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert f"X-API-Key: {first['api_key']}" in typed.stdout.splitlines()
    again = gos("init")
    assert (again[0], read_first_run(data)) == (0, first)


def test_a_key_that_has_expired_is_not_offered(gos: Init, monkeypatch: pytest.MonkeyPatch) -> None:
    assert gos("init")[0] == 0
    tomorrow = clock.now_ms() + DAY + 1
    monkeypatch.setattr(clock, "now_ms", lambda: tomorrow)
    code, out, _ = gos("init")
    assert (code, "has expired; gos key add --tenant demo" in out, "curl" in out) == (0, True, False)


def test_the_first_password_is_temporary_and_the_start_says_so(gos: Init, data: Path) -> None:
    code, out, _ = gos("init")
    assert (code, "the first sign-in asks for your own" in out) == (0, True)
    first = read_first_run(data)
    left = clock.parse_rfc3339(first["console_password_expires_at"]) - clock.now_ms()
    assert 6 * DAY < left <= 7 * DAY


def test_an_operator_may_choose_the_first_password(gos: Init, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code, out, _ = gos("init", "--password-stdin", stdin="seven green bottles hum quietly\n")
    assert (code, "with your own password" in out) == (0, True)
    assert "console_password" not in read_first_run(data)
    assert "seven green" not in (data / "first-run.json").read_text("utf8")


def test_an_empty_first_password_is_refused(gos: Init, data: Path) -> None:
    """As of a script whose variable is not set: it expects no temporary password."""
    code, _, err = gos("init", "--password-stdin", stdin="\n")
    assert (code, "a password must have 15 to 1000 characters" in err) == (1, True), err
    assert not (data / "first-run.json").exists()
    assert gos("init", "--password-stdin", stdin="seven green bottles hum quietly\n")[0] == 0


def test_a_later_start_offers_the_first_password_only_while_it_works(gos: Init) -> None:
    for _ in range(2):
        assert "the first sign-in asks for your own" in gos("init")[1]
    for flags, words in (((), "with the temporary password that was set since"), (("--lasting",), "with your own password")):
        assert gos("user", "password", "admin", *flags, stdin="seven green bottles hum quietly")[0] == 0
        out = gos("init")[1]
        assert (words in out, "password in" in out) == (True, False)


def test_a_first_password_whose_time_is_over_is_not_offered(gos: Init, monkeypatch: pytest.MonkeyPatch) -> None:
    assert gos("init")[0] == 0
    later = clock.now_ms() + 7 * DAY + 1000
    monkeypatch.setattr(clock, "now_ms", lambda: later)
    assert "gos user password --generate admin" in gos("init")[1]


def test_passwords_that_an_operator_knows_are_temporary_unless_they_are_to_last(gos: Init) -> None:
    assert gos("init")[0] == 0
    typed = "seven green bottles hum quietly"

    def set_one(*argv: str, stdin: str = "") -> tuple[bool, bool]:
        """Whether the password is printed, and whether it is temporary for seven days."""
        result = json.loads(gos("user", *argv, "--json", stdin=stdin)[1])
        accounts = {each["login"]: each for each in json.loads(gos("user", "list", "--json")[1])}
        until = result.get("password_expires_at")
        assert accounts[argv[1]]["password_expires_at"] == until
        assert until is None or 6 * DAY < clock.parse_rfc3339(until) - clock.now_ms() <= 7 * DAY
        assert typed not in str(result)
        return "password" in result, until is not None

    assert set_one("add", "ann@acme.test") == (True, True)
    assert set_one("add", "bob@acme.test", "--password-stdin", stdin=typed) == (False, True)
    assert set_one("add", "cyd@acme.test", "--password-stdin", "--lasting", stdin=typed) == (False, False)
    assert set_one("password", "ann@acme.test", stdin=typed) == (False, True)
    assert set_one("password", "ann@acme.test", "--lasting", stdin=typed) == (False, False)
    assert set_one("password", "ann@acme.test", "--generate") == (True, True)
    assert "temporary" in gos("user", "password", "bob@acme.test", "--generate")[1]


def test_a_printed_password_cannot_last(gos: Init) -> None:
    assert gos("init")[0] == 0
    code, _, err = gos("user", "add", "ann@acme.test", "--lasting")
    assert (code, "add --password-stdin" in err) == (1, True)
    with pytest.raises(SystemExit):
        gos("user", "password", "admin", "--generate", "--lasting")
    assert "ann@acme.test" not in gos("user", "list")[1]


def test_a_deleted_demo_stays_deleted_and_the_appliance_starts(gos: Init) -> None:
    assert gos("init")[0] == 0
    assert gos("tenant", "delete", "demo", "--yes")[0] == 0
    for _ in range(2):
        assert gos("init") == (0, "", "")
    assert gos("tenant", "list")[1] == "none\n"


@pytest.mark.parametrize("last", ["insert_user", "write_private"])
def test_an_interrupted_run_is_completed_by_the_next(gos: Init, data: Path, monkeypatch: pytest.MonkeyPatch, last: str) -> None:
    """As if killed at that point: nothing has been committed."""

    def cut(*_: object, **__: object) -> NoReturn:
        raise KeyboardInterrupt

    owner = setup if last == "write_private" else people
    with monkeypatch.context() as patched:
        patched.setattr(owner, last, cut)
        assert gos("init")[0] == 130
    assert gos("tenant", "list")[1] == "none\n"
    assert gos("init")[0] == 0
    assert is_complete(gos, data)


def test_an_interrupted_run_of_an_earlier_release_is_completed(gos: Init, data: Path) -> None:
    """That release committed the tenant alone and then considered the setup complete."""
    assert gos("tenant", "add", "demo", "--name", "Demo")[0] == 0
    assert gos("init")[0] == 0
    assert is_complete(gos, data)


@pytest.mark.parametrize("first", ["key add --name n", "user add ann@acme.test"])
def test_an_appliance_in_use_gets_no_demo(gos: Init, data: Path, first: str) -> None:
    assert gos("tenant", "add", "acme")[0] == 0
    assert gos(*first.split(), "--tenant", "acme")[0] == 0
    assert gos("init") == (0, "", "")
    assert not (data / "first-run.json").exists()


def test_an_unreadable_first_run_file_does_not_prevent_the_start(gos: Init, data: Path) -> None:
    assert gos("init")[0] == 0
    (data / "first-run.json").write_text('{"base_url": ')
    code, out, _ = gos("init")
    assert (code, "cannot be read; delete it" in out) == (0, True)
