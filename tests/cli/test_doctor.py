"""`gos doctor` changes nothing, so a new release can inspect the data of an older one that still runs."""

from pathlib import Path

import pytest

from appliance import migrations
from appliance.app.findings.checks import _clock, check_storage, checks
from appliance.core import clock
from appliance.core.config import Config, load_config
from appliance.core.crypto import load_or_make_key
from appliance.core.database import db
from appliance.core.errors import ConfigInvalid
from appliance.processes.definitions import versions
from appliance.processes.executions import ExecutionOrigin, StartRequest, insert_execution
from appliance.tenants import service


@pytest.fixture
def config(tmp_path: Path) -> Config:
    """A data folder with a key and no database yet."""
    data = tmp_path / "data"
    data.mkdir()
    load_or_make_key(data / "key")
    return load_config(environment={}, flags={"storage.data": str(data)})


def migrate_to(config: Config, number: int | None) -> None:
    db.open_database(config.database_url)
    migrations.migrate(number)


def schema_finding(config: Config) -> tuple[str, str]:
    """The finding about the database schema."""
    return next(finding for finding in check_storage(config) if finding[1].startswith("the database"))


def test_an_older_schema_is_reported_and_unchanged(config: Config) -> None:
    before = migrations.last_number() - 1
    migrate_to(config, before)
    db.close_database()
    for _ in range(2):
        level, text = schema_finding(config)
        assert (level, "1 migration is pending: stop the appliance and run `gos upgrade`" in text) == ("note", True)
    assert any("until the database has this release's schema" in text for _, text in checks(config))
    db.open_database(config.database_url)
    assert db.rows("SELECT max(number) FROM migration") == [(before,)]
    db.close_database()


def test_a_newer_schema_fails(config: Config) -> None:
    migrate_to(config, None)
    db.write(lambda: db.execute("INSERT INTO migration (number, name, applied_at) VALUES (9999, 'future', 0)"))
    db.close_database()
    level, text = schema_finding(config)
    assert (level, "has migration 9999" in text, "install the newer release" in text) == ("FAIL", True, True)


def test_the_current_schema_is_ok(config: Config) -> None:
    migrate_to(config, None)
    service.create_tenant("acme", "Acme")
    db.close_database()
    assert schema_finding(config) == ("ok", "the database works, 0 migrations are pending, 1 tenants")


def test_the_doctor_creates_no_database(config: Config) -> None:
    with pytest.raises(ConfigInvalid, match="there is no database"):
        list(check_storage(config))
    assert [path.name for path in config.data.iterdir()] == ["key"]


def test_an_empty_database_stays_empty(config: Config) -> None:
    (config.data / "gos.db").touch()
    assert schema_finding(config) == ("note", "the database works and is empty; the next start creates its schema")


def test_a_clock_that_was_set_back_is_reported(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    migrate_to(config, None)
    scope = service.system_scope(service.create_tenant("acme", "Acme").id)
    versions.save_draft(scope, "idle", versions.Draft({"id": "idle", "steps": [{"id": "one", "rule": {"expression": "= 1"}}]}, {}))
    db.write(lambda: insert_execution(scope, "idle", 1, StartRequest({}), ExecutionOrigin()))

    def findings() -> list[str]:
        return [text for level, text in _clock() if level == "note"]

    try:
        assert findings() == []
        now = clock.now_ms()
        monkeypatch.setattr(clock, "now_ms", lambda: now - 7_200_000)
        (text,) = findings()
        assert text.startswith("the clock is 7")
        assert "set back" in text
    finally:
        db.close_database()
