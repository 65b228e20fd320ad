"""Redocly's and Spectral's strictest rules for OpenAPI documents have nothing to say about ours."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from appliance.api.frame.openapi import document
from tests.api.openapi.contract_packages import fetch_contract_packages
from tests.npm_packages import Packages

REDOCLY = "@redocly/cli/bin/cli.js"
SPECTRAL = "@stoplight/spectral-cli/dist/index.js"
QUIET = {**os.environ, "REDOCLY_TELEMETRY": "off", "REDOCLY_SUPPRESS_UPDATE_NOTICE": "true", "NO_COLOR": "1"}


@pytest.fixture(scope="module")
def packages() -> Packages:
    return fetch_contract_packages()


@pytest.fixture(scope="module")
def contract() -> dict[str, Any]:
    return document("https://acme.gos.example")


def write(folder: Path, contract: dict[str, Any]) -> Path:
    path = folder / "openapi.json"
    path.write_text(json.dumps(contract), "utf-8")
    return path


def redocly_problems(packages: Packages, path: Path) -> list[str]:
    config = path.with_name("redocly.yaml")
    config.write_text("extends: [recommended-strict]\n", "utf-8")
    options = ("--config", str(config), "--format", "json", "--max-problems", "999")
    result = packages.run(REDOCLY, "lint", str(path), *options, env=QUIET)
    report = json.loads(result.stdout)
    assert report["totals"]["ignored"] == 0
    return [f"{each['ruleId']}: {each['message']} {each['location'][0]['pointer']}" for each in report["problems"]]


def spectral_problems(packages: Packages, path: Path) -> list[str]:
    rules = path.with_name("spectral.yaml")
    rules.write_text('extends: ["spectral:oas"]\n', "utf-8")
    result = packages.run(SPECTRAL, "lint", str(path), "--ruleset", str(rules), "--format", "json", "--quiet", env=QUIET)
    return [f"{each['code']}: {each['message']} {'/'.join(each['path'])}" for each in json.loads(result.stdout)]


def test_redocly_has_no_findings(packages: Packages, contract: dict[str, Any], tmp_path: Path) -> None:
    assert redocly_problems(packages, write(tmp_path, contract)) == []


def test_spectral_has_no_findings(packages: Packages, contract: dict[str, Any], tmp_path: Path) -> None:
    assert spectral_problems(packages, write(tmp_path, contract)) == []


def test_a_wrong_example_is_found_by_both(packages: Packages, contract: dict[str, Any], tmp_path: Path) -> None:
    wrong = json.loads(json.dumps(contract))
    path = wrong["paths"]["/api/v1/tenant"]
    wrong["paths"] = {"/api/v1/tenant": path}
    path["get"]["responses"]["200"]["content"]["application/json"]["example"]["success"] = "perhaps"
    file = write(tmp_path, wrong)
    assert any(each.startswith("no-invalid-media-type-examples") for each in redocly_problems(packages, file))
    assert any(each.startswith("oas3-valid-media-example") for each in spectral_problems(packages, file))
