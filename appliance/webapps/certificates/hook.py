"""Runs the operator's command that adds and removes DNS records for DNS-01 challenges."""

import os
import signal
import subprocess
import threading
from collections.abc import Sequence
from typing import Literal

from appliance.core import clock

from .orders import Stopped

_MAX_OUTPUT = 500
_POLL_SECONDS = 0.2


class HookFailed(Exception):
    """The command failed; the message says how."""


def run_hook(
    command: Sequence[str], verb: Literal["add", "remove"], record: tuple[str, str], seconds: float, stopping: threading.Event
) -> None:
    """Run `command… add|remove NAME VALUE` without a shell. Raises HookFailed unless it exits with 0 within `seconds`, and
    Stopped as soon as this process is stopping.

    The command must return only when the name servers serve the record. A name and its wildcard may need two values at the same
    time.
    """
    if stopping.is_set():
        raise Stopped
    try:
        process = subprocess.Popen(  # noqa: S603  the operator's own setting
            [*command, verb, *record], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            start_new_session=True, cwd="/",
        )  # fmt: skip
    except OSError as error:
        raise HookFailed(f"acme.dns_hook could not be started: {error.strerror}") from error
    output = _read_to_end(process, seconds, stopping)
    if process.returncode:
        text = output.decode("utf-8", "replace").strip()[-_MAX_OUTPUT:]
        raise HookFailed(f"acme.dns_hook exited with status {process.returncode}: {text}")


def _read_to_end(process: subprocess.Popen[bytes], seconds: float, stopping: threading.Event) -> bytes:
    deadline = clock.monotonic() + seconds
    while True:
        try:
            return process.communicate(timeout=min(_POLL_SECONDS, seconds))[0]
        except subprocess.TimeoutExpired as error:
            if not stopping.is_set() and clock.monotonic() < deadline:
                continue
            os.killpg(process.pid, signal.SIGKILL)  # the whole session, so that its child processes end too
            process.communicate()
            if stopping.is_set():
                raise Stopped from error
            raise HookFailed(f"acme.dns_hook did not finish within {seconds:g} s") from error
