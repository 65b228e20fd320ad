"""Every content on its way into a document is shown to the scanner of the installation, one command, before it is kept.

The command gets the path of the file as its last argument (or in the place of `{file}`); it answers with its exit status:
0 clean, 1 infected, anything else, or nothing in time: it could not say.
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
from pathlib import Path
from typing import Literal

from appliance.blobs import Blobs, Places, Received, StoredBlob
from appliance.core import clock
from appliance.core.database import db
from appliance.core.errors import ApplianceError, ConfigInvalid
from appliance.core.scope import TenantScope
from appliance.core.sections import Scan
from appliance.core.sentences import Sentence
from appliance.documents.sharing.delivery_models import ScanRow
from appliance.documents.turns import Turns
from appliance.monitor import audit, tenant_ids

log = logging.getLogger(__name__)
PLACE = "{file}"
AT_ONCE, WAITING, WAIT_SECONDS = 4, 12, 30.0
COPIES, LEFT_MS, FORGOTTEN_MS = "scan-", 3_600_000, 48 * 3_600_000
LONGEST_OUTPUT, LONGEST_FINDING = 64 << 10, 200
ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}


class Infected(ApplianceError):
    """The scanner knows the content as malware."""

    code, status = "infected", 422


class ScanFailed(ApplianceError):
    """The scanner could not say whether a content is clean."""

    code, status = "scan_failed", 503


@dataclass(frozen=True)
class Verdict:
    """What the scanner said, and the last line it wrote."""

    state: Literal["clean", "infected", "unknown"]
    finding: str


@dataclass(frozen=True)
class Scanner:
    """The command of `scan.command`, with what happens when it cannot say."""

    command: Sequence[str]
    timeout_s: float
    on_error: Literal["refuse", "quarantine"] = "refuse"

    def look_at(self, path: Path) -> Verdict:
        """The verdict on a file: no shell, no environment of ours, no input, and an end after `timeout_s`.  Overloaded."""
        given = [part.replace(PLACE, str(path)) for part in self.command]
        if not any(PLACE in part for part in self.command):
            given.append(str(path))
        with _running.taken():
            try:
                return self._run(given)
            except OSError as error:
                return Verdict("unknown", f"{self.command[0]} does not start: {error.strerror}")

    def _run(self, command: Sequence[str]) -> Verdict:
        started = subprocess.Popen(  # noqa: S603  the operator's own command, without a shell
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=ENVIRONMENT, cwd="/",
            start_new_session=True,
        )  # fmt: skip
        too_late = threading.Event()
        overdue = threading.Timer(self.timeout_s, partial(_kill, started.pid, too_late))
        overdue.start()
        try:
            with started:
                output = _read_end(started)
        finally:
            overdue.cancel()
        if too_late.is_set():
            return Verdict("unknown", f"it said nothing within {self.timeout_s:g} s")
        finding = _last_line(output)
        if started.returncode in (0, 1):
            return Verdict("clean" if started.returncode == 0 else "infected", finding)
        return Verdict("unknown", finding or f"it ended with status {started.returncode}")


_running = Turns("the scanner", AT_ONCE, WAITING, WAIT_SECONDS)


def _kill(pid: int, too_late: threading.Event) -> None:
    """End the command with all it has started: it leads a group of its own."""
    too_late.set()
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        log.info("the scanner ended at the last moment")


def _read_end(started: subprocess.Popen[bytes]) -> bytes:
    """The end of what the command writes; its beginning is of no use."""
    output = b""
    if started.stdout is not None:
        while piece := os.read(started.stdout.fileno(), 1 << 14):
            output = (output + piece)[-LONGEST_OUTPUT:]
    return output


def _last_line(output: bytes) -> str:
    lines = [line.strip() for line in output.decode("utf-8", "replace").splitlines() if line.strip()]
    found = [line for line in lines if line.endswith("FOUND")] or lines[-1:]  # clamdscan sums up behind what it found
    plain = "".join(letter for letter in (found[0] if found else "") if letter.isprintable())
    return plain.rpartition(": ")[2][:LONGEST_FINDING]  # without the path of our own


class ScannedBlobs(Blobs):
    """A blob store that takes nothing the scanner has not seen: the one door of everything that becomes a document."""

    def __init__(self, places: Places, holders: Iterable[str], scanner: Scanner) -> None:
        super().__init__(places, holders)
        self._scanner = scanner

    def put_all(self, scope: TenantScope, received: Sequence[Received], *, is_counted: bool = False) -> list[StoredBlob]:
        """As Blobs; Infected, Overloaded, and ScanFailed unless what cannot be judged is put in quarantine."""
        try:
            for each in received:
                self._judge(scope, each)
        except BaseException:
            for each in received:
                each.discard()
            raise
        return super().put_all(scope, received, is_counted=is_counted)

    def _judge(self, scope: TenantScope, received: Received) -> None:
        verdict = self._scanner.look_at(received.path)
        if verdict.state == "infected":
            self._refuse(scope, received, verdict)
        if verdict.state == "unknown" and self._scanner.on_error == "refuse":
            log.error("the scanner could not look at an upload", extra={"fields": {"finding": verdict.finding}})
            raise ScanFailed(
                "the file could not be scanned for malware; try again in a moment, and tell the operator if it goes on",
                headers={"Retry-After": "30"},
            )
        if verdict.state == "unknown":
            log.error("a content is in quarantine", extra={"fields": {"sha256": received.sha256, "finding": verdict.finding}})
            db.write(partial(_set_state, scope, received.sha256, "quarantined", verdict.finding))
        elif scope.find(ScanRow, sha256=received.sha256) is not None:
            db.write(partial(_forget, scope, received.sha256))

    def _refuse(self, scope: TenantScope, received: Received, verdict: Verdict) -> None:
        told = {"sha256": received.sha256, "finding": verdict.finding}
        db.write(partial(audit.record, scope, "document.infected", received.sha256, told))
        name = verdict.finding or "the scanner gave no name"
        raise Infected(Sentence("the file is malware (%(name)s) and was not kept", name=name), extra={"finding": verdict.finding})

    def scan_again(self, folder: Path) -> int:
        """Look again at what is in quarantine, over copies in `folder`; answers how many contents are free now."""
        freed = 0
        _forget_strays(folder)
        with tempfile.TemporaryDirectory(prefix=COPIES, dir=folder) as copies:
            for tenant_id in tenant_ids():
                scope = TenantScope(tenant_id, "system")
                for row in list(scope.select(ScanRow).where(ScanRow.state == "quarantined")):
                    freed += self._scan_again(scope, row.sha256, Path(copies))
        return freed

    def _scan_again(self, scope: TenantScope, sha256: str, folder: Path) -> int:
        path = folder / f"{scope.tenant_id}-{sha256}"
        try:
            self.copy_to(scope, sha256, path)
            verdict = self._scanner.look_at(path)
        except ApplianceError as error:
            log.warning("a content in quarantine cannot be read: %s", error.message)
            return 0
        finally:
            path.unlink(missing_ok=True)
        if verdict.state == "unknown":
            return 0
        if verdict.state == "clean":
            db.write(partial(_forget, scope, sha256))
            return 1

        def condemn() -> None:
            _set_state(scope, sha256, "infected", verdict.finding)
            audit.record(scope, "document.infected", sha256, {"sha256": sha256, "finding": verdict.finding})

        db.write(condemn)
        return 0


def incoming_blobs(settings: Scan, places: Places, holders: Iterable[str]) -> Blobs:
    """The store that documents come in by: with the scanner of the settings, or plain without one.  ConfigInvalid."""
    if not settings.command:
        return Blobs(places, holders)
    check_command(settings.command)
    return ScannedBlobs(places, holders, Scanner(settings.command, settings.timeout_s, settings.on_error))


def check_command(command: Sequence[str]) -> None:
    """ConfigInvalid unless the command is one that can be started."""
    if command and not (Path(command[0]).is_absolute() and os.access(command[0], os.X_OK)):
        raise ConfigInvalid(
            Sentence("scan.command: %(command)s must be the absolute path of a program that may be run", command=repr(command[0]))
        )


def eicar() -> bytes:
    """The harmless text that every scanner takes for malware (EICAR), put together here so that it stands in no file of ours."""
    return b"".join([b"X5O!P%@AP[4\\PZX54(P^)7CC)7}", b"$EICAR-", b"STANDARD-ANTI", b"VIRUS-TEST-FILE!", b"$H+H*"])


def _forget_strays(folder: Path) -> None:
    """Copies that a killed process has left, and what is known of contents that were never kept or are collected."""
    for left in folder.glob(f"{COPIES}*"):
        try:
            if left.stat().st_mtime_ns // 1_000_000 < clock.now_ms() - LEFT_MS:
                shutil.rmtree(left)
        except FileNotFoundError:  # another process has ended its own
            continue
    before = clock.now_ms() - FORGOTTEN_MS  # the content of a row may still be on its way
    db.write(
        lambda: db.execute(
            "DELETE FROM document_scan WHERE scanned_at < ? AND NOT EXISTS "
            "(SELECT 1 FROM blob b WHERE b.tenant_id = document_scan.tenant_id AND b.sha256 = document_scan.sha256)",
            (before,),
        )
    )


def _set_state(scope: TenantScope, sha256: str, state: str, finding: str) -> None:
    values = {"state": state, "finding": finding, "scanned_at": clock.now_ms()}
    if not scope.update(ScanRow, **values).where(ScanRow.sha256 == sha256).execute():
        scope.insert(ScanRow, sha256=sha256, **values)


def _forget(scope: TenantScope, sha256: str) -> None:
    scope.delete(ScanRow).where(ScanRow.sha256 == sha256).execute()
