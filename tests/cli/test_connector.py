"""A connector created by `gos connector new` passes its tests at once, and the suite notices defects."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from appliance.cli import main
from appliance.connectors.testing import LoopbackServer
from appliance.core import yaml12
from appliance.tenants import is_secret_name


def run(*args: str | Path) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "appliance", "connector", *map(str, args)]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture
def package(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    assert main(["connector", "new", "stock-room", "--in", str(tmp_path)]) == 0
    assert "gos connector test" in capsys.readouterr().out
    return tmp_path / "gos-connector-stock-room"


def test_a_new_connector_is_green_at_once(package: Path, tmp_path: Path) -> None:
    done = run("test", package, "--junit", tmp_path / "report.xml")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "27 passed" in done.stdout
    assert (tmp_path / "report.xml").read_text().count("<testcase") == 27


def test_its_readme_names_a_secret_that_can_be_set(package: Path) -> None:
    example = (package / "README.md").read_text("utf-8").split("```yaml\n", 1)[1].split("```", 1)[0]
    token = yaml12.load(example)["settings"]["token"]
    assert is_secret_name(token.removeprefix("= secrets.")), token


def test_its_stand_in_prints_its_url(package: Path) -> None:
    command = [sys.executable, str(package / "tests/stand_in.py")]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as stand_in:
        try:
            assert stand_in.stdout is not None
            url, token = stand_in.stdout.readline().strip().split(" with the token ")
            assert httpx.get(f"{url}/items/1", headers={"Authorization": f"Bearer {token}"}).json()["name"] == "one"
        finally:
            stand_in.kill()


def test_its_tests_notice_defects(package: Path) -> None:
    """Each defect fails different tests, so all can be made at once."""
    broken = {
        ("raise status_error(", 'raise Rejected("no") if answer.status == 401 else status_error('): {
            "TestContract::test_wrong_credentials_are_an_auth_error"
        },
        ('{"id": "1"},\n        )', '{"no": "1"},\n        )'): {
            "TestContract::test_it_is_declared_well",
            "TestContract::test_samples_run_and_their_output_is_valid",
            "TestContract::test_a_system_that_asks_for_patience_is_rate_limited",
            "TestContract::test_a_silent_system_costs_the_deadline_and_no_more",
            *(f"TestContract::test_no_secret_is_said[{status}]" for status in (200, 400, 401, 500)),
        },
        ('("Idempotency-Key", ctx.idempotency_key),', ""): {"test_the_idempotency_key_goes_along"},
    }
    code = package / "src/gos_connector_stock_room/connector.py"
    for right, wrong in broken:
        assert right in code.read_text()
        code.write_text(code.read_text().replace(right, wrong, 1))
    done = run("test", package)
    failed = set(re.findall(r"^FAILED tests/\w+\.py::(\S+)", done.stdout, re.MULTILINE))
    assert (done.returncode, failed) == (1, set().union(*broken.values())), done.stdout


def test_nothing_is_overwritten(package: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (package / "README.md").write_text("mine")
    assert main(["connector", "new", "stock-room", "--in", str(tmp_path)]) == 1
    assert "is there already" in capsys.readouterr().err
    assert (package / "README.md").read_text() == "mine"


@pytest.mark.parametrize("name", ["", "Stock", "a--b", "-a", "a_b", "../a", "class", "x" * 41])
def test_an_invalid_name_is_refused(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["connector", "new", "--in", str(tmp_path), "--", name]) == 1
    assert "cannot be the name of a connector" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_folder_without_a_package_is_refused_with_a_hint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["connector", "test", str(tmp_path)]) == 1
    assert "gos connector new" in capsys.readouterr().err


def test_the_list_names_what_is_installed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["connector", "list", "--json"]) == 0
    listed = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert (listed["http"]["triggers"], listed["postgresql"]["title"], listed["mysql"]["problem"]) == (1, "PostgreSQL", None)


def test_a_release_keeps_what_the_last_one_promised(package: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = package / "src/gos_connector_stock_room/connector.py"
    code.write_text(code.read_text().replace('["id", "name"]', '["id"]'))
    done = run("test", package)
    problem = "no longer promises name. Keep it, or release a new major version."
    assert (done.returncode, problem in done.stdout) == (1, True), done.stdout
    assert "write declaration.json anew: gos connector declare" in done.stdout
    assert main(["connector", "declare", str(package)]) == 0
    assert "the next release is checked against it" in capsys.readouterr().out
    declared = json.loads((package / "declaration.json").read_text())
    assert declared["actions"]["find_item"]["output"]["required"] == ["id"]


STOCK = """
connector: stock-room
title: Stock room
version: 1.0.0
settings:
  type: object
  required: [base_url, token]
  properties:
    base_url: {type: string, secret_target: true}
    token: {type: string, secret: true}
base_url: "{{ settings.base_url }}"
auth: {kind: query, name: key, value: "{{ settings.token }}"}
check: {request: {path: /me}, message: "It answers {{ answer.name }}."}
actions:
  find_item:
    summary: Read one item
    effect: read
    input: {type: object, required: [id], properties: {id: {type: string}}}
    output: {type: object, required: [name], properties: {name: {type: string}}}
    sample: {id: "1"}
    request: {path: "/items/{{ input.id }}"}
"""


def test_a_yaml_file_is_recorded_once_and_tested_on_its_recording(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "stock-room.yaml"
    file.write_text(STOCK)
    assert main(["connector", "test", str(file)]) == 1
    assert "CONNECTOR_SETTINGS_STOCK_ROOM=" in capsys.readouterr().err
    server = LoopbackServer()
    server.answer("/me", 200, b'{"name": "canary-7fe3a1"}')
    server.answer("/items/1", 200, b'{"name": "bolt"}')
    monkeypatch.setenv("CONNECTOR_SETTINGS_STOCK_ROOM", json.dumps({"base_url": server.url, "token": "canary-7fe3a1"}))
    done = run("test", file)
    server.close()
    assert done.returncode == 0, done.stdout + done.stderr
    recording = file.with_suffix(".recording.json").read_text()
    assert ("canary" in recording, "[redacted]" in recording) == (False, True)
    monkeypatch.delenv("CONNECTOR_SETTINGS_STOCK_ROOM")
    assert main(["connector", "declare", str(file)]) == 0
    file.write_text(STOCK.replace("required: [name], ", "").replace("/items/", "/things/"))
    done = run("test", file)
    assert (done.returncode, "no longer promises name" in done.stdout) == (1, True)
    assert "This request is not recorded" in done.stdout
    file.write_text(STOCK.replace("effect: read", "effect: none"))
    assert main(["connector", "test", str(file)]) == 1
    assert "stock-room.yaml, line 17" in capsys.readouterr().err
