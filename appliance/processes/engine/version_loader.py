"""The compiled versions of processes, and whether they may run."""

from typing import Any

from appliance.core.database import db
from appliance.core.errors import PolicyDenied
from appliance.core.scope import TenantScope
from appliance.processes.definitions.compiled import CompiledVersion, VersionCache, compile_version
from appliance.processes.host import version_grants
from appliance.processes.models import ProcessVersion
from appliance.processes.startable import StartableVersion, no_such_version
from appliance.tenants.grants import GracePeriods

from .failures import from_appliance_error
from .store import Claim


class VersionLoader:
    """Loads versions; thread-safe."""

    def __init__(self, grace: GracePeriods) -> None:
        self._compiled = VersionCache()
        self._grace = grace

    def load(self, scope: TenantScope, process_id: str, version: int) -> CompiledVersion:
        """The compiled version, cached.  Its digest distinguishes it from a deleted process with the same id."""
        return self._find_version(scope, process_id, version)[0]

    def load_to_run(self, scope: TenantScope, process_id: str, version: int) -> CompiledVersion:
        """Like `load`, for a version about to run; PolicyDenied if what it accesses is not granted any more."""
        compiled, digest, until = self._find_version(scope, process_id, version)
        self._refuse_suspended(scope, process_id, version, digest, until)
        return compiled

    def load_startable(self, scope: TenantScope, process_id: str, startable: StartableVersion) -> CompiledVersion:
        """Like `load_to_run`, for a version whose row has been read."""
        self._refuse_suspended(scope, process_id, startable.version, startable.grant_digest, startable.allowed_until)
        return self._compile(scope, process_id, startable.version, startable.draft_digest)

    def _refuse_suspended(
        self, scope: TenantScope, process_id: str, version: int, grant_digest: str | None, until: int | None
    ) -> None:
        if grant_digest is None:
            until = version_grants.assess(scope, process_id, version, self._grace)
        version_grants.refuse_suspended(process_id, version, until)

    def _find_version(self, scope: TenantScope, process_id: str, version: int) -> tuple[CompiledVersion, str | None, int | None]:
        """The version, the digest of its grant, and until when it may start."""
        rows = db.rows(
            "SELECT draft_digest, grant_digest, allowed_until FROM process_version "
            "WHERE tenant_id = ? AND process_id = ? AND version = ?",
            (scope.tenant_id, process_id, version),
        )
        if not rows:
            raise no_such_version(process_id, version)
        draft_digest, grant_digest, until = rows[0]
        return self._compile(scope, process_id, version, draft_digest), grant_digest, until

    def _compile(self, scope: TenantScope, process_id: str, version: int, draft_digest: str) -> CompiledVersion:
        key = (scope.tenant_id, process_id, version, draft_digest)
        compiled = self._compiled.get(key)
        if compiled is None:
            row = scope.get(ProcessVersion, process_id=process_id, version=version)
            compiled = compile_version(scope.tenant_id, row.definition, row.files)
            self._compiled.put(key, compiled)
        return compiled

    def of_claim(self, claim: Claim) -> tuple[CompiledVersion, dict[str, Any] | None]:
        """The version of an execution, and the error if it is not allowed to run any more."""
        try:
            return self.load_to_run(claim.scope, claim.process_id, claim.version), None
        except PolicyDenied as error:
            return self.load(claim.scope, claim.process_id, claim.version), from_appliance_error(error).error
