"""Prepares in the background what the appliance can start without, and says how far that is."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from appliance.core import clock
from appliance.core.errors import Overloaded
from appliance.core.sentences import Sentence
from appliance.core.texts import mark_error
from appliance.sandbox import runtimes
from appliance.sandbox.runtimes import PreparedPart, Runtimes, RuntimesMissing

log = logging.getLogger(__name__)

# How long one runtime may take, how soon a failed preparation is tried again, and how often to look after another process's.
LONGEST_SECONDS, RETRY_SECONDS, LOOK_SECONDS = 1800.0, 300.0, 1.0
TITLES: dict[str, str] = {"php": "PHP", "types": mark_error("the type checker")}
State = Literal["ready", "preparing", "failed"]
Launch = Callable[[Path, str], "subprocess.Popen[bytes]"]
_BOOT = "import sys; sys.path[:] = {path!r}; from appliance.sandbox.runtimes.prepare import main; sys.exit(main())"
_CHUNK = 4000
# A compilation frees most of what it allocates. With one arena, and blocks from 64 KB mapped on their own, glibc returns it to the
# system, so that the process has at most 100 MB less; it takes 7 % more CPU time.
_MEMORY = ("MALLOC_ARENA_MAX=1", "MALLOC_MMAP_THRESHOLD_=65536", "MALLOC_TRIM_THRESHOLD_=131072")


class RuntimePreparing(Overloaded):
    """A runtime is not ready yet; the message says which, and for how long it has been prepared."""


@dataclass(frozen=True)
class RuntimeStatus:
    """A runtime that can be prepared in the background; `detail` is the current step, or why preparing it failed.

    `seconds` is how long this process has been waiting for it.
    """

    name: str
    state: State
    detail: str = ""
    seconds: int = 0

    def describe(self) -> str | None:
        """A sentence about a runtime that is not ready; None if it is."""
        if self.state == "ready":
            return None
        if self.state == "failed":
            return Sentence("%(runtime)s could not be prepared: %(reason)s", runtime=self.title, reason=self.detail)
        return Sentence("%(runtime)s is still being prepared, for %(seconds)s s so far", runtime=self.title, seconds=self.seconds)

    @property
    def title(self) -> str:
        """The name for people."""
        return TITLES[self.name]


def launch(folder: Path, name: str) -> subprocess.Popen[bytes]:
    """Start a process, and process group, that prepares one runtime and then ends; its progress goes to `stderr`."""
    boot = _BOOT.format(path=[each for each in sys.path if each])
    command = ["/usr/bin/env", *_MEMORY, sys.executable, "-c", boot, "--background", "--out", str(folder), "--only", name]
    return subprocess.Popen(  # noqa: S603  our own module
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True
    )


class RuntimeFolder:
    """The prepared runtimes of a folder, and the preparation of those that are missing. Thread-safe.

    Each missing runtime is prepared by a process of its own, and only one in the folder at a time, whichever appliance or worker
    started it. Raises RuntimesMissing if the folder does not have what the start needs.
    """

    def __init__(self, folder: Path, launch: Launch | None = None) -> None:
        self._folder, self._launch = folder, launch
        self._loaded = runtimes.load(folder)
        self._changed = threading.Condition()
        self._steps: dict[str, str] = {}
        self._failures: dict[str, str] = {}
        self._since = clock.monotonic()
        self._is_stopping = False
        self._thread: threading.Thread | None = None
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def loaded(self) -> Runtimes:
        """The runtimes as they were when last read."""
        return self._loaded

    def part(self, name: str) -> PreparedPart:
        """A prepared runtime; RuntimePreparing while it is being prepared, RuntimesMissing if it is not or cannot be."""
        if name in self._missing():
            status = self._status(name)
            raise (RuntimePreparing if status.state == "preparing" else RuntimesMissing)(status.describe() or "")
        return self._loaded.parts[name]

    def await_part(self, name: str, seconds: float) -> None:
        """Wait while a runtime is being prepared in the background, at most this long."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_stopping or not self._is_awaited(name), seconds)

    def statuses(self) -> list[RuntimeStatus]:
        """The state of every runtime that can be prepared in the background."""
        missing = self._missing()
        return [self._status(name) if name in missing else RuntimeStatus(name, "ready") for name in runtimes.DEFERRED]

    def start(self) -> None:
        """Prepare in the background what is missing."""
        if self._missing():
            self._thread = threading.Thread(target=self._prepare_all, name="runtimes", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """End the preparation; what was finished stays, and the next start continues with the rest."""
        with self._changed:
            self._is_stopping = True
            self._changed.notify_all()
            if self._child is not None:
                _kill(self._child)
        if self._thread is not None:
            self._thread.join()

    def _missing(self) -> list[str]:
        missing = [name for name in runtimes.DEFERRED if name not in self._loaded.parts]
        if missing and self._thread is None:  # otherwise the thread reads them when they have changed
            return self._read()
        return missing

    def _read(self) -> list[str]:
        """Read the folder again; returns what is missing."""
        self._loaded = loaded = runtimes.load(self._folder)
        return [name for name in runtimes.DEFERRED if name not in loaded.parts]

    def _is_awaited(self, name: str) -> bool:
        return self._thread is not None and name not in self._loaded.parts and name not in self._failures

    def _status(self, name: str) -> RuntimeStatus:
        seconds = round(clock.monotonic() - self._since)
        with self._changed:
            failure, step = self._failures.get(name), self._steps.get(name, "")
            if failure is not None:
                return RuntimeStatus(name, "failed", failure, seconds)
            if self._thread is not None or runtimes.is_locked(self._folder):
                return RuntimeStatus(name, "preparing", step, seconds)
        return RuntimeStatus(name, "failed", runtimes.advice(self._folder), seconds)

    # ---- the thread

    def _prepare_all(self) -> None:
        while missing := self._read():
            # A process that somebody else started in this folder is waited for, and its work is taken over if it ends early.
            pause = LOOK_SECONDS
            if not runtimes.is_locked(self._folder):
                for name in missing:
                    self._prepare(name)
                pause = RETRY_SECONDS if self._read() else 0.0
            with self._changed:
                self._changed.notify_all()
                if self._changed.wait_for(lambda: self._is_stopping, pause):
                    return

    def _prepare(self, name: str) -> None:
        title = TITLES[name]
        log.info("preparing %s in the background", title)
        began = clock.monotonic()
        try:
            failure = self._run(name)
        except OSError as error:
            failure = str(error)
        with self._changed:
            if self._is_stopping:
                return
            self._steps.pop(name, None)
            self._failures.pop(name, None)
            if failure is not None:
                self._failures[name] = failure
        if failure is None:
            log.info("%s is ready after %.0f s", title, clock.monotonic() - began)
        else:
            log.error("%s could not be prepared, next attempt in %.0f s: %s", title, RETRY_SECONDS, failure)
        self._read()
        with self._changed:
            self._changed.notify_all()

    def _run(self, name: str) -> str | None:
        """Run the process that prepares a runtime; returns the reason if it failed."""
        with self._changed:
            if self._is_stopping:
                return None
            child = self._child = (self._launch or launch)(self._folder, name)
        deadline = threading.Timer(LONGEST_SECONDS, _kill, (child,))
        deadline.daemon = True
        deadline.start()
        try:
            lines = self._follow(name, child)
            code = child.wait()
        finally:
            deadline.cancel()
            with self._changed:
                self._child = None
        if code == 0:
            return None
        if code < 0:
            return Sentence("its process was ended by signal %(number)s; does this machine have enough memory?", number=-code)
        return lines[-1] if lines else Sentence("its process ended with exit status %(number)s", number=code)

    def _follow(self, name: str, child: subprocess.Popen[bytes]) -> list[str]:
        """Note each step that the process reports, until it closes its output; returns the last lines."""
        lines: list[str] = []
        if child.stderr is None:
            return lines
        with child.stderr as output:
            text = ""
            while chunk := os.read(output.fileno(), _CHUNK):
                text = (text + chunk.decode(errors="replace"))[-_CHUNK:]
                lines = [line.strip() for line in text.splitlines() if line.strip()]
                with self._changed:
                    self._steps[name] = lines[-1].partition(" …")[0] if lines else ""
        return lines


def _kill(child: subprocess.Popen[bytes]) -> None:
    """End a preparation with the programs that it has started."""
    if child.poll() is None:
        os.killpg(child.pid, signal.SIGKILL)
