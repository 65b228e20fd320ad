"""A process that preloads one operation and forks a worker per request, so that no request waits for the loading.

It never reads content itself: each worker drops its privileges before it opens the input, and serves a single request.
"""

import json
import os
import select
import signal
import socket
import sys
import traceback
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from appliance.core.confinement import confinement

from .operations import OPERATIONS
from .worker import run

MAX_REQUEST_BYTES, MAX_FILES = 1 << 16, 64
ANY_SIZE = 1 << 62


@dataclass(frozen=True)
class _Worker:
    """A forked worker: its exit status is sent to `asker`; `life` is a pipe that closes when the process ends."""

    pid: int
    requester: socket.socket
    lifeline: int


def main(arguments: list[str]) -> None:
    """Serve until the appliance closes its end of the socket or exits."""
    settings = json.loads(arguments[0])
    confinement.confine(written_bytes=ANY_SIZE)
    with suppress(Exception):  # Each worker loads again and reports the error.
        OPERATIONS[settings["operation"]].load()
    _ForkServer(socket.socket(fileno=settings["requests"])).serve()
    os._exit(0)


class _ForkServer:
    """Forks workers for incoming requests, and tracks them by the descriptors that signal their events."""

    def __init__(self, requests: socket.socket) -> None:
        self._requests = requests
        self._workers: dict[int, _Worker] = {}
        self._poll = select.poll()
        self._poll.register(requests, select.POLLIN)

    def serve(self) -> None:
        while True:
            descriptor, _ = self._poll.poll()[0]  # One at a time, because a closed descriptor's number may be reused.
            worker = self._workers.get(descriptor)
            if worker is None:
                data, files, _, _ = socket.recv_fds(self._requests, MAX_REQUEST_BYTES, MAX_FILES)
                if not data:
                    return
                self._fork(json.loads(data), files)
            elif descriptor == worker.lifeline:
                self._reap(worker)
            else:  # The requester cancelled.
                self._forget(descriptor)
                os.kill(worker.pid, signal.SIGKILL)

    def _fork(self, settings: dict[str, Any], files: list[int]) -> None:
        """Fork a worker; `files` are the requester's socket, the options, errors, output, answer and inputs."""
        life, worker_end = os.pipe()
        parent = os.getpid()
        if (pid := os.fork()) == 0:
            try:
                for each in (life, files[0], self._requests.fileno(), *self._workers):
                    os.close(each)
                _run_worker(settings | {"parent": parent}, files)
            finally:
                traceback.print_exc()
                os._exit(1)
        for each in (worker_end, *files[1:]):
            os.close(each)
        worker = _Worker(pid, socket.socket(fileno=files[0]), life)
        for each in (worker.requester.fileno(), life):
            self._workers[each] = worker
            self._poll.register(each, select.POLLIN)

    def _reap(self, worker: _Worker) -> None:
        _, status = os.waitpid(worker.pid, 0)
        for each in (worker.lifeline, worker.requester.fileno()):
            self._forget(each)
        os.close(worker.lifeline)
        with worker.requester, suppress(OSError):  # The requester may have closed its socket.
            worker.requester.send(str(os.waitstatus_to_exitcode(status)).encode())

    def _forget(self, descriptor: int) -> None:
        if self._workers.pop(descriptor, None) is not None:
            self._poll.unregister(descriptor)


def _run_worker(settings: dict[str, Any], files: list[int]) -> None:
    _, options, errors, output, answer, *inputs = files
    os.dup2(options, 0)
    os.dup2(errors, 2)
    sys.stdin = os.fdopen(0, encoding="utf8", closefd=False)
    run(settings | {"output": output, "answer": answer, "inputs": inputs})
