"""`gos audit`: trails are verified and exported from the shell, also while the appliance runs."""

from pathlib import Path

from appliance.core.database import db
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
    assert (code, exported.count("\n")) == (0, 1)
    assert gos("audit", "export", "--tenant", acme, "--until", "2026-01-01T00:00:00Z")[1] == ""
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


def test_what_is_not_there_is_named(gos: Gos, acme: str, tmp_path: Path) -> None:
    for argv in (("verify", "--tenant", "nobody"), ("export", "--tenant", "nobody")):
        code, _, errors = gos("audit", *argv)
        assert (code, errors) == (1, "gos: there is no tenant 'nobody'\n")
    code, _, errors = gos("audit", "verify", "--file", str(tmp_path / "none"))
    assert code == 1
    assert "cannot read" in errors
    code, _, errors = gos("audit", "export", "--tenant", acme, "--since", "yesterday")
    assert code != 0
    assert "'yesterday' is not an RFC 3339 time" in errors
