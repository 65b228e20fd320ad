"""A connector begun by `gos connector new` is green at once, and the suite notices what is broken in it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from appliance.cli import main


def run(*args: str | Path) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "appliance", "connector", *map(str, args)]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture
def begun(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    assert main(["connector", "new", "stock-room", "--in", str(tmp_path)]) == 0
    assert "gos connector test" in capsys.readouterr().out
    return tmp_path / "gos-connector-stock-room"


def test_a_new_connector_is_green_at_once(begun: Path, tmp_path: Path) -> None:
    done = run("test", begun, "--junit", tmp_path / "report.xml")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "19 passed" in done.stdout
    assert (tmp_path / "report.xml").read_text().count("<testcase") == 19


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("raise AuthError(", "raise Rejected("),
        ('{"id": "1"},\n        )', '{"no": "1"},\n        )'),
        ('("Idempotency-Key", ctx.idempotency_key),', ""),
    ],
)
def test_what_is_broken_in_it_is_noticed(begun: Path, right: str, wrong: str) -> None:
    code = begun / "src/gos_connector_stock_room/connector.py"
    assert right in code.read_text()
    code.write_text(code.read_text().replace(right, wrong, 1))
    done = run("test", begun)
    assert (done.returncode, "failed" in done.stdout) == (1, True)


def test_nothing_is_overwritten(begun: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (begun / "README.md").write_text("mine")
    assert main(["connector", "new", "stock-room", "--in", str(tmp_path)]) == 1
    assert "is there already" in capsys.readouterr().err
    assert (begun / "README.md").read_text() == "mine"


@pytest.mark.parametrize("name", ["", "Stock", "a--b", "-a", "a_b", "../a", "class", "x" * 41])
def test_a_name_that_cannot_be_is_refused(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["connector", "new", "--in", str(tmp_path), "--", name]) == 1
    assert "cannot be the name of a connector" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_folder_without_a_package_is_told_what_it_lacks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["connector", "test", str(tmp_path)]) == 1
    assert "gos connector new" in capsys.readouterr().err


def test_the_list_names_what_is_installed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["connector", "list", "--json"]) == 0
    listed = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert (listed["http"]["triggers"], listed["postgresql"]["title"], listed["mysql"]["problem"]) == (1, "PostgreSQL", None)
