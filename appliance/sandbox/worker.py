"""The sandbox process: as many threads as it has slots, each answering one connection of the appliance."""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

from appliance.sandbox import confinement
from appliance.sandbox.artefact import Artefact
from appliance.sandbox.outcome import Failure
from appliance.sandbox.program import Limits
from appliance.sandbox.wire import Channel, Disconnected, Header

ARTEFACTS = 256
THREAD_STACK = 16 << 20
Parts = list[bytes]
Verb = Callable[[Channel, Header, Parts], None]


class Artefacts:
    """Compiled programs this process has seen, by the key the appliance gives them; the longest unused one goes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, Artefact] = OrderedDict()

    def get(self, key: str) -> Artefact | None:
        with self._lock:
            found = self._kept.get(key)
            if found is not None:
                self._kept.move_to_end(key)
            return found

    def put(self, key: str, artefact: Artefact) -> None:
        with self._lock:
            self._kept[key] = artefact
            while len(self._kept) > ARTEFACTS:
                self._kept.popitem(last=False)


class CodeWorker:
    """Runs steps and expressions, and compiles programs."""

    def __init__(self, settings: dict[str, Any]) -> None:
        import wasmtime

        from appliance.sandbox.engine import Engine
        from appliance.sandbox.runtimes import Boot

        path, boot = settings["quickjs"], Boot(**settings["boot"])
        self._engine = Engine(lambda wasm: wasmtime.Module.deserialize_file(wasm, path), settings["slots"] + 1, boot)
        self._swc = Path(settings["swc"])
        self._lock = threading.Lock()
        self._artefacts = Artefacts()
        self.verbs: dict[str, Verb] = {"run": self._run, "evaluate": self._evaluate, "compile": self._compile}

    @cached_property
    def _typescript(self) -> Any:
        from appliance.sandbox.typescript import TypeScript

        return TypeScript(self._swc, self._engine.ticker)

    def _load_typescript(self) -> Any:
        with self._lock:
            return self._typescript

    def _run(self, channel: Channel, header: Header, parts: Parts) -> None:
        from appliance.sandbox.step import Request, StepRun

        key = header["key"]
        artefact = self._artefacts.get(key)
        if artefact is None:
            channel.send({"op": "need"})
            answer, modules = channel.receive()
            artefact = Artefact.from_wire(answer, modules)
            self._artefacts.put(key, artefact)
        request = Request(artefact, Limits(*header["limits"]), header["seed"], header["clock"], parts[0], parts[1])
        end, output = StepRun(self._engine, request, channel).run()
        channel.send(end, output)

    def _evaluate(self, channel: Channel, header: Header, parts: Parts) -> None:
        from appliance.sandbox.expressions import ExpressionRun

        run = ExpressionRun(self._engine, Limits(*header["limits"]), header["now"])
        values, failures = run.run(parts[0], header["keys"])
        wire = {key: each.to_wire() for key, each in failures.items()}
        channel.send({"op": "end", "values": list(values), "failures": wire}, *values.values())

    def _compile(self, channel: Channel, header: Header, parts: Parts) -> None:
        from appliance.sandbox.compiler import Compiler

        artefact, failures = Compiler(self._engine, self._load_typescript, json.loads(parts[0])).compile()
        answer, modules = artefact.to_wire() if artefact is not None else ({}, [])
        channel.send({"op": "end", "failures": [each.to_wire() for each in failures], "artefact": answer}, *modules)


def _own_fault(fault: Exception) -> Failure:
    text = f"The sandbox failed: {fault}"
    return Failure("system", type(fault).__name__, text, code="sandbox_fault", retryable=True)


def serve(channel: Channel, verbs: dict[str, Verb]) -> None:
    """Answer requests until the appliance is gone; a fault of our own ends one request, not the process."""
    while True:
        try:
            header, parts = channel.receive()
            verbs[header["op"]](channel, header, parts)
        except Disconnected:
            os._exit(0)
        except Exception as fault:  # noqa: BLE001  told to the appliance, which logs it
            channel.send({"op": "fault", "failure": _own_fault(fault).to_wire()})


def main(arguments: list[str]) -> None:
    settings = json.loads(arguments[0])
    confinement.die_with_parent(settings["parent"])
    confinement.confine(settings["address_space"])
    sys.setswitchinterval(0.0005)
    threading.stack_size(THREAD_STACK)
    if settings["role"] == "code":
        verbs: dict[str, Verb] = CodeWorker(settings).verbs
    else:
        from appliance.sandbox.decisions import VERBS

        verbs = dict(VERBS)
    for descriptor in settings["descriptors"]:
        channel = Channel(socket.socket(fileno=descriptor))
        threading.Thread(target=serve, args=(channel, verbs), daemon=True).start()
    control = socket.socket(fileno=settings["control"])
    confinement.forbid_processes()
    control.sendall(b"ready")
    control.recv(1)  # nothing is ever sent: this returns when the appliance is gone
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
