"""Builds the sandbox; imports little, so that its processes can start beside the rest of the appliance."""

from pathlib import Path

from appliance.core.config import Config
from appliance.sandbox import Pool, Settings


def make_pool(config: Config) -> Pool:
    """The sandbox as configured, not started. Without workers, only drafts are checked and tested in it, in one process that
    runs while it is needed."""
    own, runs_executions = config.sandbox, config.server.run_workers
    return Pool(
        Settings(
            own.processes if runs_executions else 1, own.slots, runtimes_folder(config), own.queue_seconds,
            first_user=own.first_user, templates=config.data / "templates", starts_on_demand=not runs_executions,
        )
    )  # fmt: skip


def runtimes_folder(config: Config) -> Path | None:
    """The folder of the prepared runtimes; None means the default of a source checkout."""
    return Path(config.sandbox.runtimes) if config.sandbox.runtimes else None
