"""Scans every content for malware before it is stored in a document, with a command configured by the operator.

The command gets the path of the file as its last argument, or in place of `{file}`. Its exit status is the result: 0 clean, 1
infected, anything else (or a timeout) unknown.
"""

import logging
import os
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Literal

from appliance.blobs import Blobs, Places, ReceivedFile, StoredBlob, stored_sizes
from appliance.core import clock
from appliance.core.config.sections import Scan
from appliance.core.database import db
from appliance.core.errors import ApplianceError, ConfigInvalid
from appliance.core.scope import TenantScope, tenant_ids
from appliance.core.sentences import Sentence
from appliance.documents.bounded_work import BoundedWork
from appliance.documents.sharing.delivery_models import ScanRow
from appliance.monitor import audit

log = logging.getLogger(__name__)
PLACEHOLDER = "{file}"
MAX_RUNNING, MAX_WAITING, WAIT_SECONDS = 4, 12, 30.0
COPY_PREFIX, STRAY_AFTER_MS, FORGET_AFTER_MS = "scan-", 3_600_000, 48 * 3_600_000
LONGEST_OUTPUT, LONGEST_FINDING = 64 << 10, 200
ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}


class Infected(ApplianceError):
    """The scanner detected malware in the content."""

    code, status = "infected", 422


class ScanFailed(ApplianceError):
    """The scanner could not determine whether the content is clean."""

    code, status = "scan_failed", 503


@dataclass(frozen=True)
class ScanResult:
    """The result of a scan, and the last line that the scanner printed."""

    state: Literal["clean", "infected", "unknown"]
    finding: str


@dataclass(frozen=True)
class Scanner:
    """The command of `scan.command`, and what to do when the result is unknown."""

    command: Sequence[str]
    timeout_s: float
    on_error: Literal["refuse", "quarantine"] = "refuse"

    def scan(self, path: Path) -> ScanResult:
        """Scan a file: without a shell, our environment or input, and with a timeout of `timeout_s`. Overloaded."""
        command = [part.replace(PLACEHOLDER, str(path)) for part in self.command]
        if not any(PLACEHOLDER in part for part in self.command):
            command.append(str(path))
        with _running.slot():
            try:
                return self._run(command)
            except OSError as error:
                return ScanResult("unknown", f"{self.command[0]} could not be started: {error.strerror}")

    def _run(self, command: Sequence[str]) -> ScanResult:
        process = subprocess.Popen(  # noqa: S603  the operator's own command, without a shell
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=ENVIRONMENT, cwd="/",
            start_new_session=True,
        )  # fmt: skip
        timed_out = threading.Event()
        timer = threading.Timer(self.timeout_s, partial(_kill, process.pid, timed_out))
        timer.start()
        try:
            with process:
                output = _read_output_end(process)
        finally:
            timer.cancel()
        if timed_out.is_set():
            return ScanResult("unknown", f"no result within {self.timeout_s:g} s")
        finding = _last_line(output)
        if process.returncode in (0, 1):
            return ScanResult("clean" if process.returncode == 0 else "infected", finding)
        return ScanResult("unknown", finding or f"exit status {process.returncode}")


_running = BoundedWork("the malware scanner", MAX_RUNNING, MAX_WAITING, WAIT_SECONDS)


def _kill(pid: int, timed_out: threading.Event) -> None:
    """Kill the command and its children, which share its process group."""
    timed_out.set()
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        log.info("the scanner ended just before it was killed")


def _read_output_end(process: subprocess.Popen[bytes]) -> bytes:
    """The end of the command's output."""
    output = b""
    if process.stdout is not None:
        while piece := os.read(process.stdout.fileno(), 1 << 14):
            output = (output + piece)[-LONGEST_OUTPUT:]
    return output


def _last_line(output: bytes) -> str:
    lines = [line.strip() for line in output.decode("utf-8", "replace").splitlines() if line.strip()]
    candidates = [line for line in lines if line.endswith("FOUND")] or lines[-1:]  # clamdscan prints a summary after its findings
    printable = "".join(letter for letter in (candidates[0] if candidates else "") if letter.isprintable())
    return printable.rpartition(": ")[2][:LONGEST_FINDING]  # without the path of the temporary file


class ScannedBlobs(Blobs):
    """A blob store that scans every content before storing it; everything that becomes a document goes through it."""

    def __init__(self, places: Places, holders: Iterable[str], scanner: Scanner) -> None:
        super().__init__(places, holders)
        self._scanner = scanner

    def put_all(self, scope: TenantScope, received: Sequence[ReceivedFile], *, is_counted: bool = False) -> list[StoredBlob]:
        """Like Blobs.put_all; Infected, Overloaded, and ScanFailed unless contents with an unknown result are quarantined."""
        try:
            for item in received:
                self._scan_received(scope, item)
        except BaseException:
            for item in received:
                item.discard()
            raise
        return super().put_all(scope, received, is_counted=is_counted)

    def _scan_received(self, scope: TenantScope, received: ReceivedFile) -> None:
        result = self._scanner.scan(received.path)
        if result.state == "infected":
            self._reject(scope, received, result)
        if result.state == "unknown" and self._scanner.on_error == "refuse":
            log.error("the scanner could not scan an upload", extra={"fields": {"finding": result.finding}})
            raise ScanFailed(
                "the file could not be scanned for malware; try again in a moment, and tell the operator if it keeps failing",
                headers={"Retry-After": "30"},
            )
        if result.state == "unknown":
            log.error("a content was quarantined", extra={"fields": {"sha256": received.sha256, "finding": result.finding}})
            db.write(partial(_set_state, scope, received.sha256, "quarantined", result.finding))
        elif scope.find(ScanRow, sha256=received.sha256) is not None:
            db.write(partial(_delete_row, scope, received.sha256))

    def _reject(self, scope: TenantScope, received: ReceivedFile, result: ScanResult) -> None:
        data = {"sha256": received.sha256, "finding": result.finding}
        db.write(partial(audit.record, scope, "document.infected", received.sha256, data))
        message = Sentence("the file contains malware (%(name)s) and was not stored", name=result.finding or "unnamed")
        raise Infected(message, extra={"finding": result.finding})

    def rescan_quarantined(self, folder: Path) -> int:
        """Scan quarantined contents again, using copies in `folder`; returns how many are clean now."""
        freed = 0
        _delete_strays(folder)
        with tempfile.TemporaryDirectory(prefix=COPY_PREFIX, dir=folder) as copies:
            for tenant_id in tenant_ids():
                scope = TenantScope(tenant_id, "system")
                for row in list(scope.select(ScanRow).where(ScanRow.state == "quarantined")):
                    freed += self._rescan(scope, row.sha256, Path(copies))
        return freed

    def _rescan(self, scope: TenantScope, sha256: str, folder: Path) -> int:
        path = folder / f"{scope.tenant_id}-{sha256}"
        try:
            self.copy_to(scope, sha256, path)
            result = self._scanner.scan(path)
        except ApplianceError as error:
            log.warning("a quarantined content could not be read: %s", error.message)
            return 0
        finally:
            path.unlink(missing_ok=True)
        if result.state == "unknown":
            return 0
        if result.state == "clean":
            db.write(partial(_delete_row, scope, sha256))
            return 1

        def mark_infected() -> None:
            _set_state(scope, sha256, "infected", result.finding)
            audit.record(scope, "document.infected", sha256, {"sha256": sha256, "finding": result.finding})

        db.write(mark_infected)
        return 0


def incoming_blobs(settings: Scan, places: Places, holders: Iterable[str]) -> Blobs:
    """Build the blob store for incoming documents, with the configured scanner if there is one. ConfigInvalid."""
    if not settings.command:
        return Blobs(places, holders)
    check_command(settings.command)
    return ScannedBlobs(places, holders, Scanner(settings.command, settings.timeout_s, settings.on_error))


def check_command(command: Sequence[str]) -> None:
    """ConfigInvalid unless the command can be started."""
    if command and not (Path(command[0]).is_absolute() and os.access(command[0], os.X_OK)):
        raise ConfigInvalid(
            Sentence("scan.command: %(command)s must be the absolute path of an executable", command=repr(command[0]))
        )


def eicar() -> bytes:
    """The harmless EICAR test file, which every scanner detects; assembled here so that no file of ours contains it."""
    return b"".join([b"X5O!P%@AP[4\\PZX54(P^)7CC)7}", b"$EICAR-", b"STANDARD-ANTI", b"VIRUS-TEST-FILE!", b"$H+H*"])


def _delete_strays(folder: Path) -> None:
    """Delete copies left by a killed process, and rows of contents that were never stored or have been collected."""
    for copy in folder.glob(f"{COPY_PREFIX}*"):
        try:
            if copy.stat().st_mtime_ns // 1_000_000 < clock.now_ms() - STRAY_AFTER_MS:
                shutil.rmtree(copy)
        except FileNotFoundError:  # deleted by another process
            continue
    before = clock.now_ms() - FORGET_AFTER_MS  # the content of a newer row may still be on its way
    db.write(partial(_forget_collected, before))


def _forget_collected(before: int) -> None:
    """Inside a write: delete the rows from before that time whose contents are not stored; few contents have a row."""
    rows = db.rows("SELECT tenant_id, sha256 FROM document_scan WHERE scanned_at < ? ORDER BY tenant_id", (before,))
    for tenant_id, group in groupby(rows, itemgetter(0)):
        scope, scanned = TenantScope(str(tenant_id), "system"), [str(sha256) for _, sha256 in group]
        for sha256 in sorted(set(scanned) - stored_sizes(scope, scanned).keys()):
            scope.delete(ScanRow).where(ScanRow.sha256 == sha256, ScanRow.scanned_at < before).execute()


def _set_state(scope: TenantScope, sha256: str, state: str, finding: str) -> None:
    values = {"state": state, "finding": finding, "scanned_at": clock.now_ms()}
    if not scope.update(ScanRow, **values).where(ScanRow.sha256 == sha256).execute():
        scope.insert(ScanRow, sha256=sha256, **values)


def _delete_row(scope: TenantScope, sha256: str) -> None:
    scope.delete(ScanRow).where(ScanRow.sha256 == sha256).execute()
