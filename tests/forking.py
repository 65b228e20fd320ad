"""Processes that start with the modules of the appliance already imported."""

import multiprocessing
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
_server = multiprocessing.get_context("forkserver")
_server.set_forkserver_preload(["__main__", "appliance.app.composition", "appliance.cli.serve", "tests.chaos.launcher"])


class Forked:
    """A process with its own session that calls `function`, whose result is the exit code; its output goes to `log`.

    It is a fork of a server process that has no threads and opened nothing, so it shares no state with the tests. Its
    environment has no `GOS_*` variables.
    """

    def __init__(self, function: Callable[..., int], *args: Any, log: Path) -> None:
        self._process = _server.Process(target=_begin, args=(function, args, str(log)))
        self._process.start()
        assert self._process.pid is not None
        self.pid: int = self._process.pid

    def poll(self) -> int | None:
        """The exit code, negative for a signal; None while the process runs."""
        return self._process.exitcode

    def wait(self, seconds: float | None = None) -> int:
        """Wait for the exit code; raises TimeoutError when the process still runs after `seconds`."""
        self._process.join(seconds)
        code = self._process.exitcode
        if code is None:
            raise TimeoutError(f"process {self.pid} is still running after {seconds} s")
        return code

    def terminate(self) -> None:
        """Send SIGTERM if the process still runs."""
        self._process.terminate()


def _begin(function: Callable[..., int], args: tuple[Any, ...], log: str) -> None:
    os.setsid()
    with Path(log).open("ab") as out:
        os.dup2(out.fileno(), 1)
        os.dup2(out.fileno(), 2)
    os.chdir(ROOT)
    for name in [name for name in os.environ if name.startswith("GOS_")]:
        del os.environ[name]
    sys.exit(function(*args))
