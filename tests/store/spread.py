"""An appliance of several processes behind one port, as `Running`: with `--spread`, journeys use it instead of one process.

The appliance in the process of the tests is the first server, by which tests also create tenants and users. A `gos serve` of
its own is the second, and a `gos worker` runs executions besides both. They share a PostgreSQL database, a data folder and,
by the settings of `start_appliance`, a bucket.
Servers close a connection after each response, so that the requests of one browser really reach both.
"""

import json
import os
import signal
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from appliance.app import composition
from appliance.cli import main
from appliance.connectors.testing import free_port
from appliance.core.config import Config
from appliance.sites.front import build_server_config
from appliance.testing.running import Running, make_config, start
from tests.forking import Forked
from tests.readiness import wait_ready
from tests.store.splitter import Splitter

SERVERS = 2
MANY = 20  # connections, after which each server has had one
SECONDS = 30.0  # for what a busy machine does late


def close_connections() -> None:
    """Servers of this process end each connection after its response; with HTTP/2, which cannot, they do not serve."""

    def build(*args: Any) -> Any:
        server = build_server_config(*args)
        server.keep_alive_max_requests = 1
        server.alpn_protocols = ["http/1.1"]
        return server

    vars(composition)["build_server_config"] = build


def launch_closing(argv: list[str]) -> int:
    """`gos` with these arguments, with connections that end after each response."""
    close_connections()
    return main(argv)


class SpreadAppliance(Running):
    """A running appliance of two servers and a worker; `config` is that of the port before both servers."""

    def __init__(self, first: Running, config: Config, splitter: Splitter, others: list[Forked]) -> None:
        super().__init__(**{**vars(first), "config": config})
        self.splitter = splitter
        self._others = others

    def __str__(self) -> str:
        """For the report of a failure: where connections went, and the end of the log of the other processes."""
        counts = ", ".join(f"{count} to port {port}" for port, count in self.splitter.counts.items())
        log = self.appliance.config.data / "others.log"
        return f"connections: {counts}\n{log.read_text()[-3000:]}"

    def move_clock(self, ms: int) -> None:
        raise AssertionError("the clocks of other processes cannot be moved: run this test without --spread")

    def stop(self) -> None:
        self.splitter.stop()
        stop_processes(self._others)
        super().stop()
        counts = self.splitter.counts
        assert len(counts) == SERVERS or counts.total() < MANY, f"only one server was reached: {counts}"


def start_spread(folder: Path, database: str, seed: str, **settings: Any) -> SpreadAppliance:
    """Start two servers and a worker with a data folder and an empty database in common; the seed selects who gets what."""
    close_connections()
    with ExitStack() as undo:
        splitter, second = Splitter(seed), free_port()
        undo.callback(splitter.stop)
        settings |= {"storage__database": database, "server__public_port": splitter.port}
        config = make_config(folder, **settings)
        _write_settings(folder, {**settings, "sandbox__runtimes": config.sandbox.runtimes, "logs__level": "error"})
        first = start(config)  # It creates the key file and the tables.
        undo.callback(first.stop)
        commands = (["serve", "--port", str(second)], ["worker"])
        others = [Forked(launch_closing, ["--data", str(folder), *each], log=folder / "others.log") for each in commands]
        undo.callback(stop_processes, others)
        wait_ready(second, check=lambda: _all_run(others, folder), scheme=config.scheme)
        undo.pop_all()
    splitter.start(config.server.port, second)
    public = replace(config, server=replace(config.server, port=splitter.port, public_port=0))
    return SpreadAppliance(first, public, splitter, others)


def stop_processes(processes: list[Forked]) -> None:
    """End them as SIGTERM does; those that do not end in time are killed, and TimeoutError is raised."""
    for process in processes:
        process.terminate()
    try:
        for process in processes:
            process.wait(SECONDS)
    finally:
        for process in processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def _write_settings(folder: Path, settings: dict[str, Any]) -> None:
    """Write `section__name=value` as the configuration file of the data folder."""
    sections: dict[str, dict[str, Any]] = {}
    for name, value in settings.items():
        section, _, setting = name.partition("__")
        sections.setdefault(section, {})[setting] = value
    (folder / "config.yaml").write_text(json.dumps(sections))


def _all_run(processes: list[Forked], folder: Path) -> bool:
    if any(process.poll() is not None for process in processes):
        raise AssertionError((folder / "others.log").read_text()[-3000:])
    return True
