"""A process that is killed while it seals values anew leaves each of them readable, and the next one does the rest."""

import subprocess
import sys
from pathlib import Path

import pytest

from appliance.core import clock
from appliance.master_key import get_status, list_keys, resealing
from appliance.tenants import service
from tests.master_key.world import configure, opened, pass_time, reseal, rotate

PROCESS = Path(__file__).parent / "sealing_process.py"
ROOT = PROCESS.parents[2]
COUNT = 300


@pytest.mark.parametrize("batches", [1, 2, 7])
def test_a_kill_in_the_middle_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batches: int) -> None:
    config = configure(tmp_path / "data")
    with opened(config) as sealer:
        service.create_tenant("acme", "Acme")
        scope = service.system_scope("acme")
        for number in range(COUNT):
            service.set_secret(scope, sealer, f"s{number}", f"value {number}")
        with monkeypatch.context() as patch:
            patch.setattr("appliance.master_key.rotation.PICK_UP_MS", 0)
            patch.setattr("tests.master_key.world.PICK_UP_MS", 0)
            rotate(config, sealer, monkeypatch)
    monkeypatch.undo()  # the clock
    kill_after(batches, config.data)
    with opened(config) as sealer:
        waiting = get_status(sealer).waiting
        assert 0 < waiting <= COUNT  # the last batch may not have been committed
        assert [service.unseal_secret(scope, sealer, f"s{number}") for number in range(COUNT)] == VALUES
        assert list_keys()[-1].resealed_at is None
        pass_time(monkeypatch, resealing.LEASE_MS + 1)  # nobody renews the lease of the dead process
        reseal(sealer)
        assert (get_status(sealer).waiting, list_keys()[-1].resealed) == (0, COUNT)
        assert [service.unseal_secret(scope, sealer, f"s{number}") for number in range(COUNT)] == VALUES


VALUES = [f"value {number}" for number in range(COUNT)]


def kill_after(batches: int, data: Path) -> None:
    """Kill a process that seals once it has stored so many batches."""
    started = clock.monotonic()
    command, environment = [sys.executable, str(PROCESS), str(data)], {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        for _ in range(batches):
            assert process.stdout.readline() == b"batch\n", clock.monotonic() - started
        process.kill()
