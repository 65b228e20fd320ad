"""What `gos doctor` and `gos config check` say about directories."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from appliance.app.findings.sign_in import account_findings, directory_findings
from appliance.cli import main
from appliance.connectors.testing import free_port
from appliance.core.config import Config, load_config
from appliance.core.database import db
from appliance.tenants import service
from appliance.tenants.models import DirectoryCheckRow
from tests.directory_server import DirectoryServer, running_directory
from tests.store.opening import migrated


@pytest.fixture(scope="module")
def server() -> Iterator[DirectoryServer]:
    with running_directory() as server:
        server.hire("ann")
        yield server


def configure(server: DirectoryServer, **changed: Any) -> Config:
    return load_config(environment={}, flags={"sign_in.directories": [server.describe(**changed)]})


def test_each_server_is_checked(server: DirectoryServer) -> None:
    dead = f"ldaps://127.0.0.1:{free_port()}"
    good, bad = directory_findings(configure(server, urls=[server.url, dead]))
    assert good[0] == "ok"
    assert f"the directory corp ({server.url}) answers: Signed in to 127.0.0.1" in good[1]
    assert (bad[0], "does not accept connections" in bad[1]) == ("FAIL", True)


@pytest.mark.parametrize(("changed", "words"), [
    ({"bind_password": "wrong"}, "does not accept `bind_dn` and `bind_password`"),
    ({"base_dn": "dc=none"}, "no entry with this DN"),
    ({"ca_file": ""}, "is not trusted"), ({"id_attribute": "employeeNumber"}, "has no employeeNumber"),
    ({"user_filter": "(uid=)(x)"}, "syntax error"),
])  # fmt: skip
def test_what_is_wrong_is_named(server: DirectoryServer, changed: dict[str, Any], words: str) -> None:
    ((level, text),) = directory_findings(configure(server, **changed))
    assert (level, words in text) == ("FAIL", True), text


def test_tenants_that_do_not_exist_and_people_who_are_not_followed(server: DirectoryServer, tmp_path: Path) -> None:
    with migrated(f"sqlite:///{tmp_path}/gos.db"):
        service.create_tenant("acme", "Acme")
        config = configure(server)
        assert list(account_findings(config)) == [
            ("note", "the directory corp gives roles in the tenant globex, which does not exist")
        ]
        db.write(lambda: DirectoryCheckRow.create(directory="corp", due_at=0, problem="6 of 7 people are gone at once"))
        level, text = list(account_findings(config))[1]
        assert (level, text) == ("FAIL", "the people of the directory corp are not followed: 6 of 7 people are gone at once")


def test_the_check_of_the_configuration_reads_the_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "config.yaml"
    entry = f"{{id: corp, urls: ['ldaps://dc1'], base_dn: dc=x, bind_dn: cn=gos, bind_password_file: {tmp_path}/secret}}"
    file.write_text(f"sign_in:\n  directories: [{entry}]\n")
    assert main(["--config", str(file), "config", "check"]) != 0
    assert "bind_password_file of corp" in capsys.readouterr().err
    (tmp_path / "secret").write_text("hush")
    assert main(["--config", str(file), "config", "check"]) == 0
