"""Long-running operations on a whole tenant: export it, import an export, reset it from a solution."""

from appliance.backups.jobs import JobFiles, JobRunner, TenantDeletions, TenantExports, UploadedExports, delete_expired
from appliance.blobs import Places
from appliance.core.config import Config
from appliance.core.crypto import Sealer

from .planning import SolutionServices
from .reset_jobs import TenantResets


class Transfers:
    """The jobs on whole tenants; `runner` has those that this process runs."""

    def __init__(self, config: Config, places: Places, sealer: Sealer, tools: SolutionServices, runner: JobRunner) -> None:
        self.runner = runner
        self._files = files = JobFiles(config, places)
        self.exports = TenantExports(places, files, runner)
        self.arrivals = UploadedExports(places, sealer, files, runner)
        self.deletions = TenantDeletions(runner)
        self.resets = TenantResets(config, tools, files, runner)

    def tidy(self) -> None:
        """Delete expired jobs with their files, and the temporary folders of killed processes."""
        self._files.delete(delete_expired())
        self._files.delete_leftovers()

    def stop(self) -> None:
        """Stop what can be abandoned, and leave it to other processes or the next start; writes in progress are finished."""
        self.runner.stop()
