"""Parse untrusted content in a separate process: `run_apart` starts it, and the module it runs calls `stand_apart` first."""

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
    """The output of a separate process; `failed` when it crashed or hit a limit, with the last line of its standard error."""

    output: bytes
    failed: bool
    last_words: str = ""


class TookTooLong(Exception):
    """The process did not finish before the deadline and was killed."""


def run_apart(module: str, options: Mapping[str, Any], content: bytes, deadline: float) -> Apart:
    """Run `python -m module` and return its output; TookTooLong after `deadline`, a time of `time.monotonic()`.

    The process reads the options as JSON from the first line of its standard input, followed by the content.
    """
    with subprocess.Popen(  # noqa: S603 - our own interpreter, and a module a plugin names
        [sys.executable, "-I", "-m", module],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd="/", env={"LC_ALL": "C.UTF-8"},
    ) as process:  # fmt: skip
        try:
            stdin = json.dumps(dict(options)).encode() + b"\n" + content
            output, errors = process.communicate(stdin, timeout=max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired as late:
            raise TookTooLong from late
        finally:
            process.kill()
    words = errors.decode("utf-8", "replace").strip().splitlines()
    return Apart(output, process.returncode != 0, words[-1][:500] if words else "")


def stand_apart(memory_mb: int, cpu_seconds: int) -> tuple[dict[str, Any], bytes]:
    """Drop privileges, set the limits, and return the options and the content.  The separate process calls this first."""
    confinement.confine(memory_mb << 20, 0)
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds))
    options = json.loads(sys.stdin.buffer.readline())
    return options, sys.stdin.buffer.read()


def memory_used_kb() -> int:
    """Return this process's peak memory in KiB.  getrusage is not used because it includes the parent's memory at the start."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))
