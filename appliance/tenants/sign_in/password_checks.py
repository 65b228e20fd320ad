"""Rate-limited password checks: guesses are delayed increasingly, and never keep other people from signing in.

A check takes 64 MiB and a tenth of a second of processor time, and anybody may request one, so it is limited beforehand: each
address has a limit, so has each pair of login and address, and existing and unknown logins count alike.  A browser or address
with an earlier sign-in has a separate limit and thread, which guesses from elsewhere cannot exhaust.  Attempts are counted for all
processes together (`counts.py`), the queues are those of one process.
"""

import os
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from threading import Lock, get_native_id
from typing import Any, TypeVar

from appliance.core.errors import ApplianceError, Overloaded, RateLimited
from appliance.core.networks import network_of
from appliance.core.pools import DIRECTORY, PASSWORD, PASSWORD_KNOWN, PoolSize, open_pool
from appliance.monitor import REFUSALS

from .attempts import Attempts
from .counts import Count, Counts, MemoryCounts
from .refused_passwords import RefusedPasswords

T = TypeVar("T")

MAX_WAITING, MAX_WAITING_PER_NETWORK = 20, 2
NICENESS = 10
_ANY = ("address", "")
KNOWN_SECONDS = 180 * 86_400.0  # how long an address is known by which a login has signed in, as long as a browser


class SignInFailed(ApplianceError):
    """The login or the password is wrong; the error does not say which."""

    code, status = "sign_in_failed", 401


@dataclass(frozen=True)
class Attempt:
    """A sign-in attempt; `device` identifies a browser that has signed in with this login before, empty for others."""

    login: str
    address: str
    device: str = ""

    @property
    def origin(self) -> tuple[str, str]:
        return self.login, network_of(self.address)


class PasswordChecks:
    """Runs password checks in low-priority threads."""

    def __init__(self, open_counts: Callable[[str], Counts] = MemoryCounts) -> None:
        cores = os.cpu_count() or 1
        self._addresses = Attempts(free=20, first=1.0, longest=60.0, counts=open_counts("password address"))
        self._pairs = Attempts(free=5, first=1.0, longest=300.0, counts=open_counts("password pair"))
        self._devices = Attempts(free=10, first=1.0, longest=300.0, counts=open_counts("password device"))
        self._signed_in = open_counts("signed in")
        self._refused = RefusedPasswords(open_counts)
        self._known_lane = _Lane(PASSWORD_KNOWN)
        self._other_lane = _Lane(PASSWORD, max(1, cores // 2))
        self._waiting_lane = _Lane(DIRECTORY, of_network=DIRECTORY.threads)

    def submit(self, attempt: Attempt, work: Callable[[], T], *, waits: bool = False) -> "Future[T]":
        """Run a check that raises SignInFailed for a wrong password.  RateLimited while the attempt must wait, Overloaded.

        One that `waits` for a directory delays no others, and is counted with them.
        """
        is_known = self.is_known(attempt)
        lane, network = self._known_lane if is_known else self._other_lane, network_of(attempt.address)
        lane = self._waiting_lane if waits else lane
        is_first = is_known or not self._addresses.has_tried(_ANY, attempt.address)
        try:
            lane.enter(network, is_first=is_first)  # before the attempt is counted: one that is not admitted is no guess
            try:
                self._begin(attempt, is_known=is_known)
            except RateLimited:
                lane.leave(network)
                raise
        except (RateLimited, Overloaded):
            REFUSALS.inc(1, "passwords")
            raise
        future = lane.run(network, work)
        future.add_done_callback(lambda done: self._finish(attempt, done, is_known=is_known))
        return future

    def run_inside(self, work: Callable[[], T]) -> T:
        """Check a local password inside a check that waits, in the threads of local ones, which bound the memory."""
        return self._other_lane.run_admitted(work)

    def is_known(self, attempt: Attempt) -> bool:
        """Whether there was an earlier sign-in from this browser or address."""
        return bool(attempt.device) or self._signed_in.read(attempt.origin) is not None

    def stop(self) -> None:
        """Start no more checks."""
        for lane in (self._waiting_lane, self._known_lane, self._other_lane):
            lane.stop()

    def _begin(self, attempt: Attempt, *, is_known: bool) -> None:
        if is_known:
            self._devices.begin(("device", attempt.login), attempt.device or attempt.address)
            return
        self._addresses.begin(_ANY, attempt.address)
        self._pairs.begin(("login", attempt.login), attempt.address)

    def _finish(self, attempt: Attempt, done: "Future[Any]", *, is_known: bool) -> None:
        """Forget the attempt unless the password was wrong.  A known browser or address does not reset the count of the address:
        otherwise someone with their own account could guess other logins without delay."""
        if done.cancelled():
            return
        if isinstance(done.exception(), SignInFailed):
            self._refused.record(attempt.login, attempt.address)
            return
        self._devices.succeed(("device", attempt.login), attempt.device or attempt.address)
        self._pairs.succeed(("login", attempt.login), attempt.address)
        if not is_known:
            self._addresses.succeed(_ANY, attempt.address)
        if done.exception() is None:
            self._signed_in.change((attempt.origin,), _remember)


def _remember(counts: list[Count], now: float) -> None:
    counts[0].ends = now + KNOWN_SECONDS


class _Lane:
    """Threads with a bounded queue: a network can hold a few places, and those with failed attempts may use half of the queue."""

    def __init__(self, size: PoolSize, times: int = 1, of_network: int = MAX_WAITING_PER_NETWORK) -> None:
        self._threads = open_pool(size, times, _lower_priority)
        self._of_network = of_network
        self._lock = Lock()
        self._networks: Counter[str] = Counter()

    def enter(self, network: str, *, is_first: bool) -> None:
        """Take a place in the queue; Overloaded if there is none."""
        most = MAX_WAITING if is_first else MAX_WAITING // 2
        with self._lock:
            if self._networks[network] >= self._of_network or self._networks.total() >= most:
                raise Overloaded("too many people are signing in at once; try again in a moment", headers={"Retry-After": "5"})
            self._networks[network] += 1

    def run(self, network: str, work: Callable[[], T]) -> "Future[T]":
        """Run admitted work; its place is released when it finishes."""
        future = self._threads.submit(work)
        future.add_done_callback(lambda _: self.leave(network))
        return future

    def run_admitted(self, work: Callable[[], T]) -> T:
        """Run work of somebody who has a place in another lane, and wait for it."""
        return self._threads.submit(work).result()

    def leave(self, network: str) -> None:
        """Release the place."""
        with self._lock:
            self._networks[network] -= 1
            if not self._networks[network]:
                del self._networks[network]

    def stop(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


def _lower_priority() -> None:
    """Lower the priority of this thread, which Linux supports: password checks yield to other work."""
    os.setpriority(os.PRIO_PROCESS, get_native_id(), NICENESS)
