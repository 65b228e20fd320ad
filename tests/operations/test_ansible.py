"""The playbook of docs/operations.md is run by Ansible as an operator would: it makes what it says, and nothing a second time."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from appliance.testing.running import Running
from tests.operations.conftest import issue
from tests.operations.test_operating import BASE, data, entries

PAGE = Path(__file__).parents[2] / "docs" / "operations.md"
ANSIBLE = Path(sys.executable).with_name("ansible-playbook")


@pytest.fixture
def playbook(tmp_path: Path) -> Path:
    example = PAGE.read_text().partition("## Ansible")[2].partition("```yaml\n")[2].partition("```")[0]
    (tmp_path / "shop.yml").write_text(example)
    return tmp_path / "shop.yml"


def run(playbook: Path, live: Running, key: str) -> tuple[int, dict[str, Any], str]:
    """The exit code, the numbers of Ansible's recap for this machine, and the whole output."""
    environment = {
        "PATH": os.environ["PATH"], "HOME": str(playbook.parent), "LC_ALL": "C.UTF-8", "GOS_KEY": key, "ANSIBLE_NOCOLOR": "1",
        "ANSIBLE_STDOUT_CALLBACK": "ansible.builtin.default", "ANSIBLE_LOCALHOST_WARNING": "false",
        "ANSIBLE_PYTHON_INTERPRETER": sys.executable,
    }  # fmt: skip
    where = json.dumps({"appliance": f"http://localhost:{live.config.server.port}"})
    line: list[str | Path] = [ANSIBLE, "-i", "localhost,", "-e", where, playbook]
    done = subprocess.run(line, env=environment, capture_output=True, text=True, check=False)
    recap = next(line for line in done.stdout.splitlines() if line.startswith("localhost  "))
    numbers = {name: int(count) for name, _, count in (each.partition("=") for each in recap.partition(":")[2].split())}
    return done.returncode, numbers, done.stdout + done.stderr


def test_the_playbook_makes_what_it_says_and_changes_nothing_twice(live: Running, operator: httpx.Client, playbook: Path) -> None:
    key = issue(live)
    code, recap, output = run(playbook, live, key)
    assert (code, recap["changed"], recap["failed"]) == (0, 4, 0), output
    assert data(operator.get(f"{BASE}/tenants/shop"))["name"] == "The shop"
    limits = {each["name"]: each.get("limit") for each in data(operator.get(f"{BASE}/tenants/shop/quotas"))}
    (ann,) = data(operator.get(f"{BASE}/users", params={"login": "ann@shop.example"}))
    assert (limits["entities"], ann["memberships"]) == (20_000, [{"tenant_id": "shop", "role": "owner"}])

    before = len(entries(operator))
    code, recap, output = run(playbook, live, key)
    assert (code, recap["changed"], recap["failed"]) == (0, 0, 0), output
    assert len(entries(operator)) == before, "a second run is in the trail"


def test_ansible_says_why_a_key_is_not_accepted(live: Running, playbook: Path) -> None:
    code, recap, output = run(playbook, live, issue(live, "appliance.read"))
    assert (code, recap["failed"]) == (2, 1)
    assert "appliance.tenants" in output, "the scope that the key lacks is not named"
