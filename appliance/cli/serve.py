"""`gos serve` and `gos worker`."""

import argparse
import signal
import threading
from typing import Any

from appliance.core import logs
from appliance.core.config import Config


def add_commands(commands: Any) -> None:
    serve = commands.add_parser("serve", help="run the appliance: edges, queue and workers in one process")
    serve.add_argument("--host", help="address to listen on")
    serve.add_argument("--port", type=int, help="port to listen on")
    serve.set_defaults(run=run_serve)
    worker = commands.add_parser("worker", help="a further process that works the queue off, without edges")
    worker.set_defaults(run=run_worker)


def run_serve(args: argparse.Namespace) -> int:
    from appliance import app

    args.flags = {"server.host": args.host, "server.port": args.port}
    config: Config = args.load()
    logs.configure_logs(config.logs.level, config.logs.format)
    app.serve_forever(config, lambda: announce(config))
    return 0


def announce(config: Config) -> None:
    """Say that the appliance is ready, and where."""
    import logging

    where = f"{config.scheme}://{config.domains.base}{config.port_suffix}/"
    logging.getLogger("appliance").info("ready", extra={"fields": {"url": where, "data": str(config.data)}})


def run_worker(args: argparse.Namespace) -> int:
    from appliance import app

    config: Config = args.load()
    logs.configure_logs(config.logs.level, config.logs.format)
    appliance = app.build(config)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    appliance.start()
    stop.wait()
    appliance.stop()
    return 0
