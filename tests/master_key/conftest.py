"""The configuration of an appliance on either database."""

from pathlib import Path

import pytest

from appliance.core.config import Config
from tests.master_key.world import configure


@pytest.fixture
def config(tmp_path: Path, store_url: str) -> Config:
    return configure(tmp_path / "data", "" if store_url.startswith("sqlite:") else store_url)
