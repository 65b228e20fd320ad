"""A process that has loaded one operation and forks a worker for each request, so that no request waits for its loading.

It sees no content itself: a worker opens what it is given when it has given up everything else, and serves one request.
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
from .worker import work

MOST_REQUEST, MOST_FILES = 1 << 16, 64
ANY_SIZE = 1 << 62


@dataclass(frozen=True)
class _Worker:
    """`asker` is told the status; `life` ends with the process, which nobody else holds the other end of."""

    pid: int
    asker: socket.socket
    life: int


def main(arguments: list[str]) -> None:
    """Serve until the appliance closes its end of the socket, or is gone."""
    settings = json.loads(arguments[0])
    confinement.confine(written_bytes=ANY_SIZE)
    with suppress(Exception):  # each worker meets it again, and tells it
        OPERATIONS[settings["operation"]].load()
    _Forks(socket.socket(fileno=settings["requests"])).serve()
    os._exit(0)


class _Forks:
    """The workers there are, by the descriptors that speak of them."""

    def __init__(self, requests: socket.socket) -> None:
        self._requests = requests
        self._workers: dict[int, _Worker] = {}
        self._waiting = select.poll()
        self._waiting.register(requests, select.POLLIN)

    def serve(self) -> None:
        while True:
            descriptor, _ = self._waiting.poll()[0]  # one at a time: its number may be another's afterwards
            worker = self._workers.get(descriptor)
            if worker is None:
                data, files, _, _ = socket.recv_fds(self._requests, MOST_REQUEST, MOST_FILES)
                if not data:
                    return
                self._fork(json.loads(data), files)
            elif descriptor == worker.life:
                self._reap(worker)
            else:  # whoever asked wants it no longer
                self._forget(descriptor)
                os.kill(worker.pid, signal.SIGKILL)

    def _fork(self, settings: dict[str, Any], files: list[int]) -> None:
        """`files` are the asker's socket, the options, the errors, the output, the answer, and the inputs."""
        life, held = os.pipe()
        parent = os.getpid()
        if (pid := os.fork()) == 0:
            try:
                for each in (life, files[0], self._requests.fileno(), *self._workers):
                    os.close(each)
                _begin(settings | {"parent": parent}, files)
            finally:
                traceback.print_exc()
                os._exit(1)
        for each in (held, *files[1:]):
            os.close(each)
        worker = _Worker(pid, socket.socket(fileno=files[0]), life)
        for each in (worker.asker.fileno(), life):
            self._workers[each] = worker
            self._waiting.register(each, select.POLLIN)

    def _reap(self, worker: _Worker) -> None:
        _, status = os.waitpid(worker.pid, 0)
        for each in (worker.life, worker.asker.fileno()):
            self._forget(each)
        os.close(worker.life)
        with worker.asker, suppress(OSError):  # who is gone need not be told
            worker.asker.send(str(os.waitstatus_to_exitcode(status)).encode())

    def _forget(self, descriptor: int) -> None:
        if self._workers.pop(descriptor, None) is not None:
            self._waiting.unregister(descriptor)


def _begin(settings: dict[str, Any], files: list[int]) -> None:
    _, options, errors, output, answer, *inputs = files
    os.dup2(options, 0)
    os.dup2(errors, 2)
    sys.stdin = os.fdopen(0, encoding="utf8", closefd=False)
    work(settings | {"output": output, "answer": answer, "inputs": inputs})
