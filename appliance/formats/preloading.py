"""The appliance's side of a preloaded process: started on first use, ended after a period without use."""

import json
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

IDLE_SECONDS = 120.0
ENVIRONMENT = {"LC_ALL": "C.UTF-8", "MALLOC_ARENA_MAX": "2", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
_BOOT = "import sys; sys.path[:] = {path!r}; from appliance.formats.{module} import main; main(sys.argv[1:])"


def start_process(
    module: str, settings: Mapping[str, Any], descriptors: Sequence[int], **streams: Any
) -> "subprocess.Popen[bytes]":
    """Start one of our modules as a process that inherits only these descriptors and a minimal environment."""
    boot = _BOOT.format(path=[each for each in sys.path if each], module=module)
    return subprocess.Popen(  # noqa: S603  our own interpreter and module
        [sys.executable, "-I", "-S", "-c", boot, json.dumps(settings)],
        stdout=subprocess.DEVNULL, env=ENVIRONMENT, cwd="/", pass_fds=descriptors, **streams,
    )  # fmt: skip


class ForkedWorker:
    """A forked worker with the interface of a started process.

    `leave` is called when it ends, with whether the process that forked it has crashed.
    """

    def __init__(self, replies: socket.socket, leave: Callable[[bool], None]) -> None:
        self._replies, self._on_end = replies, leave

    def kill(self) -> None:
        """Ask the forking process to kill the worker if it is still running."""
        self._replies.shutdown(socket.SHUT_WR)

    def wait(self) -> int:
        """Wait for the worker; returns its exit status, or 1 if the process that forked it has crashed."""
        with self._replies:
            status = self._replies.recv(16)
        self._on_end(not status)
        return int(status or 1)


class PreloadedProcess:
    """Keeps a process with one operation loaded while it is in use; thread-safe."""

    def __init__(self, operation: str, idle_seconds: float = IDLE_SECONDS) -> None:
        self._operation, self._idle_seconds = operation, idle_seconds
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._requests: socket.socket | None = None
        self._users = 0
        self._idle_timer: threading.Timer | None = None

    @property
    def process_id(self) -> int | None:
        """The id of the preloaded process, or None if there is none."""
        process = self._process
        return process.pid if process is not None and process.poll() is None else None

    def fork(self, settings: Mapping[str, Any], descriptors: Sequence[int]) -> ForkedWorker:
        """Fork a worker; the descriptors are its options, errors, output, answer and inputs, in this order."""
        ours, theirs = socket.socketpair()
        with self._lock, theirs:
            request = [json.dumps(settings).encode()], [theirs.fileno(), *descriptors]
            requests = self._requests if self.process_id is not None else None
            try:
                socket.send_fds(requests or self._start(), *request)
            except OSError:  # The process crashed just now.
                socket.send_fds(self._start(), *request)
            process = self._process
            self._users += 1
            if self._idle_timer is not None:
                self._idle_timer.cancel()
        return ForkedWorker(ours, lambda is_lost: self._release(process if is_lost else None))

    def stop(self) -> None:
        """End the process, with any worker; the next use starts it again."""
        with self._lock:
            if self._idle_timer is not None:
                self._idle_timer.cancel()
            self._end()

    def _release(self, crashed: "subprocess.Popen[bytes] | None") -> None:
        """Count down the users; `lost` is a process that crashed before it reported its worker, and is not used again."""
        with self._lock:
            if crashed is not None and crashed is self._process:
                self._end()
            self._users -= 1
            if not self._users:
                self._idle_timer = threading.Timer(self._idle_seconds, self._end_if_idle)
                self._idle_timer.daemon = True
                self._idle_timer.start()

    def _end_if_idle(self) -> None:
        with self._lock:
            if not self._users:
                self._end()

    def _end(self) -> None:
        if self._requests is not None and self._process is not None:
            self._requests.close()
            self._process.wait()
        self._requests = self._process = None

    def _start(self) -> socket.socket:
        self._end()
        self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            settings = {"operation": self._operation, "requests": theirs.fileno()}
            streams = {"stdin": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
            self._process = start_process("forking", settings, [theirs.fileno()], **streams)
        return self._requests
