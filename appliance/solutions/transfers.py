"""What an edge may do with a whole tenant and takes its time: export it, make one of an export, make it anew from a solution."""

from appliance.backups import Arrivals, Work, Works, check_passphrase, exports
from appliance.blobs import Places
from appliance.core.config import Config
from appliance.core.crypto import Sealer
from appliance.core.scope import TenantScope

from .definition import Solution
from .planning import Tools
from .resetting import reset_tenant

EXPORT, RESET = "export", "reset"


class Transfers:
    """Begins the works; `works` tells how far each is."""

    def __init__(self, config: Config, places: Places, sealer: Sealer) -> None:
        self._config, self._places = config, places
        self.works = Works()
        self.arrivals = Arrivals(config, places, sealer, self.works)

    def export(self, scope: TenantScope, passphrase: str | None) -> Work:
        """Begin an export; its result is the manifest.  Conflict while there is one, BackupInvalid for a short passphrase."""
        if passphrase is not None:
            check_passphrase(passphrase)
        return self.works.begin(
            scope, EXPORT, lambda course: exports.make_export(self._config, self._places, scope, passphrase, course)
        )

    def reset(self, scope: TenantScope, tools: Tools, solution: Solution) -> Work:
        """Begin to empty the tenant and apply a solution to it, as a whole or not at all; the result is a Reset."""
        for name in ("keys.write", "solutions.apply"):
            scope.require(name)
        return self.works.begin(scope, RESET, lambda _: reset_tenant(scope, tools, solution))

    def tidy(self) -> None:
        """Delete exports past their day and files that nobody imports."""
        exports.tidy(self._config)
        self.arrivals.tidy()

    def stop(self) -> None:
        """End what can be given up; what is being written is written."""
        self.works.stop()
        self.arrivals.stop()
