"""The playbook of docs/operations.md is run by Ansible as an operator would: it makes what it says, and nothing a second time."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from appliance.core import clock
from appliance.core.database import db
from appliance.testing.running import Running
from tests.operations.conftest import issue
from tests.operations.test_operating import BASE, data, entries

DOCS = Path(__file__).parents[2] / "docs"
ANSIBLE = Path(sys.executable).with_name("ansible-playbook")


@pytest.fixture
def playbook(tmp_path: Path) -> Path:
    return write_example("operations.md", "## Ansible", tmp_path / "shop.yml")


def write_example(page: str, heading: str, path: Path) -> Path:
    """Write the first example in YAML below a heading of the page to a file."""
    path.write_text((DOCS / page).read_text().partition(heading)[2].partition("```yaml\n")[2].partition("```")[0])
    return path


def run(playbook: Path, live: Running, key: str, **variables: str) -> tuple[int, dict[str, Any], str]:
    """The exit code, the numbers of Ansible's recap for this machine, and the whole output."""
    environment = {
        "PATH": os.environ["PATH"], "HOME": str(playbook.parent), "LC_ALL": "C.UTF-8", "GOS_KEY": key, "ANSIBLE_NOCOLOR": "1",
        "ANSIBLE_STDOUT_CALLBACK": "ansible.builtin.default", "ANSIBLE_LOCALHOST_WARNING": "false",
        "ANSIBLE_PYTHON_INTERPRETER": sys.executable,
    }  # fmt: skip
    where = json.dumps({"appliance": f"http://localhost:{live.config.server.port}", **variables})
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


def test_a_provider_always_has_a_token_that_lasts(live: Running, operator: httpx.Client, tmp_path: Path) -> None:
    playbook = write_example("scim.md", "## Issue tokens by REST", tmp_path / "scim.yml")
    key, file = issue(live, "appliance.read", "appliance.scim"), tmp_path / "token"
    db.write(lambda: db.execute("DELETE FROM scim_token"))

    def play() -> tuple[int, int, int]:
        code, recap, output = run(playbook, live, key, token_file=str(file))
        assert (code, recap["failed"], "gos_scim_" in output) == (0, 0, False), output
        return recap["changed"], recap["skipped"], len(data(operator.get(f"{BASE}/scim-tokens")))

    assert play() == (2, 0, 1)
    with live.client("localhost", {"Authorization": f"Bearer {file.read_text()}"}) as client:
        assert client.get("/scim/v2/Users").status_code == 200
    assert (play(), file.stat().st_mode & 0o777) == ((0, 2, 1), 0o600)
    db.write(lambda: db.execute("UPDATE scim_token SET expires_at = ?", (clock.now_ms() + 29 * 86_400_000,)))
    assert play() == (2, 0, 2), "the last one ends within a month"
    db.write(lambda: db.execute("UPDATE scim_token SET expires_at = NULL"))
    assert play() == (0, 2, 2)
