"""`gos backup`, `gos restore` and moving tenants, on the command line."""

import io
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from appliance.cli import main
from tests.architecture.source_tree import ROOT
from tests.store.cluster import Cluster

Gos = Callable[..., tuple[int, str, str]]


@pytest.fixture
def gos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Gos:
    """Runs a command on a data folder of its own with `stdin`; answers exit code, output and errors."""
    monkeypatch.setenv("GOS_DATA", str(tmp_path / "data"))

    def run(*argv: str, stdin: str = "") -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
        return main(list(argv)), *capsys.readouterr()

    return run


def test_a_backup_is_created_verified_and_restored(gos: Gos, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert gos("tenant", "add", "acme")[0] == 0
    file, phrase = str(tmp_path / "whole.gosb"), "a long phrase of this test"
    code, out, _ = gos("backup", file, "--passphrase-file", "-", "--json", stdin=f"{phrase}\n")
    assert (code, json.loads(out)["encrypted"]) == (0, True)
    assert "not overwritten" in gos("backup", file)[2]
    assert "passphrase-file" in gos("restore", "--verify", file)[2]
    monkeypatch.setenv("GOS_BACKUP_PASSPHRASE", phrase)
    assert "is complete" in gos("restore", "--verify", file)[1]
    assert "not empty" in gos("restore", file)[2]
    assert "were restored to" in gos("--data", str(tmp_path / "restored"), "restore", file)[1]
    assert "acme" in gos("--data", str(tmp_path / "restored"), "tenant", "list")[1]


def test_an_unencrypted_backup_lists_what_it_omits(gos: Gos, tmp_path: Path) -> None:
    assert "is not the data folder of an appliance" in gos("backup", str(tmp_path / "whole.gosb"))[2]
    assert gos("tenant", "add", "acme")[0] == 0
    code, _, errors = gos("backup", str(tmp_path / "whole.gosb"))
    assert code == 0
    assert "left out because the backup is not encrypted: key" in errors
    (tmp_path / "other").write_text("no backup")
    assert "is not a backup" in gos("restore", "--verify", str(tmp_path / "other"))[2]


def test_a_restore_says_which_settings_stay_and_which_are_missing(gos: Gos, tmp_path: Path) -> None:
    assert gos("tenant", "add", "acme")[0] == 0
    (tmp_path / "data" / "config.yaml").write_text("server: {port: 8443}\n")
    file, key = str(tmp_path / "whole.gosb"), str(tmp_path / "data" / "key")
    assert gos("backup", file)[0] == 0
    out = gos("--data", str(tmp_path / "restored"), "restore", file, "--key", key)[1]
    assert "The backup does not contain the appliance's config.yaml: copy it to" in out
    out = gos("restore", file, "--replace")[1]
    assert "Of the previous data, config.yaml stayed" in out
    assert "8443" in (tmp_path / "data" / "config.yaml").read_text()
    assert gos("tenant", "list")[1].splitlines()[1].startswith("acme")


def test_a_tenant_is_exported_imported_and_reset(gos: Gos, tmp_path: Path) -> None:
    assert gos("tenant", "add", "acme")[0] == 0
    assert gos("secret", "set", "erp", "--tenant", "acme", stdin="value of a test 5c1e")[0] == 0
    file = str(tmp_path / "acme.gost")
    assert "without secrets" in gos("tenant", "export", "acme", file)[1]
    assert "--as NAME" in gos("tenant", "import", file)[2]
    out = gos("tenant", "import", file, "--as", "copy")[1]
    assert "secret erp: gos secret set erp --tenant copy" in out
    starter = str(ROOT / "appliance" / "starter")
    assert "nothing was deleted" in gos("tenant", "reset", "copy", "--to", starter, stdin="acme\n")[2]
    assert "order-intake applied" in gos("tenant", "reset", "copy", "--to", starter, stdin="copy\n")[1]
    assert "order-intake applied" in gos("tenant", "reset", "copy", "--to", starter, "--yes")[1]
    assert "copy" in gos("tenant", "list")[1]


def test_a_reset_to_what_cannot_be_applied_deletes_nothing(gos: Gos, tmp_path: Path) -> None:
    starter, blocked = ROOT / "appliance" / "starter", tmp_path / "blocked"
    shutil.copytree(starter, blocked)
    text = (blocked / "solution.yaml").read_text("utf8")
    assert "secrets: []" in text
    (blocked / "solution.yaml").write_text(text.replace("secrets: []", "secrets: [missing_one]"), "utf8")
    assert gos("tenant", "add", "acme")[0] == 0
    assert "order-intake applied" in gos("tenant", "reset", "acme", "--to", str(starter), "--yes")[1]
    before = json.loads(gos("tenant", "export", "acme", str(tmp_path / "before.gost"), "--json")[1])["tables"]
    code, _, errors = gos("tenant", "reset", "acme", "--to", str(blocked), "--yes")
    assert (code != 0, "missing_one" in errors) == (True, True)
    after = json.loads(gos("tenant", "export", "acme", str(tmp_path / "after.gost"), "--json")[1])["tables"]
    assert after == before


def test_the_appliance_moves_to_the_database_of_another_configuration(
    gos: Gos, tmp_path: Path, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert gos("tenant", "add", "acme")[0] == 0
    new = tmp_path / "new.yaml"
    new.write_text(f"storage: {{database: '{cluster.make_database()}'}}\n")
    code, out, errors = gos("migrate-to", str(new))
    assert (code, "tenant: 1 of 1" in errors.splitlines()) == (0, True), errors
    assert f"copy {new} to {tmp_path / 'data' / 'config.yaml'}" in out
    assert "acme" in gos("--config", str(new), "--data", str(tmp_path / "data"), "tenant", "list")[1]
    code, _, errors = gos("migrate-to", str(new))
    assert (code, "the database of the target is not empty" in errors) == (1, True), errors
    back = tmp_path / "back.yaml"
    back.write_text(f"storage: {{data: '{tmp_path / 'back'}'}}\n")
    monkeypatch.delenv("GOS_DATA")
    code, out, errors = gos("--config", str(new), "--data", str(tmp_path / "data"), "migrate-to", str(back), "--json")
    assert (code, json.loads(out)["resumed"]) == (0, False), errors
    assert "acme" in gos("--config", str(back), "tenant", "list")[1]
