"""Reading what nobody trusts in a process of its own: `run_apart` starts it, the module it runs begins with `stand_apart`."""

import json
import resource
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from appliance.core.confinement import confinement


@dataclass(frozen=True)
class Apart:
    """What a process of its own wrote before it ended; `failed` when it ended by a limit or a fault, with its last words."""

    told: bytes
    failed: bool
    last_words: str = ""


class TookTooLong(Exception):
    """The process was ended at the deadline."""


def run_apart(module: str, options: Mapping[str, Any], content: bytes, deadline: float) -> Apart:
    """Run `python -m module` until it ends, `deadline` being a time of `time.monotonic()`; TookTooLong.

    It gets the options as JSON in the first line of its standard input and the content behind it.
    """
    with subprocess.Popen(  # noqa: S603 - our own interpreter, and a module a plugin names
        [sys.executable, "-I", "-m", module],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd="/", env={"LC_ALL": "C.UTF-8"},
    ) as process:  # fmt: skip
        try:
            given = json.dumps(dict(options)).encode() + b"\n" + content
            told, errors = process.communicate(given, timeout=max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired as late:
            raise TookTooLong from late
        finally:
            process.kill()
    words = errors.decode("utf-8", "replace").strip().splitlines()
    return Apart(told, process.returncode != 0, words[-1][:500] if words else "")


def stand_apart(memory_mb: int, cpu_seconds: int) -> tuple[dict[str, Any], bytes]:
    """Called first in that process: gives up what reading does not need, and answers the options and the content."""
    confinement.confine(memory_mb << 20, 0)
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds))
    options = json.loads(sys.stdin.buffer.readline())
    return options, sys.stdin.buffer.read()


def memory_used_kb() -> int:
    """The most memory this process had so far.  Not of getrusage, which counts what its parent had when it started it."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))
