"""An appliance of one process with an administrator, to be killed and started again."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.harness import Chaos

ADMINISTRATORS = {"administrators": ["ada@acme.test"]}


@pytest.fixture
def appliance(tmp_path: Path) -> Iterator[Chaos]:
    started = Chaos(tmp_path, "none", 1, worker=False)
    settings = json.loads((tmp_path / "config.yaml").read_text())
    (tmp_path / "config.yaml").write_text(json.dumps({**settings, "console": ADMINISTRATORS}))
    started.prepare()
    try:
        yield started
    finally:
        started.kill_all()
