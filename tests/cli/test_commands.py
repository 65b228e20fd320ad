"""Each command is registered by its name, and simple commands load few modules."""

import argparse
import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from appliance import cli

# Loading these would cost every call half a second or more.
HEAVY = {"appliance.app.composition", "appliance.solutions.service", "pydantic_ai", "mcp", "quart"}
LOADED = """
import json, sys
from appliance.cli import main
try:
    code = main(sys.argv[1:])
except SystemExit as ended:
    code = ended.code
print(json.dumps([code, [name for name in sys.modules if name in %r]]))
"""


def test_every_command_is_listed_with_the_module_that_registers_it() -> None:
    registered = {}
    for module in set(cli.MODULES.values()):
        commands = argparse.ArgumentParser().add_subparsers()
        import_module(f"appliance.cli.{module}").add_commands(commands)
        registered.update(dict.fromkeys((each.partition(" ")[0] for each in commands.choices), module))
    assert registered == dict(cli.MODULES)


@pytest.mark.parametrize("line", ["--version", "key list --help", "--data test tenant add acme", "tenant reset --help"])
def test_a_command_on_the_store_loads_neither_edges_nor_models(tmp_path: Path, line: str) -> None:
    command = [sys.executable, "-c", LOADED % HEAVY, *line.split()]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert json.loads(ran.stdout.splitlines()[-1]) == [0, []], ran.stderr


def test_finding_the_texts_of_the_pages_loads_no_page(tmp_path: Path) -> None:
    code = f"import sys, appliance.console.extraction; print([name for name in sys.modules if name in {HEAVY!r}])"
    ran = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"


def test_an_unknown_variable_causes_one_warning_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOS_SERVICE_HOST", "10.0.0.1")
    command = [sys.executable, "-m", "appliance", "--data", str(tmp_path), "config", "check"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout.startswith("valid:"), len(ran.stderr.splitlines())) == (0, True, 1)
    assert ran.stderr.startswith("gos: warning: the variable GOS_SERVICE_HOST is not a setting")


def test_an_unknown_command_lists_the_valid_ones(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["frobnicate"])
    assert ended.value.code == 2
    errors = capsys.readouterr().err
    assert all(f"'{name}'" in errors for name in cli.MODULES), errors
