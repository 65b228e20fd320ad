"""The order of the steps of an upgrade, and of its rehearsal."""

import dataclasses
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from appliance import migrations
from appliance.backups import full_disks
from appliance.backups.rehearsal import temporary_folder
from appliance.core import clock
from appliance.core.config import Config
from appliance.core.sentences import Sentence

from . import journal as journals
from .candidates import FileCandidate
from .checks import Plan, connector_problems, failing_as, file_of, make_plan, opened_database, refuse_full_disk, refuse_running
from .files import copy_file, exclusive_file
from .journal import DONE, FAILED, PREPARING, SWAPPING, Journal, copy_of, upgrade_lock
from .options import UpgradeOptions, UpgradeResult
from .problems import UpgradeFailed
from .rehearsing import CANDIDATE, is_on_server, prepare_server, time_keeping, try_copy
from .servers import copy_aside
from .settling import settle
from .swapping import migrate_compared
from .trials import Trial, try_out

_FAILED = Sentence("the migrations of the database failed, and all of them were undone")
# The space of how many databases is needed at a time: a copy that is tried out and its log; of an upgrade also the former database.
_COPIES_OF_REHEARSAL, _COPIES = 2, 3
_COPIES_BESIDE_SERVER = 1  # of the former rows, which are kept in a file


def rehearse(config: Config, options: UpgradeOptions) -> UpgradeResult:
    """Upgrade a copy and try it out, also while the appliance runs; nothing stays, and nothing else is changed."""
    plan = _check(config, options, _COPIES_OF_REHEARSAL)
    trial, copy_ms = try_copy(config, options)
    problems = _refuse_problems(options, (*connector_problems(config), *trial.problems))
    # An upgrade copies the former database aside, hashes it, copies it again, and migrates that and then the database.
    copies_ms = copy_ms + time_keeping(config, options) if is_on_server(config, options) else 3 * copy_ms
    down_ms = copies_ms + trial.total_ms + trial.migrate_ms
    options.report("rehearsed", f"nothing was changed; the upgrade will stop the appliance for about {down_ms / 1000:.0f} s")
    return _to_result(plan, trial, problems, down_ms=down_ms)


def upgrade(config: Config, options: UpgradeOptions) -> UpgradeResult:
    """Bring the data of the stopped appliance to this release, or leave it as it is.

    Conflict while an appliance runs, UpgradeFailed if the data cannot be upgraded: nothing has changed then.  A process that is
    killed leaves the old database or the new one, and the next upgrade says which.
    """
    make_plan(config)  # before the lock, which makes a folder
    with upgrade_lock(config.data):
        refuse_running(config)
        settle(config, options.report)
        plan = _check(config, options, _COPIES)
        if not plan.pending:
            options.report("done", "the database has the schema of this release: start it")
            return UpgradeResult(plan.from_number, plan.to_number, (), is_changed=False)
        problems = _refuse_problems(options, tuple(connector_problems(config)))
        start, run = clock.monotonic(), _Run(config, plan, options)
        trial = run.upgrade()
        down_ms = round((clock.monotonic() - start) * 1000)
    options.report("done", f"the database has the schema of this release, after {down_ms / 1000:.1f} s: start it")
    return dataclasses.replace(_to_result(plan, trial, (*problems, *trial.problems), down_ms=down_ms), is_changed=True)


def _check(config: Config, options: UpgradeOptions, copies: int) -> Plan:
    plan = make_plan(config)
    prepare_server(config, options)
    refuse_full_disk(config, plan, _COPIES_BESIDE_SERVER if is_on_server(config, options) else copies)
    options.report(
        "check", f"configuration, master key and disk space are as needed; {plan.pending} migrations are pending, from "
        f"{plan.from_number} to {plan.to_number}, on {plan.size / (1 << 20):.1f} MiB"
    )  # fmt: skip
    return plan


def _refuse_problems(options: UpgradeOptions, problems: tuple[str, ...]) -> tuple[str, ...]:
    """UpgradeFailed for problems, unless the upgrade is to go on despite them."""
    for each in problems:
        options.report("problem", each)
    if problems and not options.despite_problems:
        raise UpgradeFailed(Sentence(
            "%(first)s. Nothing was changed; mend it with the release that runs now, or add --despite-problems: an upgrade neither "
            "causes nor repairs it", first=problems[0],
        ))
    return problems


def _to_result(plan: Plan, trial: Trial, problems: tuple[str, ...], *, down_ms: int) -> UpgradeResult:
    return UpgradeResult(
        plan.from_number, plan.to_number, trial.migrations, is_changed=False, rows=trial.rows, migrate_ms=trial.migrate_ms,
        start_ms=trial.start_ms, down_ms=down_ms, problems=problems,
    )  # fmt: skip


class _Run:
    """One upgrade, with its journal; the lock is held."""

    def __init__(self, config: Config, plan: Plan, options: UpgradeOptions) -> None:
        self._config, self._plan = config, plan
        self._options = dataclasses.replace(options, report=self._record)
        self._report = options.report
        self._journal = Journal(PREPARING, plan.from_number, plan.to_number, str(Path(sys.prefix).parent), clock.now_ms())

    def upgrade(self) -> Trial:
        """Prepare, then swap.  UpgradeFailed or another error leaves the former database."""
        copy_of(self._config.data).unlink(missing_ok=True)  # of an earlier upgrade
        self._save()
        with self._recording_failure():
            file = file_of(self._config)
            trial = self._upgrade_server() if file is None else self._upgrade_file(file)
        self._save(state=DONE, ended_at=clock.now_ms())
        self._record("swap", "the database itself was migrated and compared, in one transaction")
        return trial

    def _upgrade_file(self, path: Path) -> Trial:
        with exclusive_file(path) as file, full_disks(), temporary_folder(self._config) as room:
            copy = copy_of(self._config.data)
            self._save(copy_sha256=file.copy_to(copy), copied_at=clock.now_ms())
            self._record("copy", f"the former database is kept as {copy}")
            candidate = room / CANDIDATE
            copy_file(copy, candidate)
            trial = try_out(FileCandidate(self._config, room, candidate, is_live=False), self._options)
            _refuse_problems(self._options, trial.problems)
            self._save(state=SWAPPING)
            with failing_as(_FAILED), file.transaction():
                migrate_compared()
        return trial

    def _upgrade_server(self) -> Trial:
        trial, _ = try_copy(self._config, self._options)
        _refuse_problems(self._options, trial.problems)
        self._save(state=SWAPPING)
        with failing_as(_FAILED), opened_database(self._config):
            migrate_compared(self._copy_server, migrations.mark_unused)
        return trial

    def _copy_server(self) -> None:
        copy = copy_of(self._config.data)
        with full_disks():
            self._save(copy_sha256=copy_aside(copy), copied_at=clock.now_ms())
        self._record("copy", f"the rows of the former database are kept in {copy}")

    @contextmanager
    def _recording_failure(self) -> Iterator[None]:
        """Record why an upgrade failed; one that is killed is settled by the next."""
        try:
            yield
        except Exception as error:
            if self._journal.state == SWAPPING:
                settle(self._config, self._report)
            else:
                copy_of(self._config.data).unlink(missing_ok=True)
                self._save(state=FAILED, ended_at=clock.now_ms(), copy_sha256="", problem=str(error))
                self._report("failed", "nothing was changed: start the former release")
            raise

    def _record(self, step: str, text: str) -> None:
        self._journal = self._journal.with_step(step, text)
        self._save()
        self._report(step, text)

    def _save(self, **changes: object) -> None:
        self._journal = dataclasses.replace(self._journal, **changes)  # type: ignore[arg-type]
        journals.save_journal(self._config.data, self._journal)


