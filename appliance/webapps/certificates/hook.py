"""The operator's command that sets and removes DNS records for an authority's questions (DNS-01)."""

import os
import signal
import subprocess
import threading
from collections.abc import Sequence
from typing import Literal

from appliance.core import clock

from .orders import Stopped

_MOST_SHOWN = 500
_GLANCE_SECONDS = 0.2


class HookFailed(Exception):
    """The command did not do it; the message says how it ended."""


def run_hook(
    command: Sequence[str], verb: Literal["add", "remove"], record: tuple[str, str], seconds: float, stopping: threading.Event
) -> None:
    """`command… add|remove NAME VALUE`, without a shell; HookFailed unless it ends with 0 within `seconds`, Stopped as soon as
    this process is to end.

    It has to return when the name servers answer with the record.  Beside a wildcard a name may need two values at once.
    """
    if stopping.is_set():
        raise Stopped
    try:
        process = subprocess.Popen(  # noqa: S603  the operator's own setting
            [*command, verb, *record], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            start_new_session=True, cwd="/",
        )  # fmt: skip
    except OSError as error:
        raise HookFailed(f"acme.dns_hook cannot be started: {error.strerror}") from error
    output = _read_to_end(process, seconds, stopping)
    if process.returncode:
        said = output.decode("utf-8", "replace").strip()[-_MOST_SHOWN:]
        raise HookFailed(f"acme.dns_hook ended with {process.returncode}: {said}")


def _read_to_end(process: subprocess.Popen[bytes], seconds: float, stopping: threading.Event) -> bytes:
    ends = clock.monotonic() + seconds
    while True:
        try:
            return process.communicate(timeout=min(_GLANCE_SECONDS, seconds))[0]
        except subprocess.TimeoutExpired as error:
            if not stopping.is_set() and clock.monotonic() < ends:
                continue
            os.killpg(process.pid, signal.SIGKILL)  # what it started, too: it is the first of its session
            process.communicate()
            if stopping.is_set():
                raise Stopped from error
            raise HookFailed(f"acme.dns_hook has not ended within {seconds:g} s") from error
