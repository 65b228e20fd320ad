"""What a sandbox process for PHP can do: run steps, and check the syntax of programs."""

from __future__ import annotations

import json
import time
from typing import Any

import wasmtime

from appliance.sandbox.compilation.compiler import refuse_program
from appliance.sandbox.outcome import Failure, Position
from appliance.sandbox.php import faults
from appliance.sandbox.php.engine import PhpEngine
from appliance.sandbox.php.files import ROOT, Files
from appliance.sandbox.php.machine import Machine, PhpBoot
from appliance.sandbox.php.sources import PhpSources
from appliance.sandbox.php.step import PhpRun
from appliance.sandbox.program import Limits
from appliance.sandbox.reasons import OVER_WALL
from appliance.sandbox.wire import Channel, Header, Verb
from appliance.sandbox.worker.instance import OutOfMemory, Stopped, Trapped
from appliance.sandbox.worker.programs import Artefacts
from appliance.sandbox.worker.visit import Request

CHECK_SECONDS = 10.0
CHECK_HEAP = 128 << 20


class _Checking:
    """Owner of a PHP that compiles a file and runs nothing: notes what it says."""

    def __init__(self, end: float) -> None:
        self._end = end
        self.output = b""

    def overdue(self) -> str | None:
        return OVER_WALL if time.monotonic() > self._end else None

    def on_message(self, message: bytes) -> bytes | None:
        return None

    def on_output(self, stream: int, data: bytes) -> None:
        self.output += data

    def read_clock(self) -> int:
        return 0


class PhpPrograms:
    """Runs steps, and checks programs."""

    def __init__(self, settings: dict[str, Any]) -> None:
        path = settings["php"]
        self._boot = PhpBoot(**settings["boot"])
        self._engine = PhpEngine(lambda wasm: wasmtime.Module.deserialize_file(wasm, path))
        self._sources: Artefacts[PhpSources] = Artefacts()
        self.verbs: dict[str, Verb] = {"run": self._run, "compile": self._compile}

    def begin(self) -> None:
        """Start the thread that measures time."""
        self._engine.ticker.start()

    def _run(self, channel: Channel, header: Header, parts: list[bytes]) -> None:
        key = header["key"]
        sources = self._sources.get(key)
        if sources is None:
            channel.send({"op": "need"})
            sources = PhpSources.from_wire(*channel.receive())
            self._sources.put(key, sources)
        request = Request(
            key, Limits(*header["limits"]), header["seed"], header["clock"], header["serial"], facts=parts[0], input=parts[1]
        )
        end, results = PhpRun(self._engine, self._boot, sources, request, channel).run()
        channel.send(end, *results)

    def _compile(self, channel: Channel, header: Header, parts: list[bytes]) -> None:
        request = json.loads(parts[0])
        entry, files = request["entry"], request["files"]
        failures, sources = refuse_program(entry, files), None
        if not failures:
            sources = PhpSources.of(entry, files)
            failures = self._check(sources)
        artefact, texts = sources.to_wire() if sources is not None and not failures else ({}, [])
        channel.send({"op": "end", "failures": [each.to_wire() for each in failures], "artefact": artefact}, *texts)

    def _check(self, sources: PhpSources) -> list[Failure]:
        """Every file is compiled on its own, so that all errors are found at once."""
        end = time.monotonic() + CHECK_SECONDS
        results = [self._check_file(path, text, end) for path, text in sources.scripts.items()]
        failures = [each for each in results if each is not None]
        missing = None if failures else sources.missing_function()
        return [missing] if missing else failures

    def _check_file(self, path: str, text: bytes, end: float) -> Failure | None:
        owner = _Checking(end)
        try:
            with self._engine.ticker, Machine(self._engine, owner, CHECK_HEAP, Files({}, bytes)) as machine:
                machine.check(ROOT + path, text)
        except (OutOfMemory, Stopped, Trapped):
            message = f"{path} is too large or nested too deeply to compile; split it"
            return Failure("validation", "TooLarge", message, code="program_size", position=Position(path, 1, 1))
        return faults.refused(owner.output.decode("utf-8", "replace"))
