"""Runtimes of which only those are prepared that the start needs, and processes that stand in for those that compile."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from appliance.sandbox import runtimes

# Prepares a part as `prepare` would, once it may: with the lock, step by step, the manifest last.
_PREPARE = """
import json, sys
from pathlib import Path
from appliance.sandbox import runtimes
folder, name, go = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
with runtimes.lock(folder):
    if name in runtimes.read_manifest(folder)["parts"]:
        sys.exit(0)
    with (folder / "compiled").open("a") as record:
        print(name, file=record)
    print(f"    compiling {name} …", end="", file=sys.stderr, flush=True)
    verdict = Path(go).read_text()  # waits for a writer
    if verdict != "go":
        sys.exit("\\n" + verdict)
    manifest = runtimes.read_manifest(folder)
    manifest["parts"][name] = json.loads((folder / "later.json").read_bytes())[name]
    runtimes.save(folder, manifest)
"""


class Preparation:
    """A folder without the runtimes that are prepared in the background, whose preparation ends when `finish` says so."""

    def __init__(self, folder: Path) -> None:
        whole = runtimes.default_folder()
        manifest = runtimes.read_manifest(whole)
        for path in whole.iterdir():
            if path.name not in (runtimes.MANIFEST, runtimes.LOCK, "npm", "licenses"):
                (folder / path.name).symlink_to(path)
        parts = manifest["parts"]
        later = {name: parts.pop(name) for name in runtimes.DEFERRED}
        (folder / "later.json").write_text(json.dumps(later))
        runtimes.save(folder, manifest)
        for name in runtimes.DEFERRED:
            os.mkfifo(folder / f"{name}.fifo")
        self.folder = folder
        self.children: list[subprocess.Popen[bytes]] = []

    def launch(self, folder: Path, name: str) -> subprocess.Popen[bytes]:
        """What `background.launch` does, without the work."""
        command = [sys.executable, "-c", _PREPARE, str(folder), name, str(self.folder / f"{name}.fifo")]
        child = subprocess.Popen(
            command, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}, stderr=subprocess.PIPE, start_new_session=True
        )
        self.children.append(child)
        return child

    def compiled(self) -> list[str]:
        """The runtimes that were compiled, by any process."""
        return (self.folder / "compiled").read_text().split()

    def finish(self, name: str, verdict: str = "go") -> None:
        """Let the preparation of a runtime end: successfully, or with this message."""
        (self.folder / f"{name}.fifo").write_text(verdict)
