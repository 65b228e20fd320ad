"""`gos backup`, `gos restore` and moving tenants, on the command line."""

import io
import json
import os
import pwd
import secrets
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from appliance.cli import main
from appliance.core.config.sections import Blobs as BucketSettings
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


def test_the_trail_of_what_is_restored_says_so(gos: Gos, tmp_path: Path) -> None:
    file, copy = str(tmp_path / "whole.gosb"), str(tmp_path / "restored")
    assert gos("tenant", "add", "acme")[0] == 0
    assert gos("backup", file)[0] == 0
    key = str(tmp_path / "data" / "key")
    assert gos("--data", copy, "restore", file, "--key", key)[0] == 0
    manifest = json.loads(gos("restore", "--verify", file, "--json")[1])
    assert "intact" in gos("--data", copy, "audit", "verify", "--appliance")[1]
    *entries, _ = [json.loads(line) for line in gos("--data", copy, "audit", "export", "--appliance")[1].splitlines()]
    entry = entries[-1]
    assert (entry["action"], entry["actor"], entry["subject"]) == ("backup.restore", "system", file)
    fields = entry["fields"] if isinstance(entry["fields"], dict) else json.loads(entry["fields"])
    user = pwd.getpwuid(os.getuid()).pw_name
    assert fields == {"made_at": manifest["made_at"], "version": manifest["version"], "by": user}
    here = gos("audit", "export", "--appliance")[1]
    assert "backup.restore" not in here, "the appliance of the backup was not restored"


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


def test_an_import_beyond_the_quotas_is_refused_and_says_what_to_do(gos: Gos, tmp_path: Path) -> None:
    app = tmp_path / "shop" / "webapps" / "shop" / "public"
    app.mkdir(parents=True)
    (app.parents[2] / "solution.yaml").write_text("name: shop\n")
    (app / "index.html").write_text("<p>" + "x" * 3_000_000)
    (tmp_path / "data").mkdir(exist_ok=True)
    assert gos("tenant", "add", "acme")[0] == 0
    assert gos("tenant", "quota", "acme", "storage=2MB")[0] == 0
    reset = ("tenant", "reset", "acme", "--to", str(tmp_path / "shop"), "--yes")
    code, _, errors = gos(*reset)
    assert (code, "needs 4MB of storage" in errors, "gos tenant quota acme storage=4MB" in errors) == (1, True, True), errors
    assert gos("tenant", "quota", "acme", "storage=4MB")[0] == 0
    assert gos(*reset)[0] == 0
    file = str(tmp_path / "acme.gost")
    assert gos("tenant", "export", "acme", file)[0] == 0
    (tmp_path / "data" / "config.yaml").write_text("limits: {tenant_storage_mb: 2}\n")
    code, _, errors = gos("tenant", "import", file, "--as", "copy")
    assert (code, "needs 4MB of storage" in errors, "--quota storage=4MB" in errors) == (1, True, True), errors
    assert "copy" not in gos("tenant", "list")[1]
    assert "NAME=AMOUNT" in gos("tenant", "import", file, "--as", "copy", "--quota", "4MB")[2]
    assert gos("tenant", "import", file, "--as", "copy", "--quota", "storage=4MB", "--quota", "entities=5")[0] == 0
    assert "for this tenant" in gos("tenant", "quota", "copy")[1]


def test_the_appliance_moves_to_the_database_of_another_configuration(
    gos: Gos, tmp_path: Path, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert gos("tenant", "add", "acme")[0] == 0
    new = tmp_path / "new.yaml"
    new.write_text(f"storage: {{database: '{cluster.make_database()}'}}\n")
    code, out, errors = gos("migrate-to", str(new))
    assert (code, "tenant: 2 of 2" in errors.splitlines()) == (0, True), errors
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


PHRASE = "a long phrase of this test"


def test_a_tenant_is_taken_out_of_a_backup_and_imported_beside(gos: Gos, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert gos("tenant", "add", "acme")[0] == 0
    monkeypatch.setenv("GOS_BACKUP_PASSPHRASE", PHRASE)
    file, export = str(tmp_path / "whole.gosb"), str(tmp_path / "acme.gost")
    assert gos("backup", file)[0] == 0
    code, out, _ = gos("backup", "list", file)
    assert (code, "  acme (acme): " in out) == (0, True)
    assert json.loads(gos("backup", "list", file, "--json")[1])["tenants"][0]["id"] == "acme"
    code, out, _ = gos("--data", str(tmp_path / "nowhere"), "restore", file, "--tenant", "acme", "--to", export)
    assert (code, "gos tenant import" in out, (tmp_path / "nowhere").exists()) == (0, True, False)
    assert gos("tenant", "import", export, "--as", "before")[0] == 0
    assert "before" in gos("tenant", "list")[1]
    assert "has acme" in gos("restore", file, "--tenant", "nobody", "--to", str(tmp_path / "x"))[2]
    assert "no document 'doc_1'" in gos("restore", file, "--document", "doc_1", "--to", str(tmp_path / "x"))[2]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--tenant", "acme"), "needs --to PATH"),
        (("--to", "x"), "needs --tenant ID or --document ID"),
        (("--tenant", "acme", "--to", "x", "--replace"), "leave them out with --to"),
        (("--tenant", "acme", "--to", "x", "--all-revisions"), "needs --document ID"),
    ],
    ids=["no-target", "nothing", "replace", "revisions"],
)
def test_options_that_do_not_fit_are_refused(gos: Gos, arguments: tuple[str, ...], words: str) -> None:
    code, _, errors = gos("restore", "whole.gosb", *arguments)
    assert (code, words in errors) == (1, True)


def test_backups_are_listed_downloaded_and_restored_from_a_bucket(
    gos: Gos, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bucket: BucketSettings
) -> None:
    for name in ("endpoint", "region", "key_id", "secret_key"):
        monkeypatch.setenv(f"GOS_BACKUP_{name.upper()}", getattr(bucket, name))
    place = f"s3://{bucket.bucket}/cli-{secrets.token_hex(6)}"
    file, copy = f"{place}/whole.gosb", str(tmp_path / "copy.gosb")
    assert gos("tenant", "add", "acme")[0] == 0
    assert "must be encrypted" in gos("backup", file)[2]
    assert gos("backup", "list", place)[1] == "none\n"
    monkeypatch.setenv("GOS_BACKUP_PASSPHRASE", PHRASE)
    assert file in gos("backup", file)[1]
    assert "exists already" in gos("backup", file)[2]
    assert [each["file"] for each in json.loads(gos("backup", "list", place, "--json")[1])] == [file]
    assert "  acme (acme): " in gos("backup", "list", file)[1]
    assert "is complete" in gos("restore", "--verify", file)[1]
    assert gos("backup", "download", file, copy)[0] == 0
    assert "is complete" in gos("restore", "--verify", copy)[1]
    assert "exists already" in gos("backup", "download", file, copy)[2]
    assert "were restored to" in gos("--data", str(tmp_path / "restored"), "restore", file)[1]
    assert "acme" in gos("--data", str(tmp_path / "restored"), "tenant", "list")[1]
    assert "there is no backup" in gos("restore", "--verify", f"{place}/other.gosb")[2]


def test_backups_of_a_folder_are_listed(gos: Gos, tmp_path: Path) -> None:
    assert gos("tenant", "add", "acme")[0] == 0
    (tmp_path / "backups").mkdir()
    assert gos("backup", str(tmp_path / "backups" / "gos-20260301T020000Z.gosb"))[0] == 0
    code, out, _ = gos("backup", "list", str(tmp_path / "backups"), "--json")
    (row,) = json.loads(out)
    assert (code, row["made_at"][:10], row["encrypted"]) == (0, "2026-03-01", "no")
    assert "there is no backup and no folder" in gos("backup", "list", str(tmp_path / "nowhere"))[2]
    assert "needs the address of a backup in a bucket" in gos("backup", "download", str(tmp_path), "x")[2]
