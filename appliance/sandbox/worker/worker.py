"""The sandbox process: one thread for each slot, each serving one connection of the appliance."""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from appliance.core.confinement import confinement, landlock
from appliance.core.confinement.syscalls import confine_calls
from appliance.sandbox.outcome import Failure
from appliance.sandbox.pool.protections import Protections
from appliance.sandbox.wire import ORDER, Channel, Disconnected, Verb

THREAD_STACK = 16 << 20


def _load(settings: dict[str, Any]) -> tuple[dict[str, Verb], Callable[[], None]]:
    """Load everything that the role needs and nothing else, because no file can be opened later.

    Returns the role's operations, and a function that starts its threads, which must not run before the confinement.
    """
    if settings["role"] == "code":
        from appliance.sandbox.worker.programs import Programs

        programs = Programs(settings)
        return programs.verbs, programs.begin
    if settings["role"] == "types":
        from appliance.sandbox.typecheck.checks import Checks

        checks = Checks(settings)
        return checks.verbs, checks.begin
    if settings["role"] == "former":
        from appliance.sandbox.worker.programs import Steps

        steps = Steps.of_former(settings)
        return steps.verbs, steps.begin
    if settings["role"] == "php":
        from appliance.sandbox.php.programs import PhpPrograms

        php = PhpPrograms(settings)
        return php.verbs, php.begin
    if settings["role"] == "schemas":
        from appliance.sandbox.evaluation.schema_worker import SchemaChecks

        schemas = SchemaChecks()
        return schemas.verbs, schemas.begin
    from appliance.sandbox.evaluation.decisions import VERBS, warm_up

    warm_up()
    return VERBS, lambda: None


def _sandbox_fault(fault: Exception) -> Failure:
    text = f"The sandbox failed: {fault}"
    return Failure("system", type(fault).__name__, text, code="sandbox_fault", retryable=True)


def serve(channel: Channel, verbs: dict[str, Verb]) -> None:
    """Serve requests until the appliance is gone. An exception fails one request; anything worse ends the process."""
    while True:
        try:
            header, parts = channel.receive()
            verbs[header["op"]](channel, header, parts)
        except Disconnected:
            os._exit(0)
        except Exception as fault:  # noqa: BLE001  reported to the appliance, which logs it
            channel.send({"op": "fault", "failure": _sandbox_fault(fault).to_wire()})
        except BaseException as fault:  # noqa: BLE001  such as a panic of native code
            sys.stderr.write(f"{type(fault).__name__}: {fault}\n")
            os._exit(1)


def receive_stop_orders(control: socket.socket, channels: list[Channel]) -> None:
    """Record stop orders for requests until the appliance is gone."""
    while order := control.recv(ORDER.size):
        index, serial = ORDER.unpack(order)
        channels[index].stop_asked = serial


def main(arguments: list[str]) -> None:
    settings = json.loads(arguments[0])
    confinement.die_with_parent(settings["parent"])
    confinement.confine(settings["address_space"])
    sys.setswitchinterval(0.0005)
    threading.stack_size(THREAD_STACK)
    verbs, begin = _load(settings)
    was_root = os.geteuid() == 0
    user = confinement.become_nobody(settings["user"])
    version = landlock.reach_nothing()
    begin()
    channels = [Channel(socket.socket(fileno=descriptor)) for descriptor in settings["descriptors"]]
    for channel in channels:
        threading.Thread(target=serve, args=(channel, verbs), daemon=True).start()
    control = socket.socket(fileno=settings["control"])
    makes_threads = settings["role"] == "decisions"
    if not makes_threads:
        confinement.forbid_processes()
    protections = Protections(confine_calls(makes_threads), version, user, was_root)
    control.sendall(json.dumps(asdict(protections)).encode())
    receive_stop_orders(control, channels)
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
