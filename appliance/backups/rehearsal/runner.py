"""Rehearses the restore of the newest backup when it is due or was asked for, in a process of its own, with low priority."""

import json
import logging
import os
import signal
import subprocess
from collections.abc import Callable
from functools import partial

from appliance.backups.backup_folder import address_of, list_backups
from appliance.core import clock
from appliance.core.config import Config, environment
from appliance.core.crypto import KEY_FILE
from appliance.core.database import db
from appliance.core.errors import ApplianceError
from appliance.core.leases import Lease, LeaseLost
from appliance.core.leases.claims import ClaimRunner, Stopping
from appliance.core.pools import REHEARSAL
from appliance.core.sentences import Sentence, unpack
from appliance.tenants import record_for_appliance

from . import records
from .folders import delete_leftovers
from .isolation import clean_environment, command_of
from .records import Claim
from .results import RehearsalResult
from .status import find_due

log = logging.getLogger(__name__)
NICE = 15
_POLL_SECONDS = 0.5
_MOST_TEXT = 1000
# The settings of this process that its child needs, of which the configuration file may be anywhere.
_PASSED = {
    "backup": ("endpoint", "ca_file", "region", "key_id", "secret_key", "path_style"),
    "sandbox": ("runtimes", "first_user"),
    "master_key": ("source", "credential", "command", "command_seconds"),
}
# Of the bucket, if there is one without keys in the settings.
_CREDENTIALS = (
    "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_ROLE_ARN",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
)  # fmt: skip


class RehearsalRunner(ClaimRunner[Claim]):
    """The rehearsals of the appliance, of which all processes together make one at a time."""

    leases, lease_ms, pool, label = records.LEASES, records.LEASE_MS, REHEARSAL, "rehearsal"

    def __init__(self, config: Config, instance: str, is_alive: Callable[[str], bool]) -> None:
        super().__init__(instance, is_alive)
        self._config = config

    def request(self, actor: str = "system") -> int:
        """Request a rehearsal and return its number.  Conflict while one is running."""
        number, claim = db.write(partial(self._insert, actor))
        if claim is not None:
            self.submit(claim)
        return number

    def _insert(self, actor: str) -> tuple[int, Claim | None]:
        number = records.insert()
        record_for_appliance("backup.rehearse", str(number), actor=actor)
        return number, self.claim(Lease((number,), 0, None, 0)) if self._config.server.run_workers else None

    def start_due(self) -> None:
        """Start a rehearsal if one is due.  Called periodically in processes with workers."""
        rehearsals = records.list_rehearsals()
        due = find_due(self._config, rehearsals)
        if due is None or due > clock.now_ms() or self.is_stopping or self._newest() is None:
            return
        last = rehearsals[0].number if rehearsals else 0
        claim = db.write(partial(records.insert_due, last, self.instance))
        if claim is not None:
            self.submit(claim)

    def claim(self, lost: Lease) -> Claim | None:
        return records.claim(lost, self.instance)

    def work(self, claim: Claim) -> None:
        delete_leftovers(self._config)
        name = self._newest()
        if name is None:
            self._finish(claim, None, Sentence("there is no backup yet that this machine can read"))
            return
        source = address_of(self._config, name)
        db.write(partial(records.begin, claim, source))
        try:
            result, problem = self._rehearse(claim, source)
        finally:
            delete_leftovers(self._config)
        self._finish(claim, result, problem)

    def _finish(self, claim: Claim, result: RehearsalResult | None, problem: str | None) -> None:
        if problem is not None:
            log.error("The rehearsal of a restore failed.", extra={"fields": {"reason": problem}})
        db.write(partial(records.finish, claim, result, problem))

    def record_failure(self, claim: Claim, error: ApplianceError) -> None:
        records.finish(claim, None, error.message)

    def _newest(self) -> str | None:
        """The name of the newest backup; None without one, or when its bucket cannot be reached."""
        try:
            return next((each.name for each in list_backups(self._config)), None)
        except ApplianceError:
            return None

    # -- the process

    def _rehearse(self, claim: Claim, source: str) -> tuple[RehearsalResult | None, str | None]:
        """Run `gos backup rehearse`; Stopping, LeaseLost end it with everything that it has started."""
        config = self._config
        arguments = ["--config", os.devnull, "--data", str(config.data), "backup", "rehearse", source, "--json"]
        if config.master_key.source == "file":
            arguments += ["--key", str(config.data / KEY_FILE)]
        if config.backup.passphrase:
            arguments += ["--passphrase-file", "-"]
        process = subprocess.Popen(  # noqa: S603  our own module
            command_of(arguments, nice=NICE), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env=self._environment(), cwd="/", start_new_session=True,
        )  # fmt: skip
        sent: bytes | None = config.backup.passphrase.encode()
        while True:
            try:
                output, errors = process.communicate(sent, timeout=_POLL_SECONDS)
                break
            except subprocess.TimeoutExpired:
                sent = None
                self._end_if_lost(claim, process)
        if process.returncode == 0:
            return RehearsalResult(**json.loads(output)), None
        if output:  # the problem as a sentence, in addition to its line
            return None, unpack(json.loads(output)["problem"])
        lines = errors.decode("utf8", "replace").strip().splitlines() or [f"its process ended with {process.returncode}"]
        return None, lines[-1].removeprefix("gos: ")[:_MOST_TEXT]

    def _end_if_lost(self, claim: Claim, process: "subprocess.Popen[bytes]") -> None:
        """End the process when the appliance is stopping, or another process makes the rehearsal."""
        try:
            if not self.is_stopping:
                self.leases.check(claim.key, claim.fence)
                return
        except LeaseLost:
            _kill(process)
            raise
        _kill(process)
        raise Stopping

    def _environment(self) -> dict[str, str]:
        settings = {
            f"GOS_{section.upper()}_{name.upper()}": _to_text(getattr(getattr(self._config, section), name))
            for section, names in _PASSED.items()
            for name in names
        }
        credentials = {name: environment(name) or "" for name in _CREDENTIALS if environment(name)}
        return clean_environment(self._config) | settings | credentials


def _to_text(value: object) -> str:
    """A value as the variable of a setting has it."""
    if isinstance(value, tuple):
        return json.dumps(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _kill(process: "subprocess.Popen[bytes]") -> None:
    """Kill the session of the process; what that has started dies with it."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:  # it has just ended
        log.debug("the rehearsal had ended already")
    process.communicate()
