"""The examples of docs/sign-in.md, docs/directories.md and docs/second-factor.md are valid configurations."""

import re
from pathlib import Path

import pytest

from appliance.core.config import load_config
from tests.architecture.source_tree import ROOT


def examples_in(page: str) -> list[str]:
    return re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / page).read_text("utf8"), re.DOTALL)


@pytest.mark.parametrize("example", examples_in("sign-in.md"))
def test_an_example_is_valid(example: str, tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(example)
    assert load_config(file, environment={}).sign_in.providers


@pytest.mark.parametrize("example", examples_in("directories.md"))
def test_an_example_of_directories_is_valid(example: str, tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(example)
    assert load_config(file, environment={}).sign_in.directories


@pytest.mark.parametrize("example", examples_in("trusted-header.md"))
def test_an_example_of_trusted_headers_is_valid(example: str, tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(example)
    assert load_config(file, environment={}).sign_in.trusted_headers


@pytest.mark.parametrize("example", examples_in("second-factor.md"))
def test_an_example_of_second_factors_is_valid(example: str, tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(example)
    assert load_config(file, environment={}).second_factor.required_for
