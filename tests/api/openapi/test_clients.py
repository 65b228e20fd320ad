"""Clients that are generated from the OpenAPI document compile, and work against a running appliance."""

import compileall
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from appliance.api.frame.openapi import document
from tests.api.openapi.contract_packages import fetch_contract_packages
from tests.api.resources import Resources
from tests.npm_packages import Packages

SOURCES = Path(__file__).with_name("clients")
PASSED = "smoke test passed"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the document and what calls the clients."""
    folder = tmp_path_factory.mktemp("clients")
    for source in SOURCES.iterdir():
        if source.is_file():
            shutil.copy(source, folder)
    (folder / "openapi.json").write_text(json.dumps(document("https://acme.gos.example")), "utf-8")
    (folder / "package.json").write_text('{"type": "module"}', "utf-8")
    return folder


def arguments(tenant: Resources) -> list[str]:
    """What the smoke tests need: where the appliance is, a key, a process and a collection."""
    client = tenant.client
    base_url = str(client.base_url).rstrip("/")
    return [base_url, client.headers["host"], client.headers["x-api-key"], tenant.process(), tenant.collection()]


def run(command: list[str], folder: Path) -> str:
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def test_a_python_client_compiles_and_works(ours: Resources, folder: Path) -> None:
    generate = ["generate", "--path", "openapi.json", "--output-path", "gos_client", "--meta", "none", "--config", "python.yaml"]
    run([sys.executable, "-m", "openapi_python_client", *generate, "--fail-on-warning"], folder)
    assert compileall.compile_dir(folder / "gos_client", quiet=1)
    assert PASSED in run([sys.executable, "smoke.py", *arguments(ours)], folder)


@pytest.fixture(scope="module")
def packages(folder: Path) -> Packages:
    """The generator and compiler; the folder's programs find the modules there."""
    packages = fetch_contract_packages()
    (folder / "node_modules").symlink_to(packages.modules)
    return packages


def test_a_typescript_client_compiles_and_works(ours: Resources, folder: Path, packages: Packages) -> None:
    generator, compiler = (packages.modules / path for path in ("openapi-typescript/bin/cli.js", "typescript/bin/tsc"))
    run([packages.node, str(generator), "openapi.json", "-o", "schema.d.ts"], folder)
    run([packages.node, str(compiler), "--project", "tsconfig.json"], folder)
    assert PASSED in run([packages.node, "smoke.js", *arguments(ours)], folder)
