"""Long-running operations on a whole tenant: export it, import an export, reset it from a solution."""

from appliance.backups import BackgroundJob, BackgroundJobs, UploadedExports, check_passphrase, exports
from appliance.blobs import Places
from appliance.core.config import Config
from appliance.core.crypto import Sealer
from appliance.core.scope import TenantScope

from .definition import Solution
from .planning import SolutionServices
from .resetting import reset_tenant

EXPORT, RESET = "export", "reset"


class Transfers:
    """Starts the background jobs; `works` has their progress."""

    def __init__(self, config: Config, places: Places, sealer: Sealer) -> None:
        self._config, self._places = config, places
        self.jobs = BackgroundJobs()
        self.arrivals = UploadedExports(config, places, sealer, self.jobs)

    def export(self, scope: TenantScope, passphrase: str | None) -> BackgroundJob:
        """Start an export; its result is the manifest.  Conflict while one is running, BackupInvalid for a short passphrase."""
        if passphrase is not None:
            check_passphrase(passphrase)
        return self.jobs.begin(
            scope, EXPORT, lambda course: exports.make_export(self._config, self._places, scope, passphrase, course)
        )

    def reset(self, scope: TenantScope, tools: SolutionServices, solution: Solution) -> BackgroundJob:
        """Start emptying the tenant and applying a solution to it, as a whole or not at all; the result is a Reset."""
        for name in ("keys.write", "solutions.apply"):
            scope.require(name)
        return self.jobs.begin(scope, RESET, lambda _: reset_tenant(scope, tools, solution))

    def tidy(self) -> None:
        """Delete expired exports and uploaded files that were not imported."""
        exports.delete_expired(self._config)
        self.arrivals.delete_expired()

    def stop(self) -> None:
        """Stop the jobs that can be abandoned; writes in progress are finished."""
        self.jobs.stop()
        self.arrivals.stop()
