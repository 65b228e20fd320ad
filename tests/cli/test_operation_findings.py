"""What `gos doctor` says about operation: each check finds what it is for, names it, and says what to do."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from appliance.app.findings.operation import (
    connector_findings,
    content_findings,
    mail_findings,
    permission_findings,
    queue_findings,
    tls_findings,
)
from appliance.blobs import Blobs, LocalPlaces
from appliance.cli import main
from appliance.connectors.testing import free_port
from appliance.core import clock
from appliance.core.config import Config, load_config
from appliance.core.crypto import load_or_make_key
from appliance.core.database import db
from appliance.core.errors import ConfigInvalid
from appliance.processes.definitions import versions
from appliance.processes.executions import ExecutionOrigin, StartRequest, insert_execution
from appliance.tenants import service
from appliance.testing.external_systems import Mailbox
from tests.sites.signing import Authority, Leaf, pem_of, text_of
from tests.store.opening import migrated


def configure(tmp_path: Path, **settings: Any) -> Config:
    """The configuration of a data folder with a key."""
    data = tmp_path / "data"
    data.mkdir(mode=0o700, exist_ok=True)
    load_or_make_key(data / "key")
    flags = {name.replace("__", "."): value for name, value in settings.items()}
    return load_config(environment={}, flags={"storage.data": str(data), **flags})


@pytest.fixture
def store(tmp_path: Path) -> Iterator[None]:
    with migrated(f"sqlite:///{tmp_path}/gos.db"):
        service.create_tenant("acme", "Acme")
        yield


def test_a_data_folder_that_others_can_open_fails(tmp_path: Path) -> None:
    config = configure(tmp_path)
    assert [level for level, _ in permission_findings(config)] == ["ok"]
    config.data.chmod(0o750)
    ((level, text),) = permission_findings(config)
    assert (level, text.endswith(f"run: chmod 700 {config.data}")) == ("FAIL", True), text


def test_a_connector_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    config = configure(tmp_path)
    assert [level for level, _ in connector_findings(config)] == ["ok"]
    (config.data / "connectors").mkdir()
    (config.data / "connectors" / "broken.yaml").write_text("name: broken\n")
    (level, text), _ = connector_findings(config)
    assert (level, "the connector broken" in text, "restart the appliance" in text) == ("FAIL", True, True), text


class Files:
    """Certificate files of an appliance at gos.example.com."""

    def __init__(self, tmp_path: Path) -> None:
        self.certificate, self.key = tmp_path / "chain.pem", tmp_path / "key.pem"
        self.config = configure(
            tmp_path, server__tls="files", server__certificate=str(self.certificate), server__private_key=str(self.key),
            domains__base="gos.example.com", domains__content="gos-content.example.com",
        )  # fmt: skip

    def write(self, leaf: Leaf) -> None:
        self.certificate.write_text(text_of(Authority().sign(leaf)))
        self.key.write_text(pem_of(leaf.key))

    def findings(self) -> list[tuple[str, str]]:
        return list(tls_findings(self.config))


@pytest.mark.usefixtures("store")
def test_certificate_files_are_checked_for_the_hosts_they_serve(tmp_path: Path) -> None:
    files = Files(tmp_path)
    ((level, text),) = files.findings()
    assert (level, "cannot be read" in text) == ("FAIL", True)
    files.write(Leaf(["gos.example.com", "*.gos.example.com"]))
    assert [level for level, _ in files.findings()] == ["ok"]
    files.write(Leaf(["gos.example.com", "acme.gos.example.com"]))
    assert [level for level, _ in files.findings()] == ["ok"], "it need not be a wildcard"
    files.write(Leaf(["gos.example.com"]))
    ((level, text),) = files.findings()
    assert level == "FAIL"
    assert "does not work for acme.gos.example.com: the certificate does not cover acme.gos.example.com" in text
    files.key.write_text(pem_of(Leaf(["gos.example.com"]).key))
    assert ["the private key does not belong" in text for _, text in files.findings()] == [True]


@pytest.mark.usefixtures("store")
def test_certificate_files_that_expire_soon_are_named(tmp_path: Path) -> None:
    files = Files(tmp_path)
    files.write(Leaf(["gos.example.com", "*.gos.example.com"], ends=5))
    assert [(level, "expires in" in text) for level, text in files.findings()] == [("note", True)]


@pytest.mark.usefixtures("store")
def test_an_execution_that_nobody_runs_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    scope = service.system_scope("acme")
    versions.save_draft(scope, "idle", versions.Draft({"id": "idle", "steps": [{"id": "one", "rule": {"expression": "= 1"}}]}, {}))
    assert [level for level, _ in queue_findings()] == ["ok"]
    db.write(lambda: insert_execution(scope, "idle", 1, StartRequest({}), ExecutionOrigin()))
    assert [level for level, _ in queue_findings()] == ["ok"]
    now = clock.now_ms()
    monkeypatch.setattr(clock, "now_ms", lambda: now + 90_000)
    ((level, text),) = queue_findings()
    assert (level, "of the tenant acme has waited for 9" in text, "`gos worker` running" in text) == ("FAIL", True, True), text


@pytest.mark.usefixtures("store")
def test_a_damaged_content_is_named(tmp_path: Path) -> None:
    config = configure(tmp_path)
    blobs = Blobs(LocalPlaces(config.data / "blobs"), [])
    stored = [blobs.put(service.system_scope("acme"), content) for content in (b"an invoice", b"another")]
    assert list(content_findings(config)) == [("ok", "2 stored contents, chosen at random, have their hashes")]
    ((place,),) = db.rows("SELECT place FROM blob WHERE sha256 = ?", (stored[0].sha256,))
    (config.data / "blobs" / place).write_bytes(b"an invoicE")
    ((level, text),) = content_findings(config)
    assert (level, stored[0].sha256 in text, "tenant acme" in text) == ("FAIL", True, True), text
    (config.data / "blobs" / place).unlink()
    assert [level for level, _ in content_findings(config)] == ["FAIL"]


def test_the_doctor_runs_them_all(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--data", str(tmp_path / "data"), "init"]) == 0
    capsys.readouterr()
    assert main(["--data", str(tmp_path / "data"), "doctor"]) == 0
    printed = capsys.readouterr().out
    for words in ("can open the data folder", "connectors can be used", "that may run", "chosen at random"):
        assert words in printed


def test_a_mail_server_that_refuses_the_sign_in_fails(tmp_path: Path) -> None:
    assert [level for level, _ in mail_findings(configure(tmp_path))] == ["note"]
    mailbox = Mailbox()
    try:
        config = configure(tmp_path, mail__server=f"smtp://127.0.0.1:{mailbox.port}", mail__sender="gos@example.org")
        assert [level for level, _ in mail_findings(config)] == ["ok"]
    finally:
        mailbox.close()
    encrypted = configure(
        tmp_path, mail__server=f"starttls://127.0.0.1:{free_port()}", mail__sender="gos@example.org", mail__user="gos",
        mail__password="swordfish",
    )  # fmt: skip
    unreadable = configure(
        tmp_path, mail__server="smtps://127.0.0.1:1", mail__sender="gos@example.org", mail__ca_file=str(tmp_path / "data" / "key")
    )
    assert [level for level, _ in mail_findings(unreadable)] == ["FAIL"], "a file that holds no certificate"
    ((level, text),) = mail_findings(encrypted)
    assert (level, "check mail.server, mail.user" in text, "swordfish" in text) == ("FAIL", True, False), text


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"mail__server": "mail.example.com:25"}, "mail.server must be the address"),
        ({"mail__server": "smtp://mail.example.com:99999"}, "mail.server must be the address"),
        ({"mail__sender": "gos@example.org"}, "mail.server is empty"),
        ({"mail__server": "smtps://mail.example.com:465", "mail__sender": "gos"}, "mail.sender must be an address"),
        ({"mail__server": "smtp://mail.example.com:25", "mail__sender": "a@b.test", "mail__user": "a"}, "unencrypted"),
        ({"mail__server": "smtps://m.test:465", "mail__sender": "a@b.test", "mail__ca_file": "/none.pem"}, "does not exist"),
        (
            {"mail__server": "smtps://m.test:465", "mail__sender": "a@b.test", "mail__password": "x", "mail__password_file": "/x"},
            "cannot be combined",
        ),
    ],
)
def test_settings_of_mail_that_cannot_work_are_refused(tmp_path: Path, settings: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigInvalid, match=words):
        configure(tmp_path, **settings)
