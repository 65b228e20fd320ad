"""Processes that share the backups of an appliance."""

from collections.abc import Callable
from typing import Any

from appliance.backups import BackupRunner, backup_jobs
from appliance.backups.backup_folder import BackupResult
from appliance.core.config import Config
from appliance.core.crypto import Sealer, load_or_make_key
from tests.processes.world import wait_until


def always(_: str) -> bool:
    """Every process is alive."""
    return True


class BackupProcess:
    """One process of an appliance whose store is open, without its scheduler."""

    def __init__(self, config: Config, places: Any, name: str = "one", is_alive: Callable[[str], bool] = always) -> None:
        sealer = Sealer(load_or_make_key(config.data / "key"))
        self.runner = BackupRunner(config, places, sealer, instance=name, is_alive=is_alive)

    def run_due(self) -> BackupResult | None:
        """Do what the process does periodically; the result of the backup that it made, None if it made none."""
        jobs = backup_jobs.list_jobs()
        ended = {job.number for job in jobs if job.result is not None}
        self.runner.start_due()
        self.runner.resume()
        wait_until(lambda: not self.runner._active)
        return next((job.result for job in backup_jobs.list_jobs() if job.number not in ended), None)

    def request(self, passphrase: str) -> None:
        self.runner.request(passphrase)

    def begin_to_stop(self) -> None:
        """What a stop does first; the thread that makes a backup may call it."""
        self.runner._stopping.set()

    def close(self) -> None:
        self.runner.stop()
