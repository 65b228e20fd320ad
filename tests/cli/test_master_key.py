"""`gos master-key`: what an administrator types to rotate the key, and reads on the way."""

import base64
import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from appliance.app.findings.master_key import master_key_findings
from appliance.app.inspection import inspected_store
from appliance.cli import main
from appliance.core import clock
from appliance.core.crypto import key_id, read_key_file
from appliance.master_key import PICK_UP_MS, RETIRE_MS
from tests.master_key.world import configure, opened, pass_time, reseal

Gos = Callable[..., tuple[int, str, str]]


@pytest.fixture
def gos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Gos:
    monkeypatch.setenv("GOS_DATA", str(tmp_path / "data"))

    def run(*argv: str, stdin: str = "") -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
        return main(list(argv)), *capsys.readouterr()

    return run


def status(gos: Gos) -> Any:
    code, out, errors = gos("master-key", "status", "--json")
    assert code == 0, errors
    return json.loads(out)


def findings(folder: Path) -> list[tuple[str, str]]:
    """What the doctor says; of several sentences the last."""
    config = configure(folder / "data")
    with inspected_store(config):
        return [(level, text.rpartition("; ")[2] if "retire" in text else text) for level, text in master_key_findings(config)]


def test_a_rotation_from_the_first_command_to_the_last(gos: Gos, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gos("tenant", "add", "acme", "--name", "Acme")
    text = gos("key", "add", "--tenant", "acme", "--name", "first", "--quiet")[1]
    gos("secret", "set", "erp", "--tenant", "acme", stdin="a value of a secret")
    (old,) = status(gos)["keys"]
    assert (old["state"], status(gos)["values"]) == ("current", [])
    code, out, _ = gos("master-key", "rotate")
    new = key_id(read_key_file(tmp_path / "data" / "key")[1])
    assert (code, f"the master key {new} is current from" in out, "Make a backup now" in out) == (0, True, True)
    assert [each["state"] for each in status(gos)["keys"]] == ["current", "next"]
    pass_time(monkeypatch, PICK_UP_MS)
    assert status(gos)["values"] == [{"column": "secret.sealed", "key": old["id"], "values": 1}]
    pass_time(monkeypatch, RETIRE_MS)
    assert findings(tmp_path)[0][1].startswith(f"1 values are not sealed with the master key {new}")
    code, _, errors = gos("master-key", "retire")
    assert (code, "needed by 1 values (secret.sealed: 1)" in errors) == (1, True)
    with opened(configure(tmp_path / "data")) as sealer:
        reseal(sealer)
    assert "all values are sealed with the current key" in gos("master-key", "status")[1]
    assert findings(tmp_path) == [("note", f"retire {old['id']} with gos master-key retire")]
    assert gos("master-key", "retire")[:2] == (0, f"retired: {old['id']}; nothing is sealed with it any more\n")
    assert [key_id(key) for key in read_key_file(tmp_path / "data" / "key")] == [new]
    assert findings(tmp_path) == [("ok", f"all values are sealed with the master key {new} (master_key.source: file)")]
    assert gos("master-key", "retire")[1] == "there is no earlier master key\n"
    assert "master_key.rotate" in gos("audit", "export", "--tenant", "acme")[1]
    with opened(configure(tmp_path / "data")) as sealer:
        from appliance.tenants.keys import keys

        caller = keys.authenticate_key(sealer, text.strip(), tenant_id="acme", address="127.0.0.1", request_id="r")
        assert caller is not None
    assert clock.now_ms() > 0


def test_a_key_from_elsewhere_is_rotated_there(gos: Gos, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = (base64.b64encode(bytes([number]) * 32).decode() for number in (1, 2))
    monkeypatch.setenv("GOS_MASTER_KEY_SOURCE", "environment")
    monkeypatch.setenv("GOS_MASTER_KEY", first)
    assert gos("tenant", "add", "acme", "--name", "Acme")[0] == 0
    assert not (tmp_path / "data" / "key").exists()
    for what in ("add", "rotate"):
        code, _, errors = gos("master-key", what)
        assert (code, "add" in errors, "on a line of its own" in errors) == (1, True, True)
    monkeypatch.setenv("GOS_MASTER_KEY", f"{second}\n{first}")
    assert status(gos)["keys"][0]["state"] == "current"
    assert gos("master-key", "rotate")[0] == 0
    pass_time(monkeypatch, PICK_UP_MS + RETIRE_MS)
    code, out, _ = gos("master-key", "retire")
    assert (code, out.endswith("; remove it from its source\n")) == (0, True)
    monkeypatch.setenv("GOS_MASTER_KEY", second)
    assert [each["state"] for each in status(gos)["keys"]] == ["retired", "current"]
    monkeypatch.setenv("GOS_MASTER_KEY", first)
    code, _, errors = gos("tenant", "list")
    assert (code, "but the variable GOS_MASTER_KEY has" in errors) == (1, True)
