"""`gos serve` and `gos worker`: run the appliance, its edges alone, or a further worker process."""

import argparse
import errno
import gc
import signal
import socket
import threading
from types import ModuleType
from typing import Any

from appliance.core import logs
from appliance.core.config import Config
from appliance.core.confinement import memory
from appliance.core.errors import Conflict


def add_commands(commands: Any) -> None:
    serve = commands.add_parser("serve", help="run the appliance: edges, queue and workers in one process")
    serve.add_argument("--host", help="address to listen on")
    serve.add_argument("--port", type=int, help="port to listen on")
    serve.add_argument(
        "--no-workers", action="store_false", default=None, dest="run_workers",
        help="only answer requests; `gos worker` processes run executions, timers and upkeep",
    )  # fmt: skip
    serve.set_defaults(run=run_serve)
    worker = commands.add_parser("worker", help="run a further process that works on the queue, without edges")
    worker.set_defaults(run=run_worker)


def run_serve(args: argparse.Namespace) -> int:
    args.flags = {"server.host": args.host, "server.port": args.port, "server.run_workers": args.run_workers}
    config: Config = args.load()
    for port in (config.server.port, config.tls.http_port):
        if port:
            refuse_used_address(config.server.host, port)
    logs.configure_logs(config.logs.level, config.logs.format)
    composition, sandbox = load_appliance(config)
    composition.serve_forever(config, sandbox, lambda: announce(config))
    return 0


def load_appliance(config: Config) -> tuple[ModuleType, Any]:
    """Import the composition root, while the processes of the sandbox start, if this one runs executions; returns both.

    Garbage is collected from `memory.keep_loaded` on: this loads nearly all modules, and scanning them repeatedly would take a
    fifth of the start.
    """
    memory.give_back()
    gc.disable()
    from appliance.app.sandboxes import make_pool

    sandbox = make_pool(config)
    sandbox.begin()
    from appliance.app import composition

    return composition, sandbox


def refuse_used_address(host: str, port: int) -> None:
    """Raise Conflict if another program already listens on the address, before anything is started."""
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    with socket.socket(family, kind, protocol) as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind(address)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            raise Conflict(
                f"port {port} of {host} is in use; stop the program that uses it, or choose another with --port or GOS_PORT"
            ) from error


def announce(config: Config) -> None:
    """Log that the appliance is ready, and its address."""
    import logging

    memory.keep_loaded()
    where = f"{config.scheme}://{config.domains.base}{config.port_suffix}/"
    logging.getLogger("appliance").info("ready", extra={"fields": {"url": where, "data": str(config.data)}})


def run_worker(args: argparse.Namespace) -> int:
    args.flags = {"server.run_workers": True}
    config: Config = args.load()
    logs.configure_logs(config.logs.level, config.logs.format)
    composition, sandbox = load_appliance(config)
    appliance = composition.build(config, sandbox)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    appliance.start()
    memory.keep_loaded()
    stop.wait()
    appliance.stop()
    return 0
