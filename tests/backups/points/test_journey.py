"""A running appliance: what was deleted through its API is restored by `gos restore --at`, and `gos doctor` says how it stands."""

import hashlib
import json
import secrets
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from appliance.backups.points import findings
from appliance.cli import main
from appliance.core import clock
from appliance.core.config.sections import Blobs as BucketSettings
from appliance.testing import running
from tests.backups.conftest import PASSPHRASE
from tests.backups.points.worlds import point_world, shipping, wait_for_shipment
from tests.processes.world import wait_until

Gos = Callable[..., tuple[int, str, str]]


@pytest.fixture
def gos(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Gos:
    """Runs a command; answers exit code, output and errors."""
    monkeypatch.setattr(sys, "stdin", None)

    def run(*argv: str) -> tuple[int, str, str]:
        return main(list(argv)), *capsys.readouterr()

    return run


@pytest.fixture(params=["folder", "bucket"])
def settings(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The settings of the section `backup`, also in the environment for commands."""
    if request.param == "folder":
        (tmp_path / "points").mkdir()
        values = {"points_to": str(tmp_path / "points")}
    else:
        bucket: BucketSettings = request.getfixturevalue("bucket")
        values = {
            "points_to": f"s3://{bucket.bucket}/points-{secrets.token_hex(6)}", "endpoint": bucket.endpoint,
            "region": bucket.region, "key_id": bucket.key_id, "secret_key": bucket.secret_key,
        }  # fmt: skip
    values["passphrase"] = PASSPHRASE
    for name, value in values.items():
        monkeypatch.setenv(f"GOS_BACKUP_{name.upper()}", value)
    return values


def entities_of(api: httpx.Client) -> str:
    """The digest of all entities of the collection."""
    rows = api.get("/api/v1/datapool/stock/entities", params={"limit": 200}).raise_for_status().json()["data"]
    return hashlib.sha256(json.dumps(rows, sort_keys=True).encode()).hexdigest()


def document_digest(api: httpx.Client, document: str) -> str:
    return hashlib.sha256(api.get(f"/api/v1/documents/{document}/content").raise_for_status().content).hexdigest()


def wait_shipped(live: running.Running) -> None:
    before, points = clock.now_ms(), live.appliance.points
    assert points is not None
    wait_until(lambda: points.status.base_at and points.status.point_at > before, 60)


def test_a_time_in_which_nothing_was_shipped_is_named(gos: Gos, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two chains with an hour between them."""
    (tmp_path / "points").mkdir()
    source = point_world(tmp_path / "data", str(tmp_path / "points"))
    monkeypatch.setenv("GOS_BACKUP_PASSPHRASE", PASSPHRASE)
    start, ahead = clock.now_ms, 0
    monkeypatch.setattr(clock, "now_ms", lambda: start() + ahead)
    with source.opened():
        source.fill()
        with shipping(source) as shipper:
            end = wait_for_shipment(shipper)
        ahead += 3_600_000
        with shipping(source) as shipper:
            wait_for_shipment(shipper)
    at, place = clock.rfc3339(end + 1_800_000), str(tmp_path / "points")
    code, _, errors = gos("--data", str(tmp_path / "gap"), "restore", place, "--at", at)
    assert code == 0
    assert f"and {at}: changes of that time, if the appliance was running, are not in what was restored" in errors
    assert gos("--data", str(tmp_path / "end"), "restore", place, "--at", clock.rfc3339(end))[2] == ""
    other = ("--data", str(tmp_path / "other"), "restore", place)
    assert "leave out --tenant" in gos(*other, "--at", at, "--tenant", "demo", "--to", "y")[2]
    assert "is not an RFC 3339 time" in gos(*other, "--at", "yesterday")[2]


def test_what_was_deleted_is_restored_to_the_second_before(gos: Gos, settings: dict[str, Any], tmp_path: Path) -> None:
    config = running.make_config(tmp_path / "data", **{f"backup__{name}": value for name, value in settings.items()})
    live = running.start(config)
    try:
        with live.api("acme") as api:
            api.post("/api/v1/datapool", json={"name": "stock", "fields": [{"name": "n", "type": "number"}]}).raise_for_status()
            for number in range(20):
                api.post("/api/v1/datapool/stock/entities", json={"n": number}).raise_for_status()
            name, content = {"name": "plan.txt"}, b"the plan that is needed later" * 2000
            uploaded = api.post("/api/v1/documents", params=name, content=content).raise_for_status()
            document = uploaded.json()["data"]["id"]
            before = entities_of(api), document_digest(api, document)
            wait_shipped(live)
            moment = clock.now_ms()
            wait_until(lambda: clock.now_ms() > moment + 1000, 10)  # the moment is a whole second
            api.delete("/api/v1/datapool/stock", params={"allow_loss": "true"}).raise_for_status()
            api.delete(f"/api/v1/documents/{document}").raise_for_status()
            wait_shipped(live)
            levels = {level for level, _ in findings(config)}
            assert "FAIL" not in levels
            assert any("the last point in" in text for level, text in findings(config) if level == "ok")
            assert live.appliance.points is not None and live.appliance.points.lag() < 60  # noqa: PT018  for the type checker
    finally:
        live.stop()
    at = clock.rfc3339(moment + 1000)[:19] + "Z"
    code, out, errors = gos("--data", str(tmp_path / "before"), "restore", settings["points_to"], "--at", at, "--json")
    assert (code, errors) == (0, "")
    assert json.loads(out)["made_at"] <= clock.rfc3339(moment + 1000)
    code, out, _ = gos("--data", str(tmp_path / "latest"), "restore", settings["points_to"], "--at", "latest")
    assert (code, out[:22]) == (0, "The last change before")
    code, _, errors = gos("--data", str(tmp_path / "never"), "restore", settings["points_to"], "--at", "2020-01-01T00:00:00Z")
    assert code != 0
    assert "has points from 20" in errors
    trail = gos("--data", str(tmp_path / "before"), "audit", "export", "--appliance")[1].splitlines()
    entry = json.loads(trail[-2])  # the last line signs them
    assert (entry["action"], entry["subject"]) == ("backup.restore", settings["points_to"])
    assert f'"moment":"{at[:-1]}.000Z"' in json.dumps(entry["fields"], separators=(",", ":")).replace("\\", "")
    restored = running.start(running.make_config(tmp_path / "before"))
    try:
        with restored.api("acme") as api:
            assert (entities_of(api), document_digest(api, document)) == before
    finally:
        restored.stop()
    latest = running.start(running.make_config(tmp_path / "latest"))
    try:
        with latest.api("acme") as api:
            assert api.get("/api/v1/datapool/stock/entities").status_code == 404
            assert api.get(f"/api/v1/documents/{document}").status_code == 404
    finally:
        latest.stop()
