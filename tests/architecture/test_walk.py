"""The way from a request to its first commit stays short."""

import subprocess
import sys

from tests.architecture.source_tree import ROOT


def test_an_execution_is_committed_after_fewer_than_nine_packages() -> None:
    command = [sys.executable, "-m", "tests.walk"]  # a process of its own, whose every thread is recorded from the start
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    rooms = [line for line in run.stdout.splitlines() if not line.startswith(" ")]
    assert {"sites", "api", "processes", "core"} <= set(rooms)
    assert len(rooms) < 9, run.stdout
