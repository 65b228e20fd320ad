"""Ships more often than an appliance does, so that tests wait less."""

import pytest

from appliance.backups.points import shipping


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shipping, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(shipping, "FOLDER_SECONDS", 0.1)
    monkeypatch.setattr(shipping, "BUCKET_SECONDS", 0.5)
