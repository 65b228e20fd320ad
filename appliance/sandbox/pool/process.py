"""Starts a sandbox process with minimal privileges, and ends it."""

from __future__ import annotations

import json
import logging
import os
import resource
import socket
import struct
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from appliance.core.confinement.user_numbers import TakenUser, take_user
from appliance.core.errors import Overloaded
from appliance.core.sentences import Sentence
from appliance.sandbox.pool.protections import Protections
from appliance.sandbox.wire import ORDER, READY_BYTES, Channel

log = logging.getLogger(__name__)

START_SECONDS = 120.0  # long enough for a busy machine
# How often a thread that waits for an answer checks its deadline, and how long a send to a full socket may block.
POLL_MICROSECONDS, SEND_SECONDS = 100_000, 5
_BOOT = "import sys; sys.path[:] = {path!r}; from appliance.sandbox.worker.worker import main; main(sys.argv[1:])"
_ENVIRONMENT = {"LC_ALL": "C.UTF-8", "MALLOC_ARENA_MAX": "2"}
_TAIL = 2000
# Debian and systemd leave these user ids unassigned, and they exist in containers that map only 65,536 ids.
FIRST_USER, USERS = 65_100, 400


class StartFailed(Overloaded):
    """The process ended before it was ready (the message has the end of its output), or was not ready in time."""


@dataclass(eq=False)
class Process:
    """A running sandbox process. `free` has its unused slots and is guarded by the lock of the lane that owns it."""

    child: subprocess.Popen[bytes]
    control: socket.socket
    errors: IO[bytes]
    user: TakenUser
    started: float = field(default_factory=time.monotonic)
    free: list[Slot] = field(default_factory=list)
    slots: list[Slot] = field(default_factory=list)
    condemned: bool = False
    protections: Protections = field(default_factory=Protections)

    def own_bytes(self) -> int:
        """The private memory of the process in bytes; 0 if it is gone or the system does not report it."""
        try:
            _, resident, shared, *_ = Path(f"/proc/{self.child.pid}/statm").read_text().split()
        except OSError:
            return 0
        return (int(resident) - int(shared)) * resource.getpagesize()

    def end(self) -> None:
        """Kill the process if it is still alive, release its resources, and log the end of its error output."""
        self.child.kill()
        status = self.child.wait()
        self.user.give_back()
        self.control.close()
        for slot in self.slots:
            slot.channel.close()
        last = _last_words(self.errors)
        self.errors.close()
        if last:
            log.error("sandbox process %d ended with %d: %s", self.child.pid, status, last)


@dataclass(eq=False)
class Slot:
    """One connection to a process, used by one thread at a time."""

    process: Process
    channel: Channel
    index: int
    serial: int = 0

    def next_serial(self) -> int:
        """The next serial number of a request, so that a late stop order cannot hit the following request."""
        self.serial = (self.serial + 1) & 0xFFFFFFFF
        return self.serial

    def ask_stop(self) -> None:
        """Order the process to abort the request in this slot at its next deadline check."""
        with suppress(OSError):  # the process is gone, so there is nothing to stop
            self.process.control.send(ORDER.pack(self.index, self.serial))


def _last_words(errors: IO[bytes]) -> str:
    errors.seek(0, os.SEEK_END)
    errors.seek(max(0, errors.tell() - _TAIL))
    return errors.read().decode("utf-8", "replace").strip()


def _pair() -> tuple[socket.socket, socket.socket]:
    ours, theirs = socket.socketpair()
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("@ll", 0, POLL_MICROSECONDS))
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("@ll", SEND_SECONDS, 0))
    return ours, theirs


def launch(settings: dict[str, Any], slots: int) -> Process:
    """Start a process, which is ready after `await_ready`. The calling thread must outlive it: its end kills the process."""
    control, their_control = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pairs = [_pair() for _ in range(slots)]
    theirs = [each for _, each in pairs]
    user = take_user(settings.get("first_user", FIRST_USER), USERS)
    arguments = settings | {
        "parent": os.getpid(),
        "user": user.number or None,
        "control": their_control.fileno(),
        "descriptors": [each.fileno() for each in theirs],
    }
    errors = tempfile.TemporaryFile()  # noqa: SIM115  it lives as long as the process
    try:
        child = subprocess.Popen(  # noqa: S603  our own interpreter and module
            [
                sys.executable,
                "-I",
                "-S",
                "-c",
                _BOOT.format(path=[each for each in sys.path if each]),
                json.dumps(arguments),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            env=_ENVIRONMENT,
            cwd="/",
            pass_fds=[their_control.fileno(), *(each.fileno() for each in theirs)],
        )
    finally:
        their_control.close()
        for each in theirs:
            each.close()
    process = Process(child, control, errors, user)
    process.slots = [Slot(process, Channel(ours), index) for index, (ours, _) in enumerate(pairs)]
    process.free = list(process.slots)
    return process


def await_ready(process: Process) -> None:
    """Wait until a launched process is ready; StartFailed, after which it is gone."""
    process.control.settimeout(START_SECONDS)
    try:
        process.protections = Protections(**json.loads(process.control.recv(READY_BYTES)))
    except (OSError, ValueError):
        last = _last_words(process.errors)
        process.end()
        raise StartFailed(Sentence("a sandbox process did not start: %(last)s", last=last[-400:] or 'no answer')) from None
