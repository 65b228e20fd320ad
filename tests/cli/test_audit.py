"""`gos audit`: trails are verified and exported from the shell, also while the appliance runs."""

import json
import re
import subprocess
from pathlib import Path

import pytest

from appliance.core.database import db
from tests.architecture.source_tree import ROOT
from tests.cli.test_store import Gos, acme, data, gos

__all__ = ["acme", "gos"]


def test_trails_are_verified_and_exported(gos: Gos, acme: str, tmp_path: Path) -> None:
    assert gos("tenant", "add", "globex")[0] == 0
    assert gos("key", "add", "--tenant", acme, "--name", "mine")[0] == 0
    intact = {"state": "intact", "broken_at": None, "reason": None}
    row = {"tenant": acme, **intact, "entries": 1, "first": 1, "last": 1}
    assert data(gos("audit", "verify", "--tenant", acme, "--json")) == [row]
    assert {each["tenant"] for each in data(gos("audit", "verify", "--json"))} == {"@appliance", acme, "globex"}

    code, exported, _ = gos("audit", "export", "--tenant", acme)
    assert (code, exported.count("\n")) == (0, 2), "the entry and its signature"
    (signed_nothing,) = gos("audit", "export", "--tenant", acme, "--until", "2026-01-01T00:00:00Z")[1].splitlines()
    assert json.loads(signed_nothing)["entries"] == 0
    file = tmp_path / "trail.ndjson"
    file.write_text(exported)
    assert data(gos("audit", "verify", "--file", str(file), "--json"))[0]["state"] == "intact"
    file.write_text(exported.replace("key.issue", "key.other"))
    assert gos("audit", "verify", "--file", str(file))[0] == 1

    db.open_database(f"sqlite:///{tmp_path / 'data' / 'gos.db'}")
    try:
        db.write(lambda: db.execute("DELETE FROM audit_entry WHERE tenant_id = ?", (acme,)))
    finally:
        db.close_database()
    code, out, _ = gos("audit", "verify")
    assert code == 1
    assert "broken" in out
    assert "entries up to 1 are missing" in out


@pytest.fixture
def exported(gos: Gos, acme: str, tmp_path: Path) -> Path:
    """The signed export of a trail with three entries, beside the public key."""
    for number in range(3):
        assert gos("key", "add", "--tenant", acme, "--name", f"key {number}")[0] == 0
    file = tmp_path / "trail.ndjson"
    file.write_text(gos("audit", "export", "--tenant", acme)[1])
    (tmp_path / "audit-keys.pem").write_text(gos("audit", "key")[1])
    return file


def test_a_file_says_by_which_key_it_is_signed(
    gos: Gos, exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (key,) = data(gos("audit", "key", "--json"))
    verify = ("audit", "verify", "--file", str(exported), "--json")
    (row,) = data(gos(*verify))
    assert (row["state"], row["entries"], row["signed_by"], row["key_of"]) == ("intact", 3, key["fingerprint"], "this appliance")
    assert gos("audit", "key", "--rotate")[0] == 0
    assert [each["retired_at"] is None for each in data(gos("audit", "key", "--json"))] == [True, False]
    assert gos("audit", "key", key["fingerprint"])[1] == key["public_key"]
    assert data(gos(*verify))[0]["signed_by"] == key["fingerprint"], "the earlier public key is still there"

    trusted = str(tmp_path / "audit-keys.pem")
    monkeypatch.setenv("GOS_DATA", str(tmp_path / "auditor"))
    (row,) = data(gos(*verify, "--key", trusted))
    assert (row["state"], row["signed_by"], row["key_of"]) == ("intact", key["fingerprint"], trusted)
    assert gos(*verify)[0] == 1, "there is neither an appliance nor a key"
    assert data(gos(*verify, "--unsigned"))[0]["state"] == "intact"
    assert gos("init")[0] == 0
    code, out, _ = gos(*verify)
    assert (code, json.loads(out)[0]["state"]) == (1, "broken")
    assert "is signed with another key" in json.loads(out)[0]["reason"]


def test_an_empty_file_is_named_as_such(gos: Gos, exported: Path) -> None:
    """As after an export whose disk was full."""
    exported.write_text("")
    code, out, _ = gos("audit", "verify", "--file", str(exported), "--json")
    (row,) = json.loads(out)
    assert (code, row["state"], row["reason"]) == (1, "unsigned", "the file is empty")


def test_a_file_without_its_end_is_unsigned(gos: Gos, exported: Path) -> None:
    lines = exported.read_text().splitlines(keepends=True)
    exported.write_text("".join(lines[:-1]))
    code, out, _ = gos("audit", "verify", "--file", str(exported), "--json")
    (row,) = json.loads(out)
    assert (code, row["state"], row["reason"]) == (1, "unsigned", "no signature covers the last 3 entries")
    assert gos("audit", "verify", "--file", str(exported), "--unsigned")[0] == 0


def test_the_commands_of_the_page_detect_tampering(gos: Gos, exported: Path, tmp_path: Path) -> None:
    """Those of docs/signed-trails.md, as they are there."""
    page = (ROOT / "docs" / "signed-trails.md").read_text("utf8")
    match = re.search(r"```sh\n(cd ~\n.*?openssl pkeyutl.*?)```", page, re.DOTALL)
    assert match is not None
    command = ["bash", "-euo", "pipefail", "-c", match[1]]

    def run() -> "subprocess.CompletedProcess[str]":
        environment = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    done = run()
    assert (done.returncode, "Signature Verified Successfully" in done.stdout) == (0, True), done.stderr
    content = exported.read_text()
    lines = content.splitlines(keepends=True)
    for changed in (content.replace("key 1", "key 7"), "".join(lines[1:]), "".join([*lines[:2], lines[3]]), "".join(lines[:3])):
        exported.write_text(changed)
        assert run().returncode != 0, changed
    exported.write_text(content)
    assert gos("audit", "key", "--rotate")[0] == 0
    (tmp_path / "audit-keys.pem").write_text(gos("audit", "key")[1])
    assert run().returncode != 0, "the current key is another"


def test_what_is_not_there_is_named(gos: Gos, acme: str, tmp_path: Path) -> None:
    for argv in (("verify", "--tenant", "nobody"), ("export", "--tenant", "nobody")):
        code, _, errors = gos("audit", *argv)
        assert (code, errors) == (1, "gos: there is no tenant 'nobody'\n")
    code, _, errors = gos("audit", "verify", "--file", str(tmp_path / "none"))
    assert code == 1
    assert "cannot read" in errors
    code, _, errors = gos("audit", "verify", "--unsigned")
    assert (code, errors) == (1, "gos: --key and --unsigned are about a file; name it with --file\n")
    code, _, errors = gos("audit", "key", "00")
    assert (code, errors) == (1, "gos: there is no key '00' here; `gos audit key` lists all\n")
    code, _, errors = gos("audit", "export", "--tenant", acme, "--since", "yesterday")
    assert code != 0
    assert "'yesterday' is not an RFC 3339 time" in errors
