"""The operator's command that sets and removes DNS records for an authority's questions (DNS-01)."""

import os
import signal
import subprocess
from collections.abc import Sequence
from typing import Literal

_MOST_SHOWN = 500


class HookFailed(Exception):
    """The command did not do it; the message says how it ended."""


def run_hook(command: Sequence[str], verb: Literal["add", "remove"], record: tuple[str, str], seconds: float) -> None:
    """`command… add|remove NAME VALUE`, without a shell; HookFailed unless it ends with 0 within `seconds`.

    It has to return when the name servers answer with the record.  Beside a wildcard a name may need two values at once.
    """
    try:
        process = subprocess.Popen(  # noqa: S603  the operator's own setting
            [*command, verb, *record], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            start_new_session=True, cwd="/",
        )  # fmt: skip
    except OSError as error:
        raise HookFailed(f"acme.dns_hook cannot be started: {error.strerror}") from error
    try:
        output, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired as error:
        os.killpg(process.pid, signal.SIGKILL)  # what it started, too: it is the first of its session
        process.communicate()
        raise HookFailed(f"acme.dns_hook has not ended within {seconds:g} s") from error
    if process.returncode:
        said = output.decode("utf-8", "replace").strip()[-_MOST_SHOWN:]
        raise HookFailed(f"acme.dns_hook ended with {process.returncode}: {said}")
