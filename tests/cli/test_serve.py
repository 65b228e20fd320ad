"""Starts of `gos serve` that fail: the cause is reported, and all resources are released."""

from pathlib import Path
from typing import Any

import pytest

from appliance.app import composition
from appliance.app.composition import serve_forever
from appliance.app.sandboxes import make_pool
from appliance.cli import main, serve
from appliance.core import logs
from appliance.core.database import db
from appliance.sandbox import Pool
from appliance.testing.running import make_config


def test_a_failed_start_reports_its_cause(tmp_path: Path) -> None:
    config = make_config(tmp_path)
    (config.data / "templates").write_text("a file where a folder belongs")
    for _ in range(2):  # a resource that the first does not release would block the second
        with pytest.raises(FileExistsError, match="templates"):
            serve_forever(config, make_pool(config), lambda: None)
    assert db.database.obj is None or db.database.is_closed()


def test_a_start_without_sandboxes_is_not_reported_as_a_bug(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As on a machine that is busy with other things."""

    def start(pool: Pool) -> None:
        code: Any = pool._code
        code.start(0)

    monkeypatch.setattr(Pool, "start", start)
    monkeypatch.setattr(logs, "configure_logs", lambda *_: None)
    monkeypatch.setattr(serve, "load_appliance", lambda config: (composition, make_pool(config)))
    assert main(["--data", str(tmp_path), "serve", "--port", "0"]) == 1
    errors = capsys.readouterr().err
    assert "bug" not in errors
    assert "did not start within 0 s" in errors
    assert "sandbox.processes" in errors
