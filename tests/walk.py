"""`python -m tests.walk`: the packages that `POST …/execute` enters between the socket and its first commit, in order.

Every function call of the appliance is recorded, in the threads that serve the request: the event loop, a thread of the API
and the writer.
"""

import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import appliance

HOUSE = Path(appliance.__file__).parent
WRITER, ENTRANCE = "db-writer", "processes/service.py"
THREADS = ("server", "api_", WRITER)
PROCESS = {"id": "one", "steps": [{"id": "a", "rule": {"expression": "= input.n + 1"}}]}


@dataclass
class Recorder:
    """Records the modules whose functions are called, until the write with the execution is committed."""

    modules: dict[str, None] = field(default_factory=dict)
    is_on: bool = False
    has_execution: bool = False

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        thread = threading.current_thread().name
        if not self.is_on or event != "call" or not thread.startswith(THREADS):
            return
        if thread == WRITER and ENTRANCE not in self.modules:
            return  # it still writes for others
        path = Path(frame.f_code.co_filename)
        if not path.is_relative_to(HOUSE):
            return
        self.modules.setdefault(path.relative_to(HOUSE).as_posix())
        self.has_execution |= frame.f_code.co_name == "insert_execution"
        if self.has_execution and frame.f_code.co_name == "commit_write":
            self.is_on = False

    @property
    def rooms(self) -> list[str]:
        """The top-level packages, in the order in which they were entered."""
        return list(dict.fromkeys(module.split("/")[0] for module in self.modules))


@contextmanager
def profiled(recorder: Recorder) -> Iterator[None]:
    """Threads that start meanwhile are recorded."""
    threading.setprofile(recorder)
    try:
        yield
    finally:
        threading.setprofile(None)


def walk() -> Recorder:
    """Execute a process in an appliance of its own; the second execution is recorded, when everything is loaded."""
    from appliance.testing.running import make_config, start

    recorder = Recorder()
    with tempfile.TemporaryDirectory() as folder, profiled(recorder):
        running = start(make_config(Path(folder)))
        try:
            with running.api("acme") as api:
                api.post("/api/v1/processes", json=PROCESS).raise_for_status()
                api.post("/api/v1/processes/one/publish", json={}).raise_for_status()
                api.post("/api/v1/processes/one/execute?wait=30", json={"n": 1}).raise_for_status()
                recorder.is_on = True
                api.post("/api/v1/processes/one/execute", json={"n": 1}).raise_for_status()
        finally:
            running.stop()
    return recorder


def main() -> int:
    recorder = walk()
    for room in recorder.rooms:
        print(room, *(f"  {module}" for module in recorder.modules if module.split("/")[0] == room), sep="\n")
    return 0 if recorder.modules and not recorder.is_on else 1


if __name__ == "__main__":
    sys.exit(main())
