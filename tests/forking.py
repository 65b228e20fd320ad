"""Processes that have read the modules of the appliance before they begin."""

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
    """A process of its own session that calls `called`, which answers its exit code; what it writes goes to `log`.

    It is a fork of one that has no threads, opened nothing and was started once: nothing that a test did is in it, and nothing
    of `GOS_*` in its environment.
    """

    def __init__(self, called: Callable[..., int], *given: Any, log: Path) -> None:
        self._process = _server.Process(target=_begin, args=(called, given, str(log)))
        self._process.start()
        assert self._process.pid is not None
        self.pid: int = self._process.pid

    def poll(self) -> int | None:
        """The exit code, negative for a signal; None while it lives."""
        return self._process.exitcode

    def wait(self, seconds: float | None = None) -> int:
        """The exit code, once it has ended; TimeoutError when it still lives after so many seconds."""
        self._process.join(seconds)
        code = self._process.exitcode
        if code is None:
            raise TimeoutError(f"process {self.pid} still lives after {seconds} s")
        return code

    def terminate(self) -> None:
        """SIGTERM, while it lives."""
        self._process.terminate()


def _begin(called: Callable[..., int], given: tuple[Any, ...], log: str) -> None:
    os.setsid()
    with Path(log).open("ab") as out:
        os.dup2(out.fileno(), 1)
        os.dup2(out.fileno(), 2)
    os.chdir(ROOT)
    for name in [name for name in os.environ if name.startswith("GOS_")]:
        del os.environ[name]
    sys.exit(called(*given))
