"""The thread that ships points: it looks for commits several times a second, and stores them every second or few."""

import fcntl
import logging
import math
import os
import shutil
import threading
from dataclasses import replace
from pathlib import Path

from appliance.backups.backup_folder import describe_error
from appliance.backups.buckets.addresses import is_bucket
from appliance.backups.creation import OPEN_FILES, SECRET_FILES, files_of
from appliance.backups.envelope import check_passphrase, refuse_unencrypted
from appliance.backups.locked_folders import is_abandoned
from appliance.blobs import Places, read_installation
from appliance.core import clock
from appliance.core.config import Config
from appliance.core.database import db
from appliance.core.errors import ApplianceError

from .archives import Archive, make_archive
from .bases import BaseMaker, BaseRequest
from .chains import ChainShipper
from .contents import DRAFTS, ContentShipper
from .merging import NICENESS, ChainMerger
from .purging import purge
from .status import PointStatus, load_status, save_status
from .stores import open_point_store
from .wal import LogChanged

log = logging.getLogger(__name__)
LOOK_SECONDS, MOST_PAUSE_SECONDS = 0.25, 1.0
FOLDER_SECONDS, BUCKET_SECONDS = 1.0, 5.0
"""Between two shipments, while something changes."""
RETRY_SECONDS, BASE_RETRY_SECONDS = 5.0, 60.0
FILES_SECONDS = 10.0
"""Between two looks whether the files of the data folder have changed."""
NOTE_SECONDS = 10.0
BASE_MS = 24 * 3_600_000
MOST_HELD_BYTES = 256 << 20
"""What waits in the log while the place cannot be reached; with more, the chain is given up, and another begins later."""
STOP_SECONDS = 10.0


class PointShipper:
    """Ships from `start` to `stop`, if `backup.points_to` is set; does nothing otherwise.

    `lag` is for how many seconds not everything was shipped.
    """

    def __init__(self, config: Config, places: Places) -> None:
        self._config, self._places = config, places
        self._stopping = threading.Event()
        self._deadline = math.inf
        self._thread: threading.Thread | None = None
        self._chain: ChainShipper | None = None
        self._bases: _Bases | None = None
        self._looker: _Looker | None = None
        self._started_at, self._chain_began_at = clock.now_ms(), 0.0
        self._status = PointStatus(place=config.backup.points_to)
        self._ship_at = self._note_at = self._retry_at = 0.0

    @property
    def is_on(self) -> bool:
        return bool(self._config.backup.points_to)

    @property
    def status(self) -> PointStatus:
        """What was achieved last."""
        return self._status

    def start(self) -> None:
        """Begin to ship, in a thread of its own."""
        if self.is_on and db.is_sqlite():
            former = load_status(self._config.data)
            self._status = former if former.place == self._config.backup.points_to else self._status
            self._thread = threading.Thread(target=self._run, name="points", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Ship the rest, within STOP_SECONDS, and end; call it after the last write."""
        self._deadline = clock.monotonic() + STOP_SECONDS
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(STOP_SECONDS * 2)
            if self._thread.is_alive():
                log.warning("The place of the points does not answer; what was not shipped is in the next base.")
            self._thread = None

    def lag(self) -> float:
        """For how many seconds changes may not be shipped; 0 when it is off."""
        since = max(self._status.point_at, self._started_at)
        return max(0.0, (clock.now_ms() - since) / 1000) if self._thread is not None else 0.0

    def _is_late(self) -> bool:
        """Whether the appliance has stopped, and waits no longer."""
        return clock.monotonic() > self._deadline

    def _run(self) -> None:
        lock = _acquire(self._config.data / DRAFTS, self._stopping)
        if lock is None:
            return
        try:
            while not self._stopping.is_set():
                self._attempt()
                self._stopping.wait(self._pause())
            self._ship_at = self._note_at = 0.0
            self._attempt(is_last=True)
            if clock.monotonic() < self._deadline + STOP_SECONDS:  # else the process ends without this thread
                self._end_chain()
        finally:
            os.close(lock)

    def _pause(self) -> float:
        """Seconds until there may be something to do: what is new is seen by another thread meanwhile."""
        return min(MOST_PAUSE_SECONDS, max(LOOK_SECONDS, self._ship_at - clock.monotonic()))

    def _attempt(self, *, is_last: bool = False) -> None:
        try:
            if clock.monotonic() >= self._retry_at or is_last:
                self._step(is_last=is_last)
        except LogChanged as error:
            log.warning("A new chain of points begins: %s.", error)
            if clock.monotonic() < self._chain_began_at + BASE_RETRY_SECONDS:
                self._retry_at = clock.monotonic() + RETRY_SECONDS
            self._end_chain()
        except Exception as error:  # noqa: BLE001  logged, in the status, and tried again
            self._note_problem(error)

    def _step(self, *, is_last: bool) -> None:
        if self._chain is None:
            if is_last:
                return
            self._begin_chain()
        chain, bases = self._chain, self._bases
        if chain is None or bases is None:
            return
        chain.look()
        if clock.monotonic() >= self._ship_at:
            chain.ship()
            self._ship_at = clock.monotonic() + (BUCKET_SECONDS if is_bucket(self._config.backup.points_to) else FOLDER_SECONDS)
            chain.restart_log()
        if not is_last:
            bases.make_due(chain)
            if bases.last_at:
                chain.merger.merge_due()
        has_new_base = bases.last_at > self._status.base_at
        through = chain.through if bases.last_at else 0  # nothing can be restored without a base
        self._status = replace(self._status, point_at=max(self._status.point_at, through), problem=bases.problem)
        if has_new_base or clock.monotonic() >= self._note_at:
            chain.note_through()
            self._save()
            self._note_at = clock.monotonic() + NOTE_SECONDS

    def _begin_chain(self) -> None:
        config, data = self._config, self._config.data
        place, passphrase = config.backup.points_to, config.backup.passphrase or None
        if is_bucket(place):
            refuse_unencrypted(passphrase)
        if passphrase is not None:
            check_passphrase(passphrase)
        archive = make_archive(open_point_store(config, place, retries=1), read_installation(config), passphrase)
        archive.store.tidy(archive.path)
        contents = ContentShipper(data, self._places, archive, self._is_late)
        database = Path(config.database_url.removeprefix("sqlite:///"))
        self._chain = ChainShipper(database, archive, contents, self._stopping.is_set)
        self._chain_began_at = clock.monotonic()
        self._looker = _Looker(self._chain)
        self._bases = _Bases(config, archive, contents, self._stopping, self._chain.merger)
        self._ship_at = self._note_at = 0.0

    def _end_chain(self) -> None:
        chain, bases, looker = self._chain, self._bases, self._looker
        if bases is not None:
            bases.stop()
            self._save()
        self._chain = self._bases = self._looker = None
        if looker is not None:
            looker.stop()
        if chain is not None:
            chain.close()

    def _note_problem(self, error: Exception) -> None:
        problem = describe_error(error, Path(self._config.backup.points_to))
        if problem != self._status.problem:  # logged once, as it is tried again every few seconds
            cause = None if isinstance(error, ApplianceError) else error
            log.error("Points are not shipped; it is tried again every %s s: %s", RETRY_SECONDS, problem, exc_info=cause)
        since = self._status.problem_at if self._status.problem else clock.now_ms()
        self._status = replace(self._status, problem=problem, problem_at=since)
        self._save()
        self._retry_at = clock.monotonic() + RETRY_SECONDS
        if self._chain is not None and self._chain.held_bytes > MOST_HELD_BYTES:
            log.error("The chain of points is given up: too much waits in the write-ahead log.")
            self._end_chain()

    def _save(self) -> None:
        base_at, first_at = (self._bases.last_at, self._bases.first_at) if self._bases is not None else (0, 0)
        self._status = replace(
            self._status, place=self._config.backup.points_to, base_at=base_at or self._status.base_at,
            first_at=first_at or self._status.first_at or base_at,
        )  # fmt: skip
        try:
            save_status(self._config.data, self._status)
        except OSError as error:  # a full disk must not end the shipping
            log.warning("The status of the points cannot be saved: %s", error)


class _Looker:
    """Looks at a chain several times a second, also while it is shipped, so that the time of each commit is known."""

    def __init__(self, chain: ChainShipper) -> None:
        self._chain, self._stopping = chain, threading.Event()
        self._thread = threading.Thread(target=self._run, name="points-look", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopping.wait(LOOK_SECONDS):
            try:
                self._chain.look()
            except LogChanged:  # the thread that ships gets the same from its next look
                return
            except OSError:
                log.exception("The write-ahead log cannot be read.")
                return

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()


class _Bases:
    """Makes the bases of a chain, in a thread of its own, so that the log is shipped meanwhile."""

    def __init__(
        self, config: Config, archive: Archive, contents: ContentShipper, stopping: threading.Event, merger: ChainMerger
    ) -> None:
        self._config, self._archive, self._contents, self._stopping, self._merger = config, archive, contents, stopping, merger
        self._is_ending = False
        self._maker = BaseMaker(config, archive, contents, lambda: stopping.is_set() or self._is_ending)
        self._thread: threading.Thread | None = None
        self._files: object = None
        self._look_at = 0.0
        self.first_at = self.last_at = 0
        self.problem = ""

    def make_due(self, chain: ChainShipper) -> None:
        """Begin a base if one is due: the first, one a day, and when the files of the data folder have changed."""
        if clock.monotonic() < self._look_at or (self._thread is not None and self._thread.is_alive()):
            return
        self._look_at = clock.monotonic() + (FILES_SECONDS if not self.problem else BASE_RETRY_SECONDS)
        if self.last_at and not self.problem and not self._is_due():
            return
        self._files = self._sign_files()
        self._contents.begin_base()
        request = chain.begin_base()
        self._thread = threading.Thread(target=self._make, args=(request,), name="points-base", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._is_ending = True
        if self._thread is not None:
            self._thread.join()

    def _is_due(self) -> bool:
        now = clock.now_ms()
        return now >= self.last_at + BASE_MS or now < self.last_at - BASE_MS or self._files != self._sign_files()

    def _sign_files(self) -> object:
        data = self._config.data
        names = (*OPEN_FILES, *(SECRET_FILES if self._archive.is_encrypted else ()))
        return [(str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in files_of(data, names)]

    def _make(self, request: BaseRequest) -> None:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)  # Linux has a priority per thread
        try:
            size = self._maker.make(request)
            self.last_at, self.problem = request.time, ""
            log.info("A base of points is complete.", extra={"fields": {"time": clock.rfc3339(request.time), "bytes": size}})
            with self._merger.lock:
                before = clock.now_ms() - clock.parse_duration(self._config.backup.points_for)
                self.first_at = purge(self._archive, self._contents, before)
        except Exception as error:  # noqa: BLE001  logged, in the status, and tried again
            if not (self._stopping.is_set() or self._is_ending):
                self.problem = describe_error(error, self._config.data)
                db.log_failure(log, error, "a base of points failed; it will be tried again in %s s", BASE_RETRY_SECONDS)
        finally:
            request.copy.close()  # which keeps the log from beginning again


def _acquire(folder: Path, stopping: threading.Event) -> int | None:
    """The lock of the one process that ships, once it is free, and delete what killed ones left; None when it stops before."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor = os.open(folder / "lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if stopping.wait(RETRY_SECONDS):
                os.close(descriptor)
                return None
        else:
            for path in folder.glob("base-*"):
                if is_abandoned(path):
                    shutil.rmtree(path, ignore_errors=True)
            return descriptor

