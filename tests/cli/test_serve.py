"""Starts of `gos serve` that fail: what is told is why, and everything is given back."""

from pathlib import Path

import pytest

from appliance.app.composition import serve_forever
from appliance.core import db
from appliance.testing.running import make_config


def test_a_start_that_fails_tells_its_own_reason(tmp_path: Path) -> None:
    config = make_config(tmp_path)
    (config.data / "templates").write_text("a file where a folder belongs")
    for _ in range(2):  # what the first has not given back would stop the second otherwise
        with pytest.raises(FileExistsError, match="templates"):
            serve_forever(config, lambda: None)
    assert db.database.obj is None or db.database.is_closed()
