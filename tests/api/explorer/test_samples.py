"""The explorer's code samples: each is valid in its language and reads its key from the environment; some are run."""

import ast
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from appliance.sandbox import Program
from appliance.testing.running import Running
from tests.architecture.source_tree import ROOT
from tests.npm_packages import find_node

LIST = """
import { readFileSync } from "node:fs";
const { sample } = await import("./samples.mjs");
const contract = JSON.parse(readFileSync("openapi.json", "utf8"));
const write = (path, method) => Object.fromEntries(
  ["curl", "python", "typescript", "php"].map((name) => [name, sample(contract, path, method, name)]));
const samples = Object.entries(contract.paths).flatMap(([path, item]) =>
  Object.entries(item).map(([method, { operationId }]) => [operationId, write(path, method)]));
process.stdout.write(JSON.stringify(Object.fromEntries(samples)));
"""
CHECK = """
import { readFileSync } from "node:fs";
import { SourceTextModule } from "node:vm";
for (const [name, text] of Object.entries(JSON.parse(readFileSync("samples.json", "utf8")))) {
  try { new SourceTextModule(text); } catch (error) { throw new Error(`${name}: ${error}\\n${text}`); }
}
"""
SECONDS = 60
RUN = [
    *("get_tenant", "list_processes", "create_collection", "put_folder_rule", "evaluate_policies", "open_upload"),
    "export_solution",
]
"""Operations whose samples run: without and with a body, and one whose answer is a file."""


def node(folder: Path, script: str, *options: str) -> str:
    (folder / "script.mjs").write_text(script, "utf8")
    command = [find_node(), "--no-warnings", *options, "script.mjs"]
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.fixture
def samples(running: Running, tmp_path: Path) -> dict[str, dict[str, str]]:
    """The samples of every operation, by language. The base host, as Python and Node do not resolve the tenants' on `localhost`."""
    with running.client("localhost") as client:
        (tmp_path / "openapi.json").write_bytes(client.get("/api-docs/openapi.json").content)
    shutil.copyfile(ROOT / "ui/static/docs/samples.js", tmp_path / "samples.mjs")
    samples: dict[str, dict[str, str]] = json.loads(node(tmp_path, LIST))
    return samples


def test_every_operation_has_valid_samples(samples: dict[str, dict[str, str]], running: Running, tmp_path: Path) -> None:
    assert len(samples) > 200
    for name, texts in samples.items():
        assert all("GOS_API_KEY" in text for text in texts.values()), name
        ast.parse(texts["python"], filename=name)
    (tmp_path / "samples.json").write_text(json.dumps({name: texts["typescript"] for name, texts in samples.items()}), "utf8")
    node(tmp_path, CHECK, "--experimental-vm-modules")
    (tmp_path / "samples.sh").write_text("\n".join(texts["curl"] for texts in samples.values()), "utf8")
    subprocess.run(["bash", "-n", "samples.sh"], cwd=tmp_path, check=True, timeout=SECONDS)
    files = {f"lib/{name}.php": texts["php"] for name, texts in samples.items()}
    program = Program("php", "steps/step.php", {"steps/step.php": "<?php\nreturn fn () => 1;\n", **files})
    assert running.services.sandbox.compile(program) == []


def run(language: str, text: str, folder: Path, key: str) -> subprocess.CompletedProcess[str]:
    suffix, command = {
        "curl": ("sh", ["bash"]),
        "python": ("py", [sys.executable]),
        "typescript": ("mjs", [find_node()]),
        "php": ("php", ["php"]),
    }[language]
    (folder / f"sample.{suffix}").write_text(text, "utf8")
    environment = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    return subprocess.run(
        [*command, f"sample.{suffix}"],
        cwd=folder, env={**environment, "GOS_API_KEY": key}, capture_output=True, text=True, timeout=SECONDS, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("language", ["curl", "python", "typescript", "php"])
def test_samples_run(language: str, samples: dict[str, dict[str, str]], running: Running, tmp_path: Path) -> None:
    key = running.key(f"samples-{language}")  # a tenant of its own, because every language creates the same
    for name in RUN:
        result = run(language, samples[name][language], tmp_path, key)
        assert result.returncode == 0, (name, result.stdout, result.stderr)
        if name == "export_solution":
            assert (tmp_path / "archive.zip").read_bytes().startswith(b"PK")
        else:
            assert "request_id" in result.stdout, (name, result.stdout, result.stderr)
    with running.api(f"samples-{language}") as client:
        assert len(client.get("/api/v1/datapool").json()["data"]) == 1
        assert len(client.get("/api/v1/documents/folder-rules").json()["data"]) == 1


def test_a_sample_fails_without_a_key(samples: dict[str, dict[str, str]], tmp_path: Path) -> None:
    for language in ("curl", "python", "typescript"):
        result = run(language, samples["get_tenant"][language], tmp_path, "")
        assert (language, result.returncode != 0) == (language, True)
