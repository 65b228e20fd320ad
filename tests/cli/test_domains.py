"""`gos domain` and what `gos doctor` says of domains."""

import json
from pathlib import Path
from typing import Any

import pytest

from appliance.app.findings import checks as doctor
from appliance.app.store import open_store
from appliance.blobs import Blobs, LocalPlaces
from appliance.cli import main
from appliance.connectors.egress import Egress
from appliance.core.config import Config, load_config
from appliance.core.database import db
from appliance.core.scope import TenantScope
from appliance.tenants import service as tenants
from appliance.webapps import NewApp, WebApps
from appliance.webapps.domains import NewDomain, build_domains
from appliance.webapps.files import Limits

ACME, GLOBEX = TenantScope("acme", "key:acme"), TenantScope("globex", "key:globex")


@pytest.fixture
def config(tmp_path: Path) -> Config:
    """Two tenants who both claim corp.example; the database is closed, as the commands find it."""
    config = load_config(environment={}, flags={"storage.data": str(tmp_path)})
    open_store(config)
    apps = WebApps(Blobs(LocalPlaces(tmp_path / "blobs"), ["webapp_file"]), Limits(10, 1 << 20, 1 << 20))
    for scope in (ACME, GLOBEX):
        tenants.create_tenant(scope.tenant_id, scope.tenant_id)
        apps.create_app(scope, NewApp("shop"))
        build_domains(config, Egress()).claim_domain(scope, "shop", NewDomain("corp.example", redirect_from="www"))
    db.close_database()
    return config


def gos(capsys: pytest.CaptureFixture[str], config: Config, *words: str) -> tuple[int, Any]:
    """Exit code and answer."""
    code = main(["--data", str(config.data), "domain", *words, "--json"])
    output = capsys.readouterr()
    return code, json.loads(output.out) if code == 0 else output.err


def test_the_operator_lists_approves_and_releases(config: Config, capsys: pytest.CaptureFixture[str]) -> None:
    assert gos(capsys, config, "approve", "Corp.Example", "--tenant", "acme")[1]["state"] == "active"
    code, out = gos(capsys, config, "approve", "corp.example", "--tenant", "globex")
    assert (code, "not available" in out, "acme" in out) == (1, True, False)
    rows = gos(capsys, config, "list")[1]
    assert [(row["tenant"], row["state"]) for row in rows] == [("acme", "active"), ("globex", "pending_dns")]
    assert len(gos(capsys, config, "list", "--tenant", "globex")[1]) == 1
    assert gos(capsys, config, "release", "www.corp.example")[1]["done"] == ["corp.example was taken from acme"]
    assert gos(capsys, config, "approve", "corp.example", "--tenant", "globex")[0] == 1  # it rests
    assert gos(capsys, config, "release", "corp.example")[0] == 1
    for name in ("corp.example", "www.corp.example"):
        assert gos(capsys, config, "release", name, "--lift")[0] == 0
    assert gos(capsys, config, "approve", "corp.example", "--tenant", "globex")[0] == 0
    assert gos(capsys, config, "approve", "corp.example", "--tenant", "nobody")[0] == 1


def test_the_doctor_names_domains_that_fail(config: Config) -> None:
    assert [level for level, _ in doctor.check_domains(config)] == ["note"]
    open_store(config)
    db.write(lambda: db.execute("UPDATE domain SET failing_since = 1, error = 'gone' WHERE tenant_id = 'acme'"))
    db.close_database()
    assert ("FAIL", "the domain corp.example of acme is pending_dns: gone") in list(doctor.check_domains(config))


def test_a_claim_never_proved_is_only_a_note(config: Config) -> None:
    open_store(config)
    db.write(lambda: db.execute("UPDATE domain SET state = 'failed', error = 'not proven'"))
    db.write(lambda: db.execute("UPDATE domain SET verified_at = 1 WHERE tenant_id = 'globex'"))  # its certificate is what failed
    db.close_database()
    levels = {text.partition(" of ")[2].partition(" ")[0]: level for level, text in doctor.check_domains(config) if " of " in text}
    assert levels == {"acme": "note", "globex": "FAIL"}
