"""Runs a JavaScript step inside a sandbox process, exchanging calls and answers with the appliance."""

from __future__ import annotations

import hashlib
import json
import time
from dataclasses import dataclass, field

from appliance.sandbox.compilation.artefact import Artefact
from appliance.sandbox.outcome import Failure
from appliance.sandbox.wire import Channel, Header
from appliance.sandbox.worker.engine import Engine
from appliance.sandbox.worker.freezer import Image, TooLarge, freeze, thaw
from appliance.sandbox.worker.instance import OutOfMemory, Stopped, Trapped
from appliance.sandbox.worker.snapshot import HostState, ParsedSnapshot, Unusable
from appliance.sandbox.worker.visit import Call, LimitReached, Request, Visit
from appliance.sandbox.worker.vm import VM, Thrown

# Math.random uses the lower 64 bits of a seed.
SEED, BLOCK_BYTES = (1 << 64) - 1, 256


def spread_seed(seed: int) -> bytes:
    """Four 32-bit words from a 64-bit seed by splitmix64 (Steele, Lea, Flood), as JSON."""
    words, mask = [], (1 << 64) - 1
    for _ in range(2):
        seed = (seed + 0x9E3779B97F4A7C15) & mask
        mixed = ((seed ^ (seed >> 30)) * 0xBF58476D1CE4E5B9) & mask
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & mask
        mixed ^= mixed >> 31
        words += [mixed & 0xFFFFFFFF, mixed >> 32]
    return json.dumps([each - (1 << 32) if each >> 31 else each for each in words]).encode()


def spread_bytes(seed: int, block: bytes) -> bytes:
    """One block of the step's random bytes in hexadecimal: SHAKE256 (FIPS 202) of the whole seed and the block's number."""
    number = int(block) if block.isdigit() and len(block) < 16 else 0
    return hashlib.shake_256(b"gos random\0%x\0%d" % (seed, number)).hexdigest(BLOCK_BYTES).encode()


@dataclass(frozen=True)
class StepRequest(Request):
    """A request to run a JavaScript step from its start, or to resume it from `stored`."""

    artefact: Artefact = field(default_factory=Artefact)
    stored: ParsedSnapshot | None = None


class StepRun(Visit):
    """Runs one request over a channel; `run` returns the header and the parts of the final frame."""

    def __init__(self, engine: Engine, image: Image, request: StepRequest, channel: Channel) -> None:
        super().__init__(request, channel, request.stored.carried if request.stored else None)
        self._engine, self._image, self._step = engine, image, request

    # ---- the run

    def run(self) -> tuple[Header, list[bytes]]:
        failure: Failure | None = None
        try:
            with self._engine.ticker, VM(self._engine, self, self._limits.memory_mb << 20) as vm:
                try:
                    failure = self._drive(vm)
                finally:
                    self._memory = vm.measure()
        except (LimitReached, Unusable) as ended:
            failure = ended.failure
        except TooLarge:
            failure = self._reasons.snapshot_too_large()
        except OutOfMemory:
            failure = self._reasons.memory()
        except Stopped as stopped:
            failure = self._reasons.stopped(str(stopped))
        except Thrown as thrown:
            failure = self._reasons.thrown(thrown.fault, self._step.artefact)
        except Trapped as trapped:
            failure = self._reasons.trapped(str(trapped))
        return self._end(failure), [(self._output or b"null") if failure is None else b"null", self._frozen or b""]

    def _drive(self, vm: VM) -> Failure | None:
        if self._step.stored is None:
            promise = self._step.artefact.load_into(vm)
            vm.start(promise, self._request.facts + b"\n" + self._request.input)
        else:
            self._restore(vm, thaw(self._step.stored, vm, self._image))
        while not self._is_finished():
            if not self._calls and not self._pending:
                return self._unhandled(vm) or self._reasons.never_settled()
            self._exchange(vm)
        if self._frozen is not None:
            return None
        if self._thrown is not None:
            return self._reasons.thrown(self._thrown, self._step.artefact)
        return self._unhandled(vm)

    def _unhandled(self, vm: VM) -> Failure | None:
        for _, reason in vm.rejections.values():
            return self._reasons.thrown(vm.describe(reason), self._step.artefact)
        return None

    def _is_finished(self) -> bool:
        """Whether the step is done; calls that it did not await are still answered, so that no write is left half done."""
        if self._thrown is not None or self._frozen is not None:
            return True
        return self._output is not None and not self._pending and not self._calls

    def _exchange(self, vm: VM) -> None:
        """Send new calls to the appliance, then pass one answer to the guest, or suspend the step if told to."""
        room = max(0, self._limits.in_flight - len(self._pending))
        ready, self._calls = self._calls[:room], self._calls[room:]
        self._pending.update(call.id for call in ready)
        self._backlog_bytes -= sum(len(call.raw) for call in ready)
        header = {"op": "calls", "calls": [[call.id, call.method, call.clock] for call in ready]}
        self._channel.send(header, *(call.raw for call in ready))
        answer, parts = self._channel.receive()
        if answer["op"] == "suspend":
            self._suspend(vm)
            return
        if answer["op"] != "settle":
            raise Stopped(str(answer.get("reason")))
        self._pending.remove(answer["id"])
        self._reasons.hear(answer["ok"], parts[0])
        vm.send(vm.boot.message, b"%d\n%d\n%s" % (answer["id"], 1 if answer["ok"] else 0, parts[0]))

    # ---- sleep

    def _suspend(self, vm: VM) -> None:
        """Store the step; clock values of calls not sent yet are part of this visit's outcome and are not reported again."""
        vm.send(vm.boot.message, b"")  # the prelude drops its caches
        vm.scrub()
        carried = HostState(
            template=self._image.template,
            program=self._request.program,
            memory_mb=self._limits.memory_mb,
            seed=self._before.seed,
            wall_ms=self._before.wall_ms + (time.monotonic() - self._began) * 1000,
            cpu_ms=self._before.cpu_ms + (time.thread_time() - self._cpu_began) * 1000,
            calls_made=self._calls_made,
            log_bytes=self._log_bytes,
            clock_count=self._before.clock_count + len(self._clock),
            clock_last=self._clock_last,
            pending=sorted(self._pending),
            calls=[[call.id, call.method] for call in self._calls],
            rejections=[[identity, *handles] for identity, handles in vm.rejections.items()],
            seeded=self._seeded,
            system_failed=self._reasons.system_failed,
            returned=self._output is not None,
            output=self._output or b"",
            raws=[call.raw for call in self._calls],
        )
        self._frozen = freeze(vm, self._image, carried, self._limits.snapshot_bytes)

    def _restore(self, vm: VM, carried: HostState) -> None:
        vm.rejections = {identity: (promise, reason) for identity, promise, reason in carried.rejections}
        self._calls = [Call(number, method, [], raw) for (number, method), raw in zip(carried.calls, carried.raws, strict=True)]
        self._backlog_bytes = sum(map(len, carried.raws))
        self._output = carried.output if carried.returned else None

    # ---- messages of the guest

    def on_message(self, message: bytes) -> bytes | None:
        kind, body = message[:1], message[1:]
        if kind == b"c":
            self.on_call(body)
        elif kind == b"s":
            self._seeded = True
            return spread_seed(self._before.seed & SEED)
        elif kind == b"r":
            self._seeded = True
            return spread_bytes(self._before.seed, body)
        else:
            self.on_statement(kind, body)
        return None

    def module_source(self, name: str) -> str | None:
        return self._step.artefact.source(name)

    def resolve_module(self, importer: str, specifier: str) -> str:
        return self._step.artefact.resolve(importer, specifier)
