"""The exchange of messages with a sandbox process for one request, with its deadline."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress

from appliance.sandbox.compilation.compiled import Compiled
from appliance.sandbox.pool.process import Slot
from appliance.sandbox.program import Host, HostCall, Settled, Suspend
from appliance.sandbox.reasons import ABORTED, OVER_WALL
from appliance.sandbox.wire import Disconnected, Header, encode_json

# How long a process may exceed its own deadline before it is killed.
GRACE_SECONDS = 0.25


class Overdue(Exception):
    """The process did not answer in time and must be ended."""


class Lost(Exception):
    """The process has died or violated the protocol, and must be ended."""


class Conversation:
    """One request over one slot, used by the thread that holds the slot.

    `calls` and `answers` count the calls passed to the host and its answers; `open` has the ids of unanswered calls.
    `in_step` is true once the process is ready for the next request.
    """

    def __init__(self, slot: Slot, seconds: float, pending: Iterable[int] = ()) -> None:
        self._slot, self._channel = slot, slot.channel
        self.seconds = seconds
        self._deadline = time.monotonic() + seconds
        self._end = self._deadline + GRACE_SECONDS
        self.in_step = False
        self.calls = self.answers = 0
        self.open = set(pending)
        self._poll: Callable[[], None] | None = None
        self._computes = False

    def _give_up(self) -> None:
        if time.monotonic() > self._end:
            raise Overdue

    def _receive(self) -> tuple[Header, list[bytes]]:
        try:
            return self._channel.receive(self._give_up, self._poll)
        except Disconnected as disconnected:
            raise Lost from disconnected

    def _send(self, header: Header, *parts: bytes) -> None:
        try:
            self._channel.send(header, *parts)
        except Disconnected as disconnected:
            raise Lost from disconnected

    def ask(self, header: Header, *parts: bytes) -> tuple[Header, list[bytes]]:
        self._send(header, *parts)
        return self._check_final(*self._receive())

    def _check_final(self, header: Header, parts: list[bytes]) -> tuple[Header, list[bytes]]:
        if header.get("op") not in ("end", "fault"):
            raise Lost
        self.in_step = True
        return header, parts

    def run(self, header: Header, facts: bytes, text: bytes, compiled: Compiled, host: Host) -> tuple[Header, list[bytes]]:
        """Run a step, answering its calls through `host`, and return its final frame."""
        self._poll = getattr(host, "poll", None)
        header["serial"] = self._slot.next_serial()
        self._send(header, facts, text)
        try:
            while True:
                self._computes = True
                answer, parts = self._receive()
                self._computes = False
                operation = answer.get("op")
                if operation == "need":
                    self._send(compiled.artefact, *compiled.parts)
                elif operation == "calls":
                    self._answer(answer, parts, host)
                else:
                    return self._check_final(answer, parts)
        except (Lost, Overdue):
            raise
        except BaseException:
            with suppress(Lost, Overdue):  # `in_step` stays False in this case, and the process is ended
                self._stop()
            raise

    def _answer(self, header: Header, parts: list[bytes], host: Host) -> None:
        for call, clock in _parse_calls(header, parts):
            self.calls += 1
            self.open.add(call.id)
            host.submit(call, clock)
        settled: Settled | Suspend | None = None
        while settled is None:
            remaining = self._deadline - time.monotonic()
            if remaining <= 0:
                self._send({"op": "abort", "reason": OVER_WALL})
                return
            settled = host.wait(remaining)
            if settled is None and self._channel.is_gone():
                raise Lost
        if isinstance(settled, Suspend):
            self._send({"op": "suspend"})
            return
        if settled.id not in self.open:
            raise ValueError(f"the host answered call {settled.id}, which was never made or is already answered")
        self.open.remove(settled.id)
        self.answers += 1
        text = encode_json(settled.value)
        self._send({"op": "settle", "id": settled.id, "ok": settled.ok}, text)

    def _stop(self) -> None:
        """Abort the step after the host gave up, and wait for its final frame so that the slot can be reused."""
        self._poll = None
        self._end = time.monotonic() + GRACE_SECONDS
        if self._computes:
            self._slot.ask_stop()
        else:
            self._send({"op": "abort", "reason": ABORTED})
        header, parts = self._receive()
        if header.get("op") == "calls":  # it had just sent calls and is now waiting for an answer
            self._send({"op": "abort", "reason": ABORTED})
            header, parts = self._receive()
        self._check_final(header, parts)


def _parse_calls(header: Header, parts: list[bytes]) -> Iterator[tuple[HostCall, list[int]]]:
    """The calls in a frame; raises Lost if the frame is malformed."""
    try:
        for (number, method, clock), raw in zip(header["calls"], parts, strict=True):
            args = json.loads(raw)
            if not (isinstance(number, int) and isinstance(method, str) and isinstance(clock, list) and isinstance(args, list)):
                raise Lost
            yield HostCall(number, method, args, raw), clock
    except (ValueError, KeyError, TypeError, RecursionError) as fault:
        raise Lost from fault
