"""Runs the command blocks of README and docs as a reader would."""

import os
import re
import signal
import subprocess
import threading
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path

from appliance.connectors.testing import free_port
from tests.architecture.source_tree import ROOT

FENCE = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<text>.*?)^```\s*$", re.MULTILINE | re.DOTALL)
SHELLS = {"bash", "shell", "console", "shell-session", "zsh"}
START, UNVERIFIED = "start", "unverified:"
DOCUMENTED_PORT = "8080"
READY_WITHIN = 120.0
DONE_WITHIN = 180.0


@dataclass(frozen=True)
class Block:
    """One fenced block of commands: a `start` runs until the page ends, an unverified one gives the reason it cannot run here."""

    line: int
    text: str
    starts: bool
    unverified: str


@dataclass
class Reader:
    """Follows one page from top to bottom: own data folder, own port, failing HTTP answers fail the command.

    Pages that begin with the same start share one appliance: `running` has the reader that started it, by the block's text.
    """

    home: Path
    port: int = 0
    running: "dict[str, Reader]" = field(default_factory=dict)
    data: Path = Path()
    started: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.port = self.port or free_port()
        self.data = self.home / "data"

    def environment(self) -> dict[str, str]:
        (self.home / ".curlrc").write_text("fail-with-body\nsilent\nshow-error\n")
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("GOS_")}
        own = {"HOME": str(self.home), "GOS_DATA": str(self.data), "GOS_PORT": str(self.port), "NO_COLOR": "1"}
        return inherited | own

    def follow(self, block: Block) -> None:
        script = block.text.replace(DOCUMENTED_PORT, str(self.port))
        if block.text in self.running:
            self.join(self.running[block.text])
            return
        if block.starts:
            self.start(script)
            return
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=ROOT,
            env=self.environment(),
            capture_output=True,
            text=True,
            timeout=DONE_WITHIN,
            check=False,
        )
        assert done.returncode == 0, f"line {block.line}: {script}\n{done.stdout}\n{done.stderr}"

    def start(self, script: str) -> None:
        command = ["bash", "-euo", "pipefail", "-c", script]
        with (self.home / "start.log").open("wb") as log:
            process = subprocess.Popen(command, cwd=ROOT, env=self.environment(), stdout=log, stderr=log, start_new_session=True)
        self.started.append(process)
        deadline = time.monotonic() + READY_WITHIN
        pause = threading.Event()
        while not is_ready(self.port):
            assert process.poll() is None, f"the start ended: {(self.home / 'start.log').read_text()}"
            assert time.monotonic() < deadline, f"not ready in time: {(self.home / 'start.log').read_text()}"
            pause.wait(0.1)

    def join(self, other: "Reader") -> None:
        """Continue with the running appliance of another reader."""
        assert is_ready(other.port), f"it runs no more: {(other.home / 'start.log').read_text()}"
        assert not self.data.exists(), "commands before a shared start would use another appliance"
        self.port, self.data = other.port, other.data

    def stop(self) -> None:
        while self.started:
            process = self.started.pop()
            os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(40)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                raise


def is_ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=2) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def blocks_of(page: str) -> list[Block]:
    """The blocks that a reader would run: language `sh`, then nothing, `start`, or `unverified: reason`."""
    blocks = []
    for match in FENCE.finditer(page):
        language, _, rest = match["info"].strip().partition(" ")
        line = page.count("\n", 0, match.start()) + 1
        assert language not in SHELLS, f"line {line}: write ```sh, so that the commands are run by the tests"
        if language == "sh":
            reason = rest.removeprefix(UNVERIFIED).strip() if rest.startswith(UNVERIFIED) else ""
            assert rest in ("", START) or reason, f"line {line}: after `sh` comes nothing, `start` or `unverified: reason`"
            blocks.append(Block(line, match["text"], rest == START, reason))
    return blocks
