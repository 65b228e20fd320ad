"""The operations of a sandbox process for code: run steps, evaluate expressions, compile programs."""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from pathlib import Path
from typing import Any, Generic, Protocol, Self, TypeVar

import wasmtime

from appliance.sandbox.compilation.artefact import Artefact
from appliance.sandbox.compilation.compiler import Compiler
from appliance.sandbox.compilation.typescript import TypeScript
from appliance.sandbox.evaluation.expressions import ExpressionRun
from appliance.sandbox.program import Limits
from appliance.sandbox.runtimes import Boot, digest
from appliance.sandbox.wire import Channel, Header, Verb
from appliance.sandbox.worker.engine import Engine
from appliance.sandbox.worker.freezer import Image
from appliance.sandbox.worker.locales import Locales
from appliance.sandbox.worker.snapshot import ParsedSnapshot
from appliance.sandbox.worker.step import StepRequest, StepRun

ARTEFACT_BYTES = 32 << 20


class Sized(Protocol):
    @property
    def size(self) -> int: ...


SizedArtefact = TypeVar("SizedArtefact", bound=Sized)


class Artefacts(Generic[SizedArtefact]):
    """A cache of compiled programs in this process, by the appliance's key; evicts the least recently used."""

    def __init__(self, limit_bytes: int = ARTEFACT_BYTES) -> None:
        self._limit = limit_bytes
        self._lock = threading.Lock()
        self._artefacts: OrderedDict[str, SizedArtefact] = OrderedDict()
        self._bytes = 0

    def get(self, key: str) -> SizedArtefact | None:
        with self._lock:
            artefact = self._artefacts.get(key)
            if artefact is not None:
                self._artefacts.move_to_end(key)
            return artefact

    def put(self, key: str, artefact: SizedArtefact) -> None:
        with self._lock:
            if key in self._artefacts:
                return
            self._artefacts[key] = artefact
            self._bytes += artefact.size
            while self._bytes > self._limit and len(self._artefacts) > 1:
                self._bytes -= self._artefacts.popitem(last=False)[1].size


class Steps:
    """Runs steps from one template."""

    def __init__(self, engine: Engine, template: str) -> None:
        self._engine = engine
        self._image = Image.of(engine, template)
        self._artefacts: Artefacts[Artefact] = Artefacts()
        self.verbs: dict[str, Verb] = {"run": self._run}

    @classmethod
    def of_former(cls, settings: dict[str, Any]) -> Self:
        """Load a template of a former version, compiling it here before the process accepts any work."""
        binary = Path(settings["wasm"]).read_bytes()
        if digest(binary) != settings["template"]:
            raise RuntimeError(f"{settings['wasm']} does not match its digest")
        locales = Locales(Path(settings["intl"]), compiled=False)
        engine = Engine(lambda wasm: wasmtime.Module(wasm, binary), settings["slots"] + 1, Boot(**settings["boot"]), locales)
        return cls(engine, settings["template"])

    def begin(self) -> None:
        """Start the thread that measures time."""
        self._engine.ticker.start()

    def _run(self, channel: Channel, header: Header, parts: list[bytes]) -> None:
        key = header["key"]
        artefact = self._artefacts.get(key)
        if artefact is None:
            channel.send({"op": "need"})
            answer, modules = channel.receive()
            artefact = Artefact.from_wire(answer, modules)
            self._artefacts.put(key, artefact)
        request = StepRequest(
            key,
            Limits(*header["limits"]),
            header["seed"],
            header["clock"],
            header["serial"],
            facts=parts[0],
            input=parts[1],
            artefact=artefact,
            stored=ParsedSnapshot.parse(parts[1]) if header["resume"] else None,
        )
        end, results = StepRun(self._engine, self._image, request, channel).run()
        channel.send(end, *results)


class Programs(Steps):
    """Runs steps and expressions, and compiles programs."""

    def __init__(self, settings: dict[str, Any]) -> None:
        path, boot, locales = settings["quickjs"], Boot(**settings["boot"]), Locales(Path(settings["intl"]))
        engine = Engine(lambda wasm: wasmtime.Module.deserialize_file(wasm, path), settings["slots"] + 1, boot, locales)
        super().__init__(engine, settings["template"])
        self._typescript = TypeScript(Path(settings["swc"]), engine.ticker)
        self.verbs |= {"evaluate": self._evaluate, "compile": self._compile}

    def _evaluate(self, channel: Channel, header: Header, parts: list[bytes]) -> None:
        run = ExpressionRun(self._engine, Limits(*header["limits"]), header["now"])
        values, failures = run.run(parts[0], header["keys"])
        wire = {key: each.to_wire() for key, each in failures.items()}
        channel.send({"op": "end", "values": list(values), "failures": wire}, *values.values())

    def _compile(self, channel: Channel, header: Header, parts: list[bytes]) -> None:
        artefact, failures = Compiler(self._engine, self._typescript, json.loads(parts[0])).compile()
        answer, modules = artefact.to_wire() if artefact is not None else ({}, [])
        channel.send({"op": "end", "failures": [each.to_wire() for each in failures], "artefact": answer}, *modules)
